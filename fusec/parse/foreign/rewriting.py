"""Op lines by the names of other frameworks, rewritten for fusec."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

from fusec.codes.calls import MISSING_ARGUMENT
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Guess, Span
from fusec.ir.dtype import DTYPES
from fusec.ir.graph import Type, Value
from fusec.ir.op import REQUIRED, OpDef
from fusec.ops import TABLE
from fusec.ops.builder.arguments import signature
from fusec.ops.frameworks import Entry, find, find_bare, find_dotted, method_entry
from fusec.ops.frameworks.entry import PAIRS, PARTS
from fusec.parse.foreign import frameworks
from fusec.parse.foreign.pasted import Pasted
from fusec.parse.foreign.translation import part_of, translated
from fusec.parse.scope import Scope, Skip
from fusec.parse.source import Source
from fusec.parse.syntax.lines import (
    ATTRIBUTES,
    OF_ONE_RANK,
    first_selected,
    is_uncalled,
    line_text,
    plain_text,
    replaced,
    selected,
)
from fusec.parse.syntax.trees import (
    Argument,
    CallTree,
    Infix,
    Items,
    Literal,
    Name,
    OpLine,
    Prefix,
    Subscript,
    Tree,
)


class Rewriting:
    """Rewrites expressions of a file for fusec, and formats the line that uses them."""

    def __init__(
        self,
        source: Source,
        scope: Scope,
        inputs: Sequence[Value],
        hints: Callable[[], Mapping[str, int]],
        type_of: Callable[[Tree], Type | None],
    ) -> None:
        """Bind trees of `source` to names of `scope`.

        hints: returns the default sizes. type_of: returns the type of an expression in fusec's
        terms, None if it has an error.
        """
        self._source, self._scope, self._inputs = source, scope, inputs
        self._types: dict[Tree, Type | None] = {}
        self._type_in_ours = type_of
        self._pasted = Pasted(scope, self._span, inputs, hints, self._inferred)
        self._said: list[tuple[Tree, Tree]] = []
        """Calls of the line in fusec's argument order, and how they are written."""
        self.line: OpLine | None = None
        """The current line: errors show how to write all of it."""

    def _span(self, tree: Tree) -> Span:
        return self._source.span(tree.start, tree.end)

    def read(self, line: OpLine) -> Tree:
        """Return the expression of a line, with calls by accepted foreign names rewritten.

        These are aliases, and methods, attributes and names with a prefix (`torch.exp`) that have
        an exact equivalent. Other calls are unchanged: binding them raises the error.
        """
        self.line, self._said = line, []
        tree = self._rewritten(line.tree, {}, accepted_only=True)
        self.line = replace(line, tree=tree)
        return tree

    def _free(self, name: Name) -> Name:
        """Return a name like `name` that is unused in the file."""
        stem, _, last = name.text.rpartition("_")
        stem, number = (stem, int(last) + 1) if stem and last.isdecimal() else (name.text, 2)
        while self._scope.knows(f"{stem}_{number}") or f"{stem}_{number}" in self._scope.later:
            number += 1
        return replace(name, text=f"{stem}_{number}")

    def with_part(
        self, tree: Tree, made: Tree, error: FusecError, why: str, rule: str | None = None
    ) -> FusecError:
        """Return an error of a part of the line, suggesting the line with that part replaced.

        rule: the help if that line is wrong too, if not `why`.
        """
        line = self._line_with(tree, made)
        help = f"{why}: write {line_text(line)}" if why else f"write {line_text(line)}"
        return error.changed(help=help, guess=Guess(line, rule or why or error.diagnostic.help))

    def _in_two_lines(self, tree: CallTree, made: CallTree, count: int) -> str:
        """Return the line of `made`, a replacement with several results, and the rest."""
        whole = tree if self.line is None else self.line.tree
        part, place = selected(whole, tree, count)
        names = [Name("_", tree.start, tree.start)] * count
        if self.line is not None and part is whole and len(self.line.names) == 1:
            names[place] = self.line.names[0]
            return line_text(OpLine((*names,), self._rewritten(made, {})))
        names[place] = self._free(Name(made.name.text.rpartition(".")[2], tree.start, tree.start))
        alone = line_text(OpLine((*names,), self._rewritten(made, {})))
        return f"{alone}, and in this line {self._whole(part, names[place])}"

    def _looked_up(self, tree: CallTree) -> tuple[Entry | None, CallTree]:
        """Return a call's entry, and the call with the tensor of a method as first argument."""
        name, start = tree.name.text, tree.name.start
        owner, _, method = name.rpartition(".")
        if name.startswith("."):
            return method_entry(method), tree
        if owner and self._is_value(owner.partition(".")[0], name):
            operand = self._without_attribute(Name(owner, start, start + len(owner)))
            called = replace(tree, arguments=(Argument(None, operand), *tree.arguments))
            return method_entry(method), called
        return (find_dotted(name) if owner else find_bare(name)), tree

    def _is_value(self, owner: str, name: str) -> bool:
        """Return whether `owner` of `name` is a value; a dim `F` does not hide `F.silu`."""
        if not self._scope.knows(owner):
            return False
        return not self._scope.is_dim(owner) or find_dotted(name) is None

    def _in_our_words(self, entry: Entry, called: CallTree) -> Tree:
        return translated(entry, called, self._type_of)

    def _type_of(self, tree: Tree) -> Type | None:
        """Return the type of a value, or of the first element of a list."""
        if isinstance(tree, Items) and tree.items:
            return self._type_of(tree.items[0])
        meaning = self._scope.meaning(tree.text) if isinstance(tree, Name) else None
        return meaning.type if isinstance(meaning, Value) else self._inferred(tree)

    def _inferred(self, tree: Tree) -> Type | None:
        """Return the type of an expression other than a name; None if it is unknown."""
        if not isinstance(tree, (CallTree, Infix, Prefix, Subscript)):
            return None
        if tree not in self._types:
            self._types[tree] = None  # guards against recursion while it is rewritten
            with contextlib.suppress(FusecError, Skip):
                ours = self._rewritten(self._pasted.quietly(tree), {})
                self._types[tree] = self._type_in_ours(ours)
        return self._types[tree]

    def _lines_text(self, line: OpLine) -> str:
        """Return the text of a line, preceded by the call if it uses one of several results."""
        found = first_selected(line.tree, self._pasted.count_of)
        if found is None:
            count = self._pasted.count_of(line.tree) if isinstance(line.tree, CallTree) else 0
            unused = [Name("_", line.tree.start, line.tree.start)] * (count - len(line.names))
            return line_text(replace(line, names=(*line.names, *unused)))
        part, call, place = found
        names = [Name("_", call.start, call.start)] * self._pasted.count_of(call)
        names[place] = self._free(Name(call.name.text, call.start, call.start))
        rest = replace(line, tree=replaced(line.tree, part, names[place]))
        return f"{line_text(OpLine((*names,), call))}, and in this line {line_text(rest)}"

    def _written(self, entry: Entry, tree: CallTree, called: CallTree) -> str | None:
        """Return the line with a call rewritten for fusec; None if its arguments do not fit."""
        if not entry.expressions:
            return None
        try:
            made = self._in_our_words(entry, called)
        except FusecError:
            return None
        parts = PARTS.get(entry.name, ())
        if self.line is not None and self.line.tree is tree and len(self.line.names) > 1:
            pairs = [*zip(self.line.names, parts, strict=False)]
            lines = [
                line_text(OpLine((n,), part_of(entry, text, called, self._type_of)))
                for n, text in pairs
                if text is not None and n.text != "_"
            ]
            if lines:
                return " and ".join(lines)
        op = TABLE.get(made.name.text) if isinstance(made, CallTree) else None
        alone = op is not None and op.family != "composite"
        count = len(op.results) if op is not None and alone else len(entry.results)
        if self.line is None or count < 2 or not isinstance(made, CallTree):
            return self._whole(tree, made)
        if self.line.tree is not tree:
            return self._in_two_lines(tree, made, count)
        unused = [Name("_", tree.start, tree.start)] * (count - len(self.line.names))
        named = replace(self.line, names=(*self.line.names, *unused))
        return line_text(replace(named, tree=self._rewritten(tree, {id(tree): made})))

    def _whole(self, tree: Tree, made: Tree) -> str:
        """Return the text of the current line with one of its parts replaced by `made`."""
        return (
            f"`{plain_text(made)}`" if self.line is None else line_text(self._line_with(tree, made))
        )

    def _line_with(self, tree: Tree, made: Tree) -> OpLine:
        """Return the current line with one of its parts replaced by `made`."""
        tree = next((said for ours, said in self._said if ours is tree), tree)
        line = self.line or OpLine((Name("y", tree.start, tree.start),), tree)
        return replace(line, tree=self._rewritten(line.tree, {id(tree): made}))

    def _rewritten(
        self, tree: Tree, made: Mapping[int, Tree], *, accepted_only: bool = False
    ) -> Tree:
        """Return an expression with all names of other frameworks rewritten for fusec.

        made: replacements of trees, by their ids. accepted_only: rewrites only names that fusec
        accepts, and raises the error of a call whose arguments do not fit.
        """
        original = tree
        parts = [
            self._rewritten(part, made, accepted_only=accepted_only)
            for part in frameworks.parts_of(made.get(id(tree), tree))
        ]
        tree = frameworks.rebuilt(made.get(id(tree), tree), parts)
        if isinstance(tree, Name):
            return self._without_attribute(tree, accepted_only=accepted_only)
        if not isinstance(tree, CallTree) or tree.name.text in (*TABLE, *DTYPES):
            return tree
        entry, called = self._looked_up(tree)
        if entry is None or not entry.expressions or is_uncalled(tree):
            return tree
        bare = "." not in tree.name.text
        accepted = entry.kind == "alias" if bare else frameworks.is_exact(entry)
        accepted |= entry.name in PAIRS and len(called.arguments) == 1  # of all elements one value
        if not accepted if accepted_only else accepted and bare:
            return tree
        try:
            return self._in_our_words(entry, called)
        except FusecError as error:
            if accepted_only:
                if error.code is MISSING_ARGUMENT and entry.name in TABLE:
                    error = self.with_size(original, called, TABLE[entry.name], error)
                raise error.at(self._span(tree)) from None
            return tree

    def with_size(self, tree: Tree, called: CallTree, op: OpDef, error: FusecError) -> FusecError:
        """Return the error of a call that lacks a size, suggesting the line with a dim for it.

        The dim is the last one that is in no operand. called: the call, its tensor first.
        """
        words = {a.keyword.text for a in called.arguments if a.keyword is not None}
        made = [a.value for a in called.arguments if a.keyword is None]
        needed = (p for p in op.params[len(made) :] if p.default is REQUIRED)
        lacking = next((p for p in needed if p.name not in words), None)
        alone = [p for p in needed if p.name not in words] == []
        if lacking is not None and lacking.kind == "axis" and alone:
            at = called.start
            last = Argument(Name(lacking.name, at, at), Literal(-1, at, at))
            name = Name(op.name, at, at)
            call = replace(called, name=name, arguments=(*called.arguments, last))
            return self.with_part(tree, call, error, "for the last dim", rule=signature(op))
        if lacking is None or lacking.kind != "size":
            return error
        values = [self._scope.meaning(n) for part in made for n in frameworks.names_in(part)]
        used = {s for v in values if isinstance(v, Value) for e in v.shape for s in e.symbols}
        free = [name for name in self._scope.dims if name not in used]
        why = "shapes are known before the data"
        if not free:
            return error.changed(help=f"{why}: declare a dim, as in `K: 8`, and name it here")
        if len(free) > 1:
            named = ", ".join(f"`{name}`" for name in free)
            named = f", one of {named}" if len(free) < 5 else ""
            help = f"{why}: name the dim that is `{lacking.name}`{named}"
            return error.changed(help=help)
        at = called.start
        arguments = (
            *called.arguments,
            Argument(Name(lacking.name, at, at), Name(free[-1], at, at)),
        )
        if op.params[len(called.arguments)] is lacking:
            arguments = (*called.arguments, Argument(None, Name(free[-1], at, at)))
        call = replace(called, name=Name(op.name, at, at), arguments=arguments)
        return self.with_part(tree, call, error, why)

    def _without_attribute(self, tree: Name, *, accepted_only: bool = True) -> Tree:
        """Return `x.T` rewritten for fusec, and other names unchanged."""
        owner, _, name = tree.text.rpartition(".")
        if not owner or self._scope.knows(tree.text):
            return tree
        operand = self._without_attribute(Name(owner, tree.start, tree.start + len(owner)))
        known = self._scope.knows(owner) or not isinstance(operand, Name)
        entry = find("torch.Tensor", name) if known else None
        meaning = self._scope.meaning(owner)
        root, *chain = owner.split(".")
        if isinstance(operand, CallTree) and {*chain} <= OF_ONE_RANK:
            meaning = self._scope.meaning(root)
        rank = len(meaning.type.shape or ()) if isinstance(meaning, Value) else 2
        if name == "T" and rank == 1:
            return operand  # as in PyTorch
        if name == "T" and rank > 2:
            return frameworks.reversed_dims(operand, rank, tree)
        if entry is None or not entry.expressions or name not in ATTRIBUTES:
            return tree
        if accepted_only and not frameworks.is_exact(entry):
            return tree
        given = {entry.parameters[0].name: operand}
        return frameworks.substituted(frameworks.parsed(entry.expressions[0]), given, tree)
