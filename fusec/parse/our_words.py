"""Calls in op lines by other frameworks' names: taken where fusec has them, else what to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import e, inf, nan, pi
from typing import Any

from fusec.codes.names import DTYPE_CALLED, METHOD_CALL, UNKNOWN_DTYPE
from fusec.diagnostics import FusecError, Span
from fusec.ir.dtype import DTYPES
from fusec.ir.op import OpDef
from fusec.ops import TABLE
from fusec.ops.arguments import parameter_called, signature
from fusec.ops.find import near_operation, not_ours
from fusec.ops.frameworks import Entry, find, find_bare, find_dotted, method_entry
from fusec.parse import frameworks
from fusec.parse.scope import Scope
from fusec.parse.sizes import NotASize
from fusec.parse.source import Source
from fusec.parse.trees import Argument, CallTree, Items, Literal, Name, OpLine, String, Tree


class OurWords:
    """Puts calls of a file into fusec's words."""

    def __init__(self, source: Source, scope: Scope) -> None:
        """Bind trees of `source` to names of `scope`."""
        self._source, self._scope = source, scope
        self.line: OpLine | None = None
        """The line that is being read: errors say how the whole of it is written."""

    def _span(self, tree: Tree) -> Span:
        return self._source.span(tree.start, tree.end)

    def read(self, line: OpLine) -> Tree:
        """Return the expression of a line, with calls by names that fusec accepts in its words.

        Those are aliases, and methods, attributes and names with a prefix (`torch.exp`) that have
        an exact equivalent. Other calls stay as they are: binding them raises the error.
        """
        tree = self._rewritten(line.tree, {}, accepted_only=True)
        self.line = replace(line, tree=tree)
        return tree

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
        message = f"`{tree.name.text}` is not a method that op lines have"
        if entry is None:
            help = "operations are called with operands, as in `relu(x)`"
            owner, _, name = tree.name.text.rpartition(".")
            near = near_operation(name, len(called.arguments))
            help = f"did you mean `{owner}.{near}`?" if near else help
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
        if method_entry(name) is not None and name not in _ATTRIBUTES:
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
        whole = self._rewritten(self.line.tree, {id(tree): made})
        return f"`{', '.join(n.text for n in self.line.names)} = {_text(whole)}`"

    def _rewritten(
        self, tree: Tree, made: Mapping[int, Tree], *, accepted_only: bool = False
    ) -> Tree:
        """Return an expression with all that other frameworks name in fusec's words.

        made: what stands in the place of trees, by their ids. accepted_only: rewrites only names
        that fusec accepts, and raises the error of a call whose arguments do not fit.
        """
        parts = [
            self._rewritten(part, made, accepted_only=accepted_only)
            for part in frameworks.parts_of(made.get(id(tree), tree))
        ]
        tree = frameworks.rebuilt(made.get(id(tree), tree), parts)
        if isinstance(tree, Name):
            constant = _CONSTANTS.get(tree.text)
            if constant is not None and not self._scope.knows(tree.text.partition(".")[0]):
                return Literal(constant, tree.start, tree.end)
            return self._without_attribute(tree, accepted_only=accepted_only)
        number = _number(tree)
        if number is not None:
            return number
        if not isinstance(tree, CallTree) or tree.name.text in (*TABLE, *DTYPES):
            return tree
        entry, called = self._looked_up(tree)
        if entry is None or not entry.expressions or _is_uncalled(tree):
            return tree
        bare = "." not in tree.name.text
        accepted = entry.kind == "alias" if bare else frameworks.is_exact(entry)
        if not accepted if accepted_only else accepted and bare:
            return tree
        try:
            return _in_our_words(entry, called)
        except FusecError as error:
            if accepted_only:
                raise error.at(self._span(tree)) from None
            return tree

    def _without_attribute(self, tree: Name, *, accepted_only: bool = True) -> Tree:
        """Return `x.T` in fusec's words, and other names as they are."""
        owner, _, name = tree.text.rpartition(".")
        if not owner or self._scope.knows(tree.text):
            return tree
        operand = self._without_attribute(Name(owner, tree.start, tree.start + len(owner)))
        known = self._scope.knows(owner) or not isinstance(operand, Name)
        entry = find("torch.Tensor", name) if known else None
        if entry is None or not entry.expressions or name not in _ATTRIBUTES:
            return tree
        if accepted_only and not frameworks.is_exact(entry):
            return tree
        given = {entry.parameters[0].name: operand}
        return frameworks.substituted(frameworks.parsed(entry.expressions[0]), given, tree)


_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "real", "imag", "shape", "ndim"})
"""What PyTorch's tensors have without a call."""


def _is_uncalled(tree: CallTree) -> bool:
    """Return whether a method of an expression stands without its call: `(a + b).sum`."""
    name = tree.name.text
    return name.startswith(".") and tree.end == tree.name.end and name[1:] not in _ATTRIBUTES


def _uncalled(text: str) -> FusecError:
    message = f"`{text}` is a method, which is called"
    return FusecError(message, help=f"write `{text}()`, with its arguments", code=METHOD_CALL)


_CONSTANTS = {
    f"{module}.{name}": value
    for module in ("math", "torch", "np", "numpy", "jnp")
    for name, value in (("inf", inf), ("nan", nan), ("pi", pi), ("e", e))
}


def _number(tree: Tree) -> Tree | None:
    """Return the number of `float("-inf")`; None of other trees."""
    if not isinstance(tree, CallTree) or tree.name.text != "float" or len(tree.arguments) != 1:
        return None
    value = tree.arguments[0].value
    text = value.text.strip().lower() if isinstance(value, String) else ""
    if text.lstrip("+-") not in ("inf", "infinity", "nan"):
        return None
    return Literal(float(text), tree.start, tree.end)


def _in_our_words(entry: Entry, called: CallTree) -> Tree:
    given = frameworks.bind(
        entry,
        [a.value for a in called.arguments if a.keyword is None],
        {a.keyword.text: a.value for a in called.arguments if a.keyword is not None},
        _listed,
    )
    made = frameworks.instantiate(entry, given, _value_of)
    return frameworks.substituted(made, given, called)


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
    return tree.text if isinstance(tree, (Name, String)) else frameworks.OPAQUE
