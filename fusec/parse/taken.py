"""Subscripts with lists and several tensors, `x[arange(B), i]`, as calls of operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusec.ir.dim import Shape
from fusec.ir.graph import Value
from fusec.parse import frameworks
from fusec.parse.trees import (
    CallTree,
    Items,
    Literal,
    Range,
    Subscript,
    Tree,
    integer_literal,
)

_COUNTING = ("arange", "range", "iota")


def as_calls(tree: Subscript, shape: Shape, keys: Sequence[Any]) -> Tree | None:
    """Return what a subscript is in fusec's words: `x[arange(B), i]` or `x[:, [0, 2]]`.

    keys: the entries as Python has them. None of other subscripts.
    """
    turned = [k for k, key in enumerate(tree.keys) if _is_turned(key)]
    rest = (key for k, key in enumerate(tree.keys) if k not in turned)
    if turned and all(map(_is_whole, rest)):
        return frameworks.substituted(
            frameworks.parsed(f"flip(x, {turned})"), {"x": tree.base}, tree
        )
    lists = [k for k, key in enumerate(tree.keys) if isinstance(key, Items)]
    if len(lists) == 1:
        return _of_list(tree, lists[0])
    counted = len(keys) >= 2 and is_counting(tree.keys[0])
    if counted and not any(isinstance(key, Value) for key in keys[1:]):
        first = Range(None, None, None, tree.start, tree.start)
        return Subscript(tree.base, (first, *tree.keys[1:]), tree.start, tree.end)
    if len(keys) > 2:
        return None
    index = keys[1] if counted else None
    if not isinstance(index, Value) or not index.dtype.is_integer or len(index.shape) != 1:
        return None
    # One element, or one row, of each entry of the first dim.
    place, wide = "i", list[str]()
    for size in shape[2:]:
        wide.append(str(size))
    if len(shape) < 2:
        return None
    for axis in range(1, len(shape)):
        place = f"unsqueeze({place}, {axis})"
    if wide:
        place = f"expand({place}, [{shape[0]}, 1, {', '.join(wide)}])"
    made = frameworks.parsed(f"squeeze(gather(x, {place}, 1), [1])")
    return frameworks.substituted(made, {"x": tree.base, "i": tree.keys[1]}, tree)


def is_counting(tree: Tree) -> bool:
    """Return whether an expression is `arange` of one argument."""
    if not isinstance(tree, CallTree) or tree.name.text.rpartition(".")[2] not in _COUNTING:
        return False
    return len([a for a in tree.arguments if a.keyword is None]) == 1


def _of_list(tree: Subscript, axis: int) -> Tree | None:
    """Return a slice for a list of one number, and a stack of the elements of a longer one."""
    listed = tree.keys[axis]
    numbers = [integer_literal(i) for i in listed.items] if isinstance(listed, Items) else []
    if not numbers or None in numbers or any(not _is_whole(k) for k in tree.keys[:axis]):
        return None

    def with_key(key: Tree) -> Subscript:
        keys = (*tree.keys[:axis], key, *tree.keys[axis + 1 :])
        return Subscript(tree.base, keys, tree.start, tree.end)

    at = listed.start
    literals = [Literal(n, at, at) for n in numbers]
    if len(literals) > 1:
        parts = Items(tuple(with_key(literal) for literal in literals), at, at)
        stack = frameworks.parsed(f"stack(parts, {axis})")
        return frameworks.substituted(stack, {"parts": parts}, tree)
    end = Literal((numbers[0] or 0) + 1, at, at)
    return with_key(Range(literals[0], None if numbers[0] == -1 else end, None, at, at))


def _is_turned(key: Tree) -> bool:
    """Return whether an entry is `::-1`."""
    step = integer_literal(key.step) if isinstance(key, Range) and key.step is not None else None
    return isinstance(key, Range) and key.low is None and key.high is None and step == -1


def _is_whole(key: Tree) -> bool:
    return isinstance(key, Range) and key.low is None and key.high is None and key.step is None
