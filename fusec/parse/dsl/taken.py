"""`emb[ids]` and `x[:, [0, 2]]` in Python: lists and tensors of integers as indices."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, cast

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import Dim
from fusec.ir.dtype import BOOL
from fusec.parse.dsl.foreign import evaluate_calls
from fusec.parse.dsl.place import here
from fusec.parse.foreign import frameworks
from fusec.parse.syntax.trees import (
    Argument,
    CallTree,
    Dots,
    Items,
    Literal,
    Name,
    Range,
    Subscript,
    Tree,
)
from fusec.parse.taken import as_calls

if TYPE_CHECKING:
    from fusec.parse.dsl.handles import Tensor

Index = Callable[[Any, Sequence[Any], bool], Any]
_MOST_NUMBERS = 64
"""The longest list of numbers that is an index."""


def taken_by_tensors(tensor: Tensor, key: Sequence[Any], index: Index) -> Tensor | None:
    """Return `tensor[key]` if an entry is a list or a tensor of integers; None for other keys.

    index: indexes a tensor with a key, with the name that the script assigns to, or none. Raise
    Unsupported for a mask, since the result's shape depends on data, FusecError for a tensor of
    floats.
    """
    if not any(_is_tensor(e) or _is_reversal(e) or _numbers(e) is not None for e in key):
        return None
    for entry in filter(_is_tensor, key):
        dtype = entry.operand.type.dtype if _is_known(entry) else None
        if dtype is BOOL:
            raise _masked(tensor, entry)
        if dtype is not None and not dtype.is_integer:
            message = f"an index is an integer or a mask, got a tensor of {dtype}"
            raise FusecError(message, notes=[f"it is {entry!r}"])
    shape = tensor.known_shape
    if len(shape) < tensor.ndim or not all(map(_is_known, key)):
        return None
    reading = _Reading(tensor, index)
    trees = tuple(reading.tree(entry, place, len(key)) for place, entry in enumerate(key))
    keys = [_entry(entry) for entry in key]
    made = as_calls(Subscript(Name("x", 0, 0), trees, 0, 0), tuple(shape), keys, reading.sizes)
    if made is None:
        return None
    return reading.evaluate(made, tensor)


class _Reading:
    """Entries of a key as expressions of names, and the values of these names."""

    def __init__(self, tensor: Tensor, index: Index) -> None:
        self._values: dict[str, Any] = {"x": tensor}
        self._index = index

    def tree(self, entry: Any, place: int, count: int) -> Tree:
        """Return an entry as an expression; place, count: its index, and the key's length."""
        numbers = _numbers(entry)
        if numbers is not None and place == 0 and count > 1 and numbers == [*range(len(numbers))]:
            argument = Argument(None, Literal(len(numbers), 0, 0))
            return CallTree(Name("arange", 0, 0), (argument,), 0, 0)
        if numbers is not None:
            return Items(tuple(Literal(n, 0, 0) for n in numbers), 0, 0)
        if entry is ...:
            return Dots(0, 0)
        if isinstance(entry, slice):
            cut = cast("slice[Any, Any, Any]", entry)
            low, high, step = map(self._bound, (cut.start, cut.stop, cut.step))
            return Range(low, high, step, 0, 0)
        return Literal(None, 0, 0) if entry is None else self._named(entry)

    def sizes(self, shape: Sequence[Dim], at: Tree) -> Items:
        """Return the list of sizes in written form."""
        return Items(tuple(map(self._named, shape)), at.start, at.end)

    def evaluate(self, tree: Tree, tensor: Tensor) -> Any:
        """Return the value of an expression; only its last call gets the assigned name."""
        whole = self._without_subscripts(tree, named=True)
        return evaluate_calls(tensor.definition.ops, whole, self._values, {}, {"name": ()})

    def _without_subscripts(self, tree: Tree, *, named: bool) -> Tree:
        """Return an expression with names instead of its subscripts, which are evaluated."""
        parts = [self._without_subscripts(p, named=False) for p in frameworks.parts_of(tree)]
        tree = frameworks.rebuilt(tree, parts)
        if not isinstance(tree, Subscript):
            return tree
        base, *key = (frameworks.evaluated(p, self._values, _none, _none) for p in parts)
        return self._named(self._index(base, key, named))

    def _bound(self, value: Any) -> Tree | None:
        return None if value is None else self._named(value)

    def _named(self, value: Any) -> Tree:
        if isinstance(value, int):
            return Literal(value, 0, 0)
        name = f"_{len(self._values)}"
        self._values[name] = value
        return Name(name, 0, 0)


def _none(*_: Any) -> Any:
    raise AssertionError("entries of subscripts are numbers and names")


def _is_tensor(entry: Any) -> bool:
    return _is_handle(entry) and entry.ndim > 0


def _is_handle(entry: Any) -> bool:
    return "guessed_rank" in getattr(entry, "__dict__", ())  # others may reject any attribute


def _is_reversal(entry: Any) -> bool:
    if not isinstance(entry, slice):
        return False
    cut = cast("slice[Any, Any, Any]", entry)
    is_back = isinstance(cut.step, int) and cut.step == -1
    return is_back and cut.start is None and cut.stop is None


def _is_known(entry: Any) -> bool:
    return not _is_tensor(entry) or entry.definition.knows(entry)


def _entry(entry: Any) -> Any:
    """Return an entry in the form of a file's expression."""
    if _is_tensor(entry):
        return entry.operand
    return [] if _numbers(entry) is not None else entry


def _numbers(entry: Any) -> list[int] | None:
    """Return the integers of a list, a range or a 1-dim array; None for other entries."""
    if isinstance(entry, (str, bytes)) or _is_handle(entry):
        return None
    if hasattr(entry, "view_array"):
        entry = entry.view_array()
    try:
        numbers = list(entry)
    except TypeError:
        return None
    known = all(isinstance(n, Integral) for n in numbers) and bool not in map(type, numbers)
    return [int(n) for n in numbers] if known and 1 <= len(numbers) <= _MOST_NUMBERS else None


def _masked(tensor: Tensor, mask: Any) -> FusecError:
    """Return the error of a mask as an index, with the call that keeps the shape."""
    place = here()
    source = "" if place is None else place.span.text[place.span.column - 1 :]
    source = source[: place.span.width] if place is not None else ""
    written = "fd.ops.where(mask, x, 0)"
    lacking = tensor.ndim - mask.ndim
    try:
        node = ast.parse(source.strip(), mode="eval").body
    except SyntaxError:
        node = None
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Tuple):
        text = ast.unparse(node.slice)
        if lacking:
            text = f"{text}[..., {', '.join(['None'] * lacking)}]"
        written = f"fd.ops.where({text}, {ast.unparse(node.value)}, 0)"
    return Unsupported(
        "a mask as an index: the shape of the result depends on data",
        help=f"`where` has 0 instead of the other elements: write `{written}`",
    )
