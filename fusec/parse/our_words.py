"""Calls in op lines by other frameworks' names: taken where fusec has them, else what to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fusec.codes.names import DTYPE_CALLED, METHOD_CALL
from fusec.diagnostics import FusecError, Span
from fusec.ir.dtype import DTYPES
from fusec.ir.op import OpDef
from fusec.ops import TABLE
from fusec.ops.arguments import parameter_called, signature
from fusec.ops.find import not_ours
from fusec.ops.frameworks import Entry, find, find_bare, find_dotted, method_entry
from fusec.parse import frameworks
from fusec.parse.pasted import Pasted
from fusec.parse.scope import Scope
from fusec.parse.sizes import NotASize
from fusec.parse.source import Source
from fusec.parse.tokens import unexpected_sign
from fusec.parse.trees import (
    Argument,
    CallTree,
    Items,
    Literal,
    Name,
    OpLine,
    Quoted,
    Subscript,
    Tree,
)


class OurWords:
    """Puts calls of a file into fusec's words."""

    def __init__(self, source: Source, scope: Scope) -> None:
        """Bind trees of `source` to names of `scope`."""
        self._source, self._scope = source, scope
        self._pasted = Pasted(scope)
        self.line: OpLine | None = None
        """The line that is being read: errors say how the whole of it is written."""

    def _span(self, tree: Tree) -> Span:
        return self._source.span(tree.start, tree.end)

    def line_in_ours(self, line: OpLine) -> OpLine:
        """Return a line with all that other frameworks and Python have in fusec's words."""
        made = self._pasted.line(line)
        return replace(made, tree=self._ours(made.tree, {}))

    def python(self, line: OpLine, twice: Mapping[str, FusecError]) -> tuple[OpLine, FusecError]:
        """Return a line of Python's as fusec has it, with the error that says how to write it.

        twice: the errors of names that the line gives another value, as Python's lines do.
        """
        whole = self.line_in_ours(line)
        error = line.told or self._foreign_part() or next(iter(twice.values()))
        names = [self._free(n) if n.text in twice else n for n in whole.names]
        static = self._static(line, whole.tree)
        if static:
            self._pasted.static |= static
            told = " and ".join(f"`{_text(t)}` for `{n}`" for n, t in static.items())
            return whole, error.changed(help=f"leave the line out, and write {told}")
        for old, new in zip(whole.names, names, strict=True):
            if old.text != new.text:
                self._pasted.renamed[old.text] = new
        whole = replace(whole, names=tuple(names), told=None)
        help = f"write {_line_text(whole)}"
        for old in twice:
            help += f", and `{self._pasted.renamed[old].text}` for `{old}` in the lines below"
        return whole, error.changed(help=help)

    def is_python(self, line: OpLine) -> bool:
        """Return whether a line has parts that Python computes, or is a form of Python's."""
        self._pasted.line(line)
        return line.told is not None or self._pasted.first is not None

    def _foreign_part(self) -> FusecError | None:
        part = self._pasted.first
        if part is None:
            return None
        if isinstance(part, Quoted):
            return unexpected_sign(self._source, part.start, part.end)
        text = self._source.text[part.start : part.end]
        kind = "attributes" if isinstance(part, (Name, Subscript)) else "Python"
        message = f"op lines have no {kind}: `{text}`"
        return FusecError(message, span=self._span(part), code=METHOD_CALL)

    def _static(self, line: OpLine, tree: Tree) -> dict[str, Tree]:
        """Return what names of a line stand for that takes a type or sizes from a value."""
        if isinstance(tree, Name) and len(line.names) == 1:
            return {line.names[0].text: tree}
        if not isinstance(tree, Items):
            return {}
        if len(line.names) == 1:
            return {line.names[0].text: tree}
        if len(line.names) != len(tree.items):
            return {}
        found = zip(line.names, tree.items, strict=True)
        return {n.text: t for n, t in found if n.text != "_" and _text(t) != n.text}

    def _free(self, name: Name) -> Name:
        """Return a name like `name` that nothing in the file has."""
        number = 2
        while self._scope.knows(f"{name.text}_{number}") or (
            f"{name.text}_{number}" in self._scope.later
        ):
            number += 1
        return replace(name, text=f"{name.text}_{number}")

    def alias(self, tree: CallTree) -> Tree | None:
        """Return a call by another name of an operation in fusec's words; None of other calls."""
        entry = None if tree.name.text in DTYPES else find_bare(tree.name.text)
        if entry is None or entry.kind != "alias":
            return None
        try:
            return _in_our_words(entry, tree)
        except FusecError as error:
            raise error.at(self._span(tree)) from None

    def unknown(self, tree: CallTree, error: FusecError) -> FusecError:
        """Return the error for a name that is no operation, with the line to write instead."""
        name = tree.name.text
        if name in DTYPES:
            help = f"to convert a tensor write `cast(x, {name})`"
            return FusecError(
                f"`{name}` is a dtype, not an operation", help=help, code=DTYPE_CALLED
            )
        entry, called = self._looked_up(tree)
        if called is not tree or name.startswith("."):
            return self._method(entry, tree, called)
        return error if entry is None else not_ours(name, entry, self._written(entry, tree, called))

    def _looked_up(self, tree: CallTree) -> tuple[Entry | None, CallTree]:
        """Return a call's entry, and the call with the tensor of a method as first argument."""
        name, start = tree.name.text, tree.name.start
        owner, _, method = name.rpartition(".")
        if name.startswith("."):
            return method_entry(method), tree
        if owner and self._scope.knows(owner):
            operand = Argument(None, Name(owner, start, start + len(owner)))
            called = CallTree(tree.name, (operand, *tree.arguments), tree.start, tree.end)
            return method_entry(method), called
        return (find_dotted(name) if owner else find_bare(name)), tree

    def _method(self, entry: Entry | None, tree: CallTree, called: CallTree) -> FusecError:
        message = f"op lines have no methods: `{tree.name.text}`"
        if entry is None:
            help = "operations are called with operands, as in `relu(x)`"
            return FusecError(message, help=help, code=METHOD_CALL)
        written = self._written(entry, tree, called)
        if entry.kind == "unsupported":
            return not_ours(tree.name.text, entry, written)
        help = f"write {written or f'`{entry.expressions[0]}`'}"
        help += f"; {entry.note}" if entry.note else ""
        return FusecError(message, help=help, code=METHOD_CALL)

    def attribute(self, tree: Name, owner: str, name: str) -> FusecError:
        """Return the error for `x.T`, with what to write."""
        entry = find("torch.Tensor", name)
        help = "operations are called with operands, as in `relu(x)`"
        if entry is not None:
            help = entry.note
        if entry is not None and entry.expressions:
            text = self._whole(tree, self._without_attribute(tree))
            help = f"write {text}" + (f"; {entry.note}" if entry.note else "")
        message = f"op lines have no attributes: `{tree.text}`"
        return FusecError(message, span=self._span(tree), help=help, code=METHOD_CALL)

    def reordered(self, op: OpDef, tree: CallTree, error: FusecError) -> FusecError:
        """Return an error with the line to write, if the call has the arguments of PyTorch."""
        entry, told = find("torch", op.name), error.diagnostic
        if entry is None or entry.kind != "other":
            return error
        if not isinstance(error, NotASize) and told.help not in (None, signature(op)):
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
        return error.changed(help=help)

    def _written(self, entry: Entry, tree: CallTree, called: CallTree) -> str | None:
        """Return the line with a call in fusec's words; None where its arguments do not fit."""
        if not entry.expressions:
            return None
        try:
            return self._whole(tree, _in_our_words(entry, called))
        except FusecError:
            return None

    def _whole(self, tree: Tree, made: Tree) -> str:
        """Return the line that is being read with `made` in the place of one of its parts."""
        if self.line is None:
            return f"`{_text(made)}`"
        whole = self._ours(self.line.tree, {id(tree): made})
        return _line_text(replace(self.line, tree=whole))

    def _ours(self, tree: Tree, made: Mapping[int, Tree]) -> Tree:
        """Return an expression with all that other frameworks name in fusec's words."""
        parts = [self._ours(part, made) for part in frameworks.parts_of(made.get(id(tree), tree))]
        tree = frameworks.rebuilt(made.get(id(tree), tree), parts)
        if isinstance(tree, Name):
            return self._without_attribute(tree)
        if not isinstance(tree, CallTree) or tree.name.text in (*TABLE, *DTYPES):
            return tree
        entry, called = self._looked_up(tree)
        taken = called is tree and "." not in tree.name.text
        if entry is None or not entry.expressions or (entry.kind == "alias" and taken):
            return tree
        try:
            return _in_our_words(entry, called)
        except FusecError:
            return tree

    def _without_attribute(self, tree: Name) -> Tree:
        owner, _, name = tree.text.rpartition(".")
        known = owner and self._scope.knows(owner) and not self._scope.knows(tree.text)
        entry = find("torch.Tensor", name) if known else None
        if entry is None or not entry.expressions:
            return tree
        given = {entry.parameters[0].name: Name(owner, tree.start, tree.start + len(owner))}
        return frameworks.substituted(frameworks.parsed(entry.expressions[0]), given, tree)


def _in_our_words(entry: Entry, called: CallTree) -> Tree:
    given = frameworks.bind(
        entry,
        [a.value for a in called.arguments if a.keyword is None],
        {a.keyword.text: a.value for a in called.arguments if a.keyword is not None},
        _listed,
    )
    made = frameworks.instantiate(entry, given, _value_of)
    return frameworks.substituted(made, given, called)


def _line_text(line: OpLine) -> str:
    return f"`{', '.join(n.text for n in line.names)} = {_text(line.tree)}`"


def _text(tree: Tree) -> str:
    return frameworks.text_of(tree, {})


def _listed(trees: Sequence[Tree]) -> Tree:
    """Return the argument of a variadic parameter: one list as it is, or a list of all."""
    if len(trees) == 1 and isinstance(trees[0], Items):
        return trees[0]
    return Items(tuple(trees), trees[0].start, trees[-1].end)


def _value_of(tree: Tree) -> Any:
    if isinstance(tree, Literal):
        return tree.value
    return tree.text if isinstance(tree, Name) else frameworks.OPAQUE
