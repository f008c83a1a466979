"""Op lines and their parts: search, replacement, and text."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fusec.codes.names import METHOD_CALL
from fusec.diagnostics import FusecError
from fusec.ir.op import OpDef
from fusec.parse.foreign import frameworks
from fusec.parse.numbers import number_in
from fusec.parse.syntax.trees import Argument, CallTree, Name, OpLine, Subscript, Tree


class Places(dict[str, str]):
    """Names for arguments in an expression; none of them can occur in a file."""

    def __missing__(self, name: str) -> str:
        return f"_{name}_"


def with_arguments(tree: Tree, op: OpDef, given: Mapping[str, Tree]) -> CallTree:
    """Return a call of an operation with these arguments, positional up to an omitted one."""
    made: list[Argument] = []
    for place, param in enumerate(op.params):
        if param.name in given:
            word = None if place == len(made) else Name(param.name, tree.start, tree.start)
            made.append(Argument(word, given[param.name]))
    name = Name(op.name, tree.start, tree.start)
    return CallTree(name, tuple(made), tree.start, tree.end)


OF_ONE_RANK = frozenset({"T", "mT", "H", "mH", "real", "imag"})
ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "real", "imag", "shape", "ndim"})
"""Attributes of PyTorch's tensors that are not called."""


def integer_in(tree: Tree) -> int | None:
    """Return the integer that an expression is literally."""
    value = number_in(tree)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_uncalled(tree: CallTree) -> bool:
    """Return whether a method of an expression is not called: `(a + b).sum`."""
    name = tree.name.text
    return name.startswith(".") and tree.end == tree.name.end and name[1:] not in ATTRIBUTES


def uncalled(text: str) -> FusecError:
    message = f"`{text}` is a method, which is called"
    return FusecError(message, help=f"write `{text}()`, with its arguments", code=METHOD_CALL)


def replaced(tree: Tree, old: Tree, new: Tree) -> Tree:
    """Return an expression with one of its parts replaced."""
    if tree is old:
        return new
    parts = [replaced(part, old, new) for part in frameworks.parts_of(tree)]
    return frameworks.rebuilt(tree, parts)


OF_LISTS = frozenset({"chunk", "split", "tensor_split", "unbind"})
"""Calls whose results form a list, accepted where a list is expected."""


def first_selected(
    tree: Tree, count_of: Callable[[CallTree], int], *, within: bool = False
) -> tuple[Tree, CallTree, int] | None:
    """Return a part that takes one result of a call, the call and the index: `call[1]`.

    The call itself and 0 if it is an operand, as `dropout(x, 0.1)` in a sum.
    """
    if isinstance(tree, Subscript) and isinstance(tree.base, CallTree) and len(tree.keys) == 1:
        count, place = count_of(tree.base), integer_in(tree.keys[0])
        if count > 1 and place is not None and -count <= place < count:
            return tree, tree.base, place % count
    is_operand = within and isinstance(tree, CallTree) and tree.name.text not in OF_LISTS
    if is_operand and isinstance(tree, CallTree) and count_of(tree) > 1:
        return tree, tree, 0
    found = (first_selected(p, count_of, within=True) for p in frameworks.parts_of(tree))
    return next((f for f in found if f is not None), None)


def selected(whole: Tree, call: CallTree, count: int) -> tuple[Tree, int]:
    """Return the part of an expression that takes a result of a call, and its index: `call[1]`.

    The call itself and 0 if it is used as one value.
    """
    for part in frameworks.parts_of(whole):
        if part is call and isinstance(whole, Subscript) and len(whole.keys) == 1:
            place = integer_in(whole.keys[0])
            if place is not None and -count <= place < count:
                return whole, place % count
        found = selected(part, call, count)
        if found[0] is not call:
            return found
    return call, 0


def line_text(line: OpLine) -> str:
    return f"`{', '.join(n.text for n in line.names)} = {plain_text(line.tree)}`"


def plain_text(tree: Tree) -> str:
    return frameworks.text_of(tree, {})


def call_of(whole: Tree, part: Tree) -> CallTree | None:
    """Return the call whose first argument a part of an expression is; None if there is none."""
    if isinstance(whole, CallTree) and whole.arguments and whole.arguments[0].value is part:
        return whole
    found = (call_of(inner, part) for inner in frameworks.parts_of(whole))
    return next((f for f in found if f is not None), None)
