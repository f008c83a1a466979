"""Calls in op lines by other frameworks' names: taken where fusec has them, else what to write."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from fusec.codes.calls import MISSING_ARGUMENT, RESULT_COUNT
from fusec.codes.names import DEFINED_TWICE, DTYPE_CALLED, METHOD_CALL, UNKNOWN_DTYPE
from fusec.diagnostics import FusecError, Guess, Span, Unsupported
from fusec.ir.dtype import DTYPES
from fusec.ir.dtype import find as find_dtype
from fusec.ir.graph import Type, Value
from fusec.ir.op import REQUIRED, OpDef
from fusec.ops import TABLE
from fusec.ops.arguments import Miscounted, parameter_called, signature
from fusec.ops.find import near_operation, not_ours
from fusec.ops.frameworks import Entry, find, find_bare, find_dotted, method_entry
from fusec.ops.frameworks.entry import PAIRS, PARTS
from fusec.parse import frameworks
from fusec.parse.numbers import number_in
from fusec.parse.pasted import Pasted
from fusec.parse.scope import Scope
from fusec.parse.sizes import NotASize
from fusec.parse.source import Source
from fusec.parse.translation import part_of, translated
from fusec.parse.trees import (
    Argument,
    CallTree,
    Items,
    Literal,
    Name,
    OpLine,
    String,
    Subscript,
    Tree,
)
from fusec.parse.writes import Write, writes_in


class OurWords:
    """Puts calls of a file into fusec's words."""

    def __init__(
        self,
        source: Source,
        scope: Scope,
        inputs: Sequence[Value],
        hints: Callable[[], Mapping[str, int]],
    ) -> None:
        """Bind trees of `source` to names of `scope`; hints: returns the default sizes."""
        self._source, self._scope, self._inputs = source, scope, inputs
        self._pasted = Pasted(scope, self._span, inputs, hints)
        self.line: OpLine | None = None
        """The line that is being read: errors say how the whole of it is written."""

    def _span(self, tree: Tree) -> Span:
        return self._source.span(tree.start, tree.end)

    def line_in_ours(self, line: OpLine) -> OpLine:
        """Return a line with all that other frameworks and Python have in fusec's words."""
        made = self._pasted.line(line)
        return replace(made, tree=self._rewritten(made.tree, {}))

    def python(self, line: OpLine, twice: Mapping[str, FusecError]) -> tuple[OpLine, FusecError]:
        """Return a line of Python's as fusec has it, with the error that says how to write it.

        twice: the errors of names that the line gives another value, as Python's lines do.
        """
        whole = self.line_in_ours(line)
        error = line.told or self._foreign_part() or next(iter(twice.values()))
        names = [self._free(n) if n.text in twice else n for n in whole.names]
        for old, new in zip(whole.names, names, strict=True):
            if old.text != new.text:
                self._pasted.renamed[old.text] = new
        whole = replace(whole, names=tuple(names), told=None)
        help = ", and ".join([f"write {self._lines_text(whole)}", *self._pasted.missing])
        if line.told is not None and line.told.diagnostic.help is not None:
            help = f"{line.told.diagnostic.help}: {help}"
        for old in twice:
            new = self._pasted.renamed[old].text
            help += f", and `{new}` for `{old}` in the lines below"
            if line.told is not None and any(value.name == old for value in self._inputs):
                help += f"; `- {new}: {{alias: {old}}}` under `outputs:` writes to the input"
        return whole, error.changed(help=help)

    def overwriting(
        self, line: OpLine, below: Collection[str]
    ) -> tuple[OpLine | None, FusecError] | None:
        """Return the error of a line that writes into a value which is read afterwards, else None.

        With it is the line as fusec has it, None where two lines are needed. below: the names that
        the lines below and the outputs use.
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
            new, lines = line.names[0], _line_text(whole)
            made = replace(whole, told=None)
        else:
            new = self._free(write.name)
            call = self.line_in_ours(OpLine((new,), write.call))
            rest = _replaced(line.tree, write.call, new)
            self._pasted.renamed[old] = new
            lines = f"{_line_text(call)}, and in this line "
            lines += _line_text(self.line_in_ours(replace(line, tree=rest)))
        self._pasted.renamed[old] = new
        return made, FusecError(
            f"{write.said} changes `{old}`, which is read afterwards",
            span=self._span(write.place),
            help=f"values do not change: write {lines}, and `{new.text}` for `{old}` in the lines "
            "below",
            code=DEFINED_TWICE,
        )

    def static(self, line: OpLine) -> FusecError | None:
        """Return the error of a line that only names a type or sizes; else None."""
        whole = self.line_in_ours(line)
        part = self._foreign_part()
        named = len(line.names) == 1 and isinstance(whole.tree, (Name, Items))
        several = isinstance(whole.tree, Items) and len(whole.tree.items) == len(line.names)
        if part is None or not (named or several):
            return None
        trees = whole.tree.items if several and isinstance(whole.tree, Items) else [whole.tree]
        pairs = zip(line.names, trees, strict=True)
        found = {n.text: t for n, t in pairs if n.text != "_" and _text(t) != n.text}
        self._pasted.static |= found
        told = " and ".join(f"`{_text(t)}` for `{n}`" for n, t in found.items())
        told = f"remove the line, and write {told}" if told else "remove the line"
        return (line.told or part).changed(help=told)

    def plain(self, line: OpLine) -> OpLine | None:
        """Return a line with its constants and types in fusec's words.

        None for one with parts that Python computes, or in a form of Python's.
        """
        found = self._pasted.line(line)
        return None if line.told is not None or self._pasted.first is not None else found

    def _foreign_part(self) -> FusecError | None:
        part = self._pasted.first
        if part is None:
            return None
        text = self._source.text[part.start : part.end]
        kind = "attributes" if isinstance(part, (Name, Subscript)) else "Python"
        message = f"op lines have no {kind}: `{text}`"
        if isinstance(part, Name) and part.text in self._pasted.static:
            message = f"`{text}` is not a value of the file"
        return FusecError(message, span=self._span(part), code=METHOD_CALL)

    def _free(self, name: Name) -> Name:
        """Return a name like `name` that nothing in the file has."""
        stem, _, last = name.text.rpartition("_")
        stem, number = (stem, int(last) + 1) if stem and last.isdecimal() else (name.text, 2)
        while self._scope.knows(f"{stem}_{number}") or f"{stem}_{number}" in self._scope.later:
            number += 1
        return replace(name, text=f"{stem}_{number}")

    def read(self, line: OpLine) -> Tree:
        """Return the expression of a line, with calls by names that fusec accepts in its words.

        Those are aliases, and methods, attributes and names with a prefix (`torch.exp`) that have
        an exact equivalent. Other calls stay as they are: binding them raises the error.
        """
        self.line = line
        tree = self._rewritten(line.tree, {}, accepted_only=True)
        self.line = replace(line, tree=tree)
        return tree

    def with_part(self, tree: Tree, made: Tree, error: FusecError, why: str) -> FusecError:
        """Return an error of a part of the line with the line that has another part there."""
        line = self._line_with(tree, made)
        help = f"{why}: write {_line_text(line)}" if why else f"write {_line_text(line)}"
        return error.changed(help=help, guess=Guess(line, why or error.diagnostic.help))

    def unquoted(self, tree: String, error: FusecError) -> FusecError:
        """Return the error of a string where a value is expected with the line without quotes."""
        why = "dtypes and names are not quoted"
        return self.with_part(tree, Name(tree.text, tree.start, tree.end), error, why)

    def named(self, tree: CallTree, error: FusecError) -> FusecError:
        """Return the error of a call whose results are not all named with the line that does."""
        if not isinstance(error, Miscounted) or self.line is None or self.line.tree is not tree:
            return error
        names = list(self.line.names[: error.results])
        unused = Name("_", tree.start, tree.start)
        names += [unused] * (error.results - len(names))
        help = error.diagnostic.help
        line = replace(self.line, names=tuple(names))
        told = f"write {_line_text(line)}" + (f"; {help}" if help else "")
        return error.changed(help=told, guess=Guess(line, help))

    def of_pair(self, tree: CallTree, op: OpDef) -> FusecError:
        """Return the error for the two results that PyTorch's `max` and `min` have along a dim."""
        places = PAIRS[op.name][1]
        assert self.line is not None
        first, second = self.line.names
        lines: list[str] = []
        for name, word in ((first, op.name), (second, places)):
            if name.text != "_":
                call = replace(tree, name=Name(word, tree.start, tree.start))
                lines.append(_line_text(OpLine((name,), self._rewritten(call, {}))))
        return FusecError(
            f"`{op.name}` returns 1 value, but the line assigns 2",
            help=f"`{places}` returns the indices: write {' and '.join(lines)}",
            code=RESULT_COUNT,
        )

    def in_our_order(self, op: OpDef, tree: CallTree) -> CallTree:
        """Return a call in PyTorch's order of arguments in fusec's, where it can be no other.

        `gather(x, 1, index)`: the dim is a literal, in the place where fusec has a tensor of
        integers, and stands before something that is no literal.
        """
        entry, arguments = find("torch", op.name), tree.arguments
        if entry is None or len(entry.parameters) < 3 or entry.parameters[1].name != "dim":
            return tree
        plain = len(arguments) > 2 and not any(a.keyword for a in arguments[:3])
        ours = len(op.params) > 2 and op.params[1].is_operand and op.params[1].name != "dim"
        if entry.kind != "other" or not plain or not ours:
            return tree
        second, third = (_integer(a.value) for a in arguments[1:3])
        if second is None or third is not None:
            return tree
        try:
            made = self._in_our_words(entry, tree)
        except FusecError:
            return tree
        return made if isinstance(made, CallTree) and made.name.text == op.name else tree

    def on_its_own_line(self, tree: CallTree, count: int) -> str:
        """Return how to write a call of several results of which one is used in a line."""
        return f"write {self._in_two_lines(tree, tree, count)}"

    def _in_two_lines(self, tree: CallTree, made: CallTree, count: int) -> str:
        """Return the line of `made`, which stands for a part of several results, and the rest."""
        whole = tree if self.line is None else self.line.tree
        part, place = _selected(whole, tree, count)
        names = [Name("_", tree.start, tree.start)] * count
        if self.line is not None and part is whole and len(self.line.names) == 1:
            names[place] = self.line.names[0]
            return _line_text(OpLine((*names,), self._rewritten(made, {})))
        names[place] = self._free(Name(made.name.text.rpartition(".")[2], tree.start, tree.start))
        alone = _line_text(OpLine((*names,), self._rewritten(made, {})))
        return f"{alone}, and in this line {self._whole(part, names[place])}"

    def unknown(self, tree: CallTree, error: FusecError) -> FusecError:
        """Return the error for a name that is no operation, with the line to write instead."""
        name = tree.name.text
        if name in DTYPES:
            help = f"to convert a tensor write `cast(x, {name})`"
            return FusecError(
                f"`{name}` is a dtype, not an operation", help=help, code=DTYPE_CALLED
            )
        if name.startswith("self."):
            help = "weights of a module are inputs, and its layers operations: `linear(x, w, b)`"
            layer = replace(tree, name=replace(tree.name, text=name.rpartition(".")[2]))
            entry = find_bare(layer.name.text)
            written = None if entry is None else self._written(entry, tree, layer)
            help = f"{help}; if it is `{layer.name.text}`, write {written}" if written else help
            return error.changed(help=help)
        entry, called = self._looked_up(tree)
        if called is not tree or name.startswith("."):
            return self._method(entry, tree, called)
        if entry is None:
            return error
        return self._misfit(entry, called) or not_ours(
            name, entry, self._written(entry, tree, called)
        )

    def _misfit(self, entry: Entry, called: CallTree) -> FusecError | None:
        """Return the error of a call that fusec has no equivalent of with these arguments."""
        if entry.kind == "other":
            try:
                self._in_our_words(entry, called)
            except Unsupported as error:
                return error
            except FusecError:
                return None
        return None

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
        """Return whether `owner` of `name` is a value: a dim `F` leaves `F.silu` to PyTorch."""
        if not self._scope.knows(owner):
            return False
        return not self._scope.is_dim(owner) or find_dotted(name) is None

    def _method(self, entry: Entry | None, tree: CallTree, called: CallTree) -> FusecError:
        if _is_uncalled(tree):
            return _uncalled(tree.name.text)
        name = tree.name.text.rpartition(".")[2]
        names = () if self.line is None or self.line.tree is not tree else self.line.names
        if name in PAIRS and len(names) == 2:
            return self.of_pair(called, TABLE[name])
        message = f"`{tree.name.text}` is not a method that op lines have"
        if entry is None:
            help = "operations are called with operands, as in `relu(x)`"
            owner, _, name = tree.name.text.rpartition(".")
            near = near_operation(name, len(called.arguments))
            with contextlib.suppress(FusecError):
                made = (
                    called.arguments[0],
                    Argument(None, replace(tree.name, text=str(find_dtype(name)))),
                )
                cast = CallTree(replace(tree.name, text="cast"), made, tree.start, tree.end)
                return FusecError(
                    message, help=f"write {self._whole(tree, cast)}", code=METHOD_CALL
                )
            help = f"did you mean `{owner}.{near}`?" if near else help
            return FusecError(message, help=help, code=METHOD_CALL)
        misfit = self._misfit(entry, called)
        if misfit is not None:
            return misfit
        written = self._written(entry, tree, called)
        if entry.kind == "unsupported":
            return not_ours(tree.name.text, entry, written)
        help = f"write {written}" if written else f"the form is `{entry.expressions[0]}`"
        help += f"; {entry.note}" if entry.note else ""
        return FusecError(message, help=help, code=METHOD_CALL)

    def attribute(self, tree: Name, owner: str, name: str) -> FusecError:
        """Return the error for `x.T`, with what to write."""
        entry = find("torch.Tensor", name)
        help = "operations are called with operands, as in `relu(x)`"
        if name in ("values", "indices"):
            help = "name both results in the line that makes them: `values, indices = topk(x, k)`"
            message = f"op lines have no attributes: `{tree.text}`"
            return FusecError(message, span=self._span(tree), help=help, code=METHOD_CALL)
        method = method_entry(name)
        if method is not None and method.kind == "unsupported" and not method.expressions:
            return not_ours(tree.text, method).at(self._span(tree))
        if method is not None and name not in _ATTRIBUTES:
            return _uncalled(tree.text).at(self._span(tree))
        if entry is not None:
            help = entry.note
        if entry is not None and entry.expressions:
            text = self._whole(tree, self._without_attribute(tree, accepted_only=False))
            help = f"write {text}" + (f"; {entry.note}" if entry.note else "")
        message = f"op lines have no attributes: `{tree.text}`"
        return FusecError(message, span=self._span(tree), help=help, code=METHOD_CALL)

    def reordered(self, op: OpDef, tree: CallTree, error: FusecError) -> FusecError:
        """Return an error with the line to write, if the call has the arguments of PyTorch."""
        entry, told = find("torch", op.name), error.diagnostic
        if entry is None or entry.kind != "other":
            return error
        misplaced = isinstance(error, NotASize) or error.code is UNKNOWN_DTYPE
        if not misplaced and told.help not in (None, signature(op)):
            return error
        first = entry.expressions[0].partition("(")[0]
        words = {a.keyword.text for a in tree.arguments if a.keyword is not None}
        known = {p.name for p in op.params}
        if first != op.name and all(parameter_called(op, word) in known for word in words):
            return error  # the call has nothing that is PyTorch's alone
        written = self._written(entry, tree, tree)
        if written is None or _text(tree) in written:
            return error
        help = f"if you mean {entry.title}, write {written}"
        try:
            line = self._line_with(tree, self._in_our_words(entry, tree))
        except FusecError:
            return error
        return error.changed(help=help, guess=Guess(line, told.help))

    def mended(
        self, tree: Tree, op: OpDef, given: Mapping[str, Tree], error: FusecError
    ) -> FusecError:
        """Return the error of a call with the line to write, where the call to write is known.

        given: the arguments by the names of the operation's parameters.
        """
        instead = error.instead
        if instead is None or error.operation != op.name:
            return error
        trees = {f"_{name}_": part for name, part in given.items()}
        for name, part in given.items():
            for k, item in enumerate(part.items if isinstance(part, Items) else ()):
                trees[f"_{name}_{k}_"] = item
        places = _Places()

        def of(text: str) -> Tree:
            parsed = frameworks.parsed(text.format_map(places))
            return frameworks.substituted(parsed, trees, tree)

        made = of(instead.text) if instead.text else None
        if made is None:
            changed = {**given, **{name: of(text) for name, text in instead.arguments.items()}}
            is_call = isinstance(tree, CallTree)
            made = (
                _with_arguments(tree, op, changed)
                if is_call
                else frameworks.rebuilt(tree, [changed[name] for name in given])
            )
        line = self._line_with(tree, made)
        guess = Guess(line, instead.rule, instead.declares)
        return error.changed(help=instead.help(_line_text(line)), guess=guess)

    def _in_our_words(self, entry: Entry, called: CallTree) -> Tree:
        return translated(entry, called, self._type_of)

    def _type_of(self, tree: Tree) -> Type | None:
        """Return the type of a value, or of the first of a list."""
        if isinstance(tree, Items) and tree.items:
            return self._type_of(tree.items[0])
        meaning = self._scope.meaning(tree.text) if isinstance(tree, Name) else None
        return meaning.type if isinstance(meaning, Value) else None

    def _lines_text(self, line: OpLine) -> str:
        """Return a line as it is written, and before it the call whose results one is used of."""
        found = _first_selected(line.tree, self._pasted.count_of)
        if found is None:
            return _line_text(line)
        part, call, place = found
        names = [Name("_", call.start, call.start)] * self._pasted.count_of(call)
        names[place] = self._free(Name(call.name.text, call.start, call.start))
        rest = replace(line, tree=_replaced(line.tree, part, names[place]))
        return f"{_line_text(OpLine((*names,), call))}, and in this line {_line_text(rest)}"

    def _written(self, entry: Entry, tree: CallTree, called: CallTree) -> str | None:
        """Return the line with a call in fusec's words; None where its arguments do not fit."""
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
                _line_text(OpLine((n,), part_of(entry, text, called, self._type_of)))
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
        return _line_text(replace(named, tree=self._rewritten(tree, {id(tree): made})))

    def _whole(self, tree: Tree, made: Tree) -> str:
        """Return the line that is being read with `made` in the place of one of its parts."""
        return f"`{_text(made)}`" if self.line is None else _line_text(self._line_with(tree, made))

    def _line_with(self, tree: Tree, made: Tree) -> OpLine:
        """Return the line that is being read with `made` in the place of one of its parts."""
        line = self.line or OpLine((Name("y", tree.start, tree.start),), tree)
        return replace(line, tree=self._rewritten(line.tree, {id(tree): made}))

    def _rewritten(
        self, tree: Tree, made: Mapping[int, Tree], *, accepted_only: bool = False
    ) -> Tree:
        """Return an expression with all that other frameworks name in fusec's words.

        made: what stands in the place of trees, by their ids. accepted_only: rewrites only names
        that fusec accepts, and raises the error of a call whose arguments do not fit.
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
        if entry is None or not entry.expressions or _is_uncalled(tree):
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
        """Return the error of a call that lacks a size with the line that has a dim for it.

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
            return self.with_part(tree, call, error, "for the last dim")
        if lacking is None or lacking.kind != "size":
            return error
        values = [self._scope.meaning(n) for part in made for n in frameworks.names_in(part)]
        used = {s for v in values if isinstance(v, Value) for e in v.shape for s in e.symbols}
        free = [name for name in self._scope.dims if name not in used]
        why = "shapes are known before the data"
        if not free:
            return error.changed(help=f"{why}: declare a dim, as in `K: 8`, and name it here")
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
        """Return `x.T` in fusec's words, and other names as they are."""
        owner, _, name = tree.text.rpartition(".")
        if not owner or self._scope.knows(tree.text):
            return tree
        operand = self._without_attribute(Name(owner, tree.start, tree.start + len(owner)))
        known = self._scope.knows(owner) or not isinstance(operand, Name)
        entry = find("torch.Tensor", name) if known else None
        meaning = self._scope.meaning(owner)
        root, *chain = owner.split(".")
        if isinstance(operand, CallTree) and {*chain} <= _OF_ONE_RANK:
            meaning = self._scope.meaning(root)
        rank = len(meaning.type.shape or ()) if isinstance(meaning, Value) else 2
        if name == "T" and rank == 1:
            return operand  # as in PyTorch
        if name == "T" and rank > 2:
            return frameworks.reversed_dims(operand, rank, tree)
        if entry is None or not entry.expressions or name not in _ATTRIBUTES:
            return tree
        if accepted_only and not frameworks.is_exact(entry):
            return tree
        given = {entry.parameters[0].name: operand}
        return frameworks.substituted(frameworks.parsed(entry.expressions[0]), given, tree)


class _Places(dict[str, str]):
    """The names that stand for arguments in an expression: none that a file could have."""

    def __missing__(self, name: str) -> str:
        return f"_{name}_"


def _with_arguments(tree: Tree, op: OpDef, given: Mapping[str, Tree]) -> CallTree:
    """Return a call of an operation with these arguments, positional up to one left out."""
    made: list[Argument] = []
    for place, param in enumerate(op.params):
        if param.name in given:
            word = None if place == len(made) else Name(param.name, tree.start, tree.start)
            made.append(Argument(word, given[param.name]))
    name = Name(op.name, tree.start, tree.start)
    return CallTree(name, tuple(made), tree.start, tree.end)


_OF_ONE_RANK = frozenset({"T", "mT", "H", "mH", "real", "imag"})
_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "real", "imag", "shape", "ndim"})
"""What PyTorch's tensors have without a call."""


def _integer(tree: Tree) -> int | None:
    """Return the integer that an expression is literally."""
    value = number_in(tree)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_uncalled(tree: CallTree) -> bool:
    """Return whether a method of an expression stands without its call: `(a + b).sum`."""
    name = tree.name.text
    return name.startswith(".") and tree.end == tree.name.end and name[1:] not in _ATTRIBUTES


def _uncalled(text: str) -> FusecError:
    message = f"`{text}` is a method, which is called"
    return FusecError(message, help=f"write `{text}()`, with its arguments", code=METHOD_CALL)


def _replaced(tree: Tree, old: Tree, new: Tree) -> Tree:
    """Return an expression with another one in the place of one of its parts."""
    if tree is old:
        return new
    parts = [_replaced(part, old, new) for part in frameworks.parts_of(tree)]
    return frameworks.rebuilt(tree, parts)


def _first_selected(
    tree: Tree, count_of: Callable[[CallTree], int]
) -> tuple[Tree, CallTree, int] | None:
    """Return a part that takes one result of a call, the call and the place: `call[1]`."""
    if isinstance(tree, Subscript) and isinstance(tree.base, CallTree) and len(tree.keys) == 1:
        count, place = count_of(tree.base), _integer(tree.keys[0])
        if count > 1 and place is not None and -count <= place < count:
            return tree, tree.base, place % count
    found = (_first_selected(part, count_of) for part in frameworks.parts_of(tree))
    return next((f for f in found if f is not None), None)


def _selected(whole: Tree, call: CallTree, count: int) -> tuple[Tree, int]:
    """Return the part of an expression that takes one of a call's results, and which: `call[1]`.

    The call itself and 0 where it is used as one value.
    """
    for part in frameworks.parts_of(whole):
        if part is call and isinstance(whole, Subscript) and len(whole.keys) == 1:
            place = _integer(whole.keys[0])
            if place is not None and -count <= place < count:
                return whole, place % count
        found = _selected(part, call, count)
        if found[0] is not call:
            return found
    return call, 0


def _line_text(line: OpLine) -> str:
    return f"`{', '.join(n.text for n in line.names)} = {_text(line.tree)}`"


def _text(tree: Tree) -> str:
    return frameworks.text_of(tree, {})
