"""Op lines of Python programs: accepted unchanged, or with a suggested line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fusec.codes.calls import NOT_A_LIST
from fusec.codes.names import DEFINED_TWICE, METHOD_CALL
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError
from fusec.ops import TABLE
from fusec.parse.foreign.foreign_calls import ForeignCalls
from fusec.parse.foreign.writes import Write, writes_in
from fusec.parse.syntax.lines import line_text, plain_text, replaced
from fusec.parse.syntax.trees import CallTree, Items, Name, OpLine, Subscript, Tree


class OurWords(ForeignCalls):
    """Rewrites lines of a file for fusec."""

    def line_in_ours(self, line: OpLine) -> OpLine:
        """Return a line with all parts of other frameworks and Python rewritten for fusec."""
        made = self._pasted.line(line)
        return replace(made, tree=self._rewritten(made.tree, {}))

    @property
    def missing(self) -> Sequence[str]:
        """Return further requirements of the last line: inputs to declare, and numbers."""
        return self._pasted.missing

    def python(self, line: OpLine, twice: Mapping[str, FusecError]) -> tuple[OpLine, FusecError]:
        """Return a Python line rewritten for fusec, with the error that suggests it.

        twice: the errors of names that the line assigns again, as Python's lines may.
        """
        whole = self.line_in_ours(line)
        error = line.wrong or self._foreign_part() or next(iter(twice.values()))
        names = [self._free(n) if n.text in twice else n for n in whole.names]
        for old, new in zip(whole.names, names, strict=True):
            if old.text != new.text:
                self._pasted.renamed[old.text] = new
        whole = replace(whole, names=tuple(names), wrong=None)
        help = ", and ".join([f"write {self._lines_text(whole)}", *self.missing])
        if line.wrong is not None and line.wrong.diagnostic.help is not None:
            help = f"{line.wrong.diagnostic.help}: {help}"
        for old in twice:
            new = self._pasted.renamed[old].text
            help += f", and `{new}` for `{old}` in the lines below"
            if line.wrong is not None and any(value.name == old for value in self._inputs):
                help += f"; `- {new}: {{alias: {old}}}` under `outputs:` writes to the input"
        return whole, error.changed(help=help)

    def overwriting(
        self, line: OpLine, below: Collection[str]
    ) -> tuple[OpLine | None, FusecError] | None:
        """Return the error of a line that overwrites a value which is read afterwards, else None.

        With it is the rewritten line, None if two lines are needed. below: the names that the lines
        below and the outputs use.
        """
        for write in writes_in(line.tree):
            known, name = self._scope.knows(write.name.text), write.name.text
            if not known and name not in {n.text for n in line.names}:
                self._scope.find(name, self._span(write.place))
            within = write.is_read_in(line.tree)
            if known and name not in {n.text for n in line.names} and (name in below or within):
                return self._overwritten(line, write, within=within)
        return None

    def _overwritten(
        self, line: OpLine, write: Write, *, within: bool
    ) -> tuple[OpLine | None, FusecError]:
        old, made = write.name.text, None
        whole = self.line_in_ours(line)
        if write.call is line.tree and not within:
            new, lines = line.names[0], line_text(whole)
            made = replace(whole, wrong=None)
        else:
            new = self._free(write.name)
            call = self.line_in_ours(OpLine((new,), write.call))
            rest = replaced(line.tree, write.call, new)
            self._pasted.renamed[old] = new
            lines = f"{line_text(call)}, and in this line "
            lines += line_text(self.line_in_ours(replace(line, tree=rest)))
        self._pasted.renamed[old] = new
        return made, FusecError(
            f"{write.said} changes `{old}`, which is read afterwards",
            span=self._span(write.place),
            help=f"values do not change: write {lines}, and `{new.text}` for `{old}` in the lines "
            "below",
            code=DEFINED_TWICE,
        )

    def static(self, line: OpLine) -> FusecError | None:
        """Return the error for a line that only names a type or sizes; else None."""
        whole = self.line_in_ours(line)
        part = self._foreign_part()
        named = len(line.names) == 1 and isinstance(whole.tree, (Name, Items))
        several = isinstance(whole.tree, Items) and len(whole.tree.items) == len(line.names)
        if part is None or not (named or several):
            return None
        trees = whole.tree.items if several and isinstance(whole.tree, Items) else [whole.tree]
        pairs = zip(line.names, trees, strict=True)
        found = {n.text: t for n, t in pairs if n.text != "_" and plain_text(t) != n.text}
        self._pasted.static |= found
        wrong = " and ".join(f"`{plain_text(t)}` for `{n}`" for n, t in found.items())
        wrong = f"remove the line, and write {wrong}" if wrong else "remove the line"
        return (line.wrong or part).changed(help=wrong)

    def plain(self, line: OpLine) -> OpLine | None:
        """Return a line with its constants and types rewritten for fusec.

        None for one with parts that Python evaluates, or with Python syntax.
        """
        found = self._pasted.line(line)
        return None if line.wrong is not None or self._pasted.first is not None else found

    def count_of(self, call: CallTree) -> int:
        """Return how many results a call has; 0 if that is unknown before it is read."""
        return self._pasted.count_of(call)

    def results_of(self, tree: Tree) -> Items | None:
        """Return the results of `chunk(x, 2)`, or a part of them, as a list; None for others."""
        return self._pasted.results_of(tree)

    def _foreign_part(self) -> FusecError | None:
        part = self._pasted.first
        if part is None:
            return None
        text = self._source.text[part.start : part.end]
        text = "(" * (text.count(")") - text.count("(")) + text  # a tree begins within parentheses
        kind = "attributes" if isinstance(part, (Name, Subscript)) else "Python"
        message = f"op lines have no {kind}: `{text}`"
        if isinstance(part, Name) and part.text in self._pasted.static:
            message = f"`{text}` is not a value of the file"
        if isinstance(part, CallTree) and part.arguments and part.name.text in TABLE:
            op = TABLE[part.name.text]
            if op.params[0].kind == "operands" and not isinstance(part.arguments[0].value, Items):
                message = f"`{op.name}` takes a list of tensors: `{text}`"
                return FusecError(message, span=self._span(part), code=NOT_A_LIST)
        return FusecError(message, span=self._span(part), code=METHOD_CALL)
