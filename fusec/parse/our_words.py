"""Calls in op lines by other frameworks' names: taken where fusec has them, else what to write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusec.diagnostics import FusecError, Span
from fusec.ir.dtype import DTYPES
from fusec.ir.op import OpDef
from fusec.ops.arguments import parameter_called, signature
from fusec.ops.find import not_ours
from fusec.ops.frameworks import Entry, find, find_bare, find_dotted, method_entry
from fusec.parse import frameworks
from fusec.parse.scope import Scope
from fusec.parse.sizes import NotASize
from fusec.parse.source import Source
from fusec.parse.trees import Argument, CallTree, Items, Literal, Name, Tree

Names = Sequence[str] | None
"""The results that an op line names, None for a call inside of another."""


class OurWords:
    """Puts calls of a file into fusec's words."""

    def __init__(self, source: Source, scope: Scope) -> None:
        """Bind trees of `source` to names of `scope`."""
        self._source, self._scope = source, scope

    def _span(self, tree: Tree) -> Span:
        return self._source.span(tree.start, tree.end)

    def alias(self, tree: CallTree) -> Tree | None:
        """Return a call by another name of an operation in fusec's words; None of other calls."""
        entry = None if tree.name.text in DTYPES else find_bare(tree.name.text)
        if entry is None or entry.kind != "alias":
            return None
        try:
            return _in_our_words(entry, tree, tree.arguments)
        except FusecError as error:
            raise error.at(self._span(tree)) from None

    def unknown(self, tree: CallTree, error: FusecError, names: Names) -> FusecError:
        """Return the error for a name that is no operation, with the line to write instead."""
        name = tree.name.text
        if name in DTYPES:
            help = f"to convert a tensor write `cast(x, {name})`"
            return FusecError(f"`{name}` is a dtype, not an operation", help=help)
        owner, _, method = name.rpartition(".")
        if owner and self._scope.knows(owner):
            return self._method(tree, owner, method, names)
        entry = find_dotted(name) if owner else find_bare(name)
        return error if entry is None else not_ours(name, entry, _line(entry, tree, names))

    def _method(self, tree: CallTree, owner: str, method: str, names: Names) -> FusecError:
        entry, start = method_entry(method), tree.name.start
        message = f"op lines have no methods: `{tree.name.text}`"
        if entry is None:
            return FusecError(message, help="operations are called with operands, as in `relu(x)`")
        operand = Argument(None, Name(owner, start, start + len(owner)))
        called = CallTree(tree.name, (operand, *tree.arguments), tree.start, tree.end)
        written = _line(entry, called, names)
        if entry.kind == "unsupported":
            return not_ours(tree.name.text, entry, written)
        help = f"write {written or f'`{entry.expressions[0]}`'}"
        return FusecError(message, help=help + (f"; {entry.note}" if entry.note else ""))

    def attribute(self, tree: Name, owner: str, name: str) -> FusecError:
        """Return the error for `x.T`, with what to write."""
        entry = find("torch.Tensor", name)
        help = "operations are called with operands, as in `relu(x)`"
        if entry is not None:
            help = entry.note
        if entry is not None and entry.expressions:
            made = frameworks.parsed(entry.expressions[0])
            text = frameworks.text_of(made, {entry.parameters[0].name: owner})
            help = f"write `{text}`" + (f"; {entry.note}" if entry.note else "")
        message = f"op lines have no attributes: `{tree.text}`"
        return FusecError(message, span=self._span(tree), help=help)

    def reordered(self, op: OpDef, tree: CallTree, names: Names, error: FusecError) -> FusecError:
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
        written = _line(entry, tree, names)
        own = self._source.text[tree.start : tree.end]
        if written is None or written.strip("`").endswith(own):
            return error
        help = f"if this is {entry.title}, write {written}"
        return type(error)(told.message, span=told.span, notes=told.notes, help=help)


def _in_our_words(entry: Entry, tree: CallTree, arguments: Sequence[Argument]) -> Tree:
    given = frameworks.bind(
        entry,
        [a.value for a in arguments if a.keyword is None],
        {a.keyword.text: a.value for a in arguments if a.keyword is not None},
        _listed,
    )
    made = frameworks.instantiate(entry, given, _value_of)
    return frameworks.substituted(made, given, tree)


def _line(entry: Entry, tree: CallTree, names: Names) -> str | None:
    """Return what to write for a call of another framework; None where it does not fit."""
    if not entry.expressions:
        return None
    try:
        made = _in_our_words(entry, tree, tree.arguments)
    except FusecError:
        return None
    text = frameworks.text_of(made, {})
    return f"`{', '.join(names)} = {text}`" if names else f"`{text}`"


def _listed(trees: Sequence[Tree]) -> Tree:
    """Return the argument of a variadic parameter: one list as it is, or a list of all."""
    if len(trees) == 1 and isinstance(trees[0], Items):
        return trees[0]
    return Items(tuple(trees), trees[0].start, trees[-1].end)


def _value_of(tree: Tree) -> Any:
    if isinstance(tree, Literal):
        return tree.value
    return tree.text if isinstance(tree, Name) else frameworks.OPAQUE
