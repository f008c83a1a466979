"""Subscripts with lists and tensors of integers, `x[arange(B), i]`, as calls of operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fusec.ir.dim import Dim, Shape
from fusec.ir.graph import Value
from fusec.parse.foreign import frameworks
from fusec.parse.syntax.trees import (
    CallTree,
    Dots,
    Items,
    Literal,
    Range,
    Subscript,
    Tree,
    integer_literal,
)

Sizes = Callable[[Sequence[Dim], Tree], Items]
"""Returns the list of sizes in written form, located at an expression."""
_COUNTING = ("arange", "range", "iota")


def as_calls(tree: Subscript, shape: Shape, keys: Sequence[Any], sizes: Sizes) -> Tree | None:
    """Return a subscript as a call for fusec: `x[arange(B), i]` or `x[:, [0, 2]]`.

    keys: the entries in Python's form. Integers and slices are applied first, as in PyTorch
    (https://pytorch.org/docs/stable/tensor_view.html), and one tensor of integers, or one list,
    then indexes the remaining dim in its position. None for other subscripts.
    """
    reversed_dims = [k for k, key in enumerate(tree.keys) if _is_reversal(key)]
    if reversed_dims:
        return _reversed(tree, reversed_dims, keys, len(shape))
    if len(keys) >= 2 and is_counting(tree.keys[0]):
        return _of_rows(tree, shape, keys, sizes)
    column = _counted_column(tree.keys[0])
    if len(keys) == 2 and column is not None:
        return _of_columns(tree, column, shape, keys[1], sizes)
    tensors = [k for k, key in enumerate(keys) if _is_index(key)]
    lists = [k for k, key in enumerate(tree.keys) if isinstance(key, Items)]
    if len(tensors) + len(lists) != 1:
        return None
    (place,) = tensors or lists
    axis = _axis_of(place, tree.keys, keys, len(shape))
    base = tree.base
    others = (key for k, key in enumerate(tree.keys) if k != place)
    if not all(isinstance(key, Dots) or _is_whole(key) for key in others):
        whole = Range(None, None, None, tree.start, tree.start)
        base = Subscript(
            base, (*tree.keys[:place], whole, *tree.keys[place + 1 :]), tree.start, tree.end
        )
    if lists:
        return _of_list(base, axis, tree.keys[place], tree)
    index = keys[place]
    if len(index.shape) == 1:
        return _made(f"index_select(x, i, {axis})", tree, x=base, i=tree.keys[place])
    if base is tree.base and len(shape) == 2 and axis == 0:
        return _made("embedding_fwd(i, x)", tree, x=base, i=tree.keys[place])
    rows = f"unflatten(index_select(x, flatten(i), {axis}), {axis}, s)"
    return _made(rows, tree, x=base, i=tree.keys[place], s=sizes(index.shape, tree))


def _reversed(
    tree: Subscript, reversed_dims: Sequence[int], keys: Sequence[Any], rank: int
) -> Tree:
    """Return `x[::-1, 1:]`: reverse the dims, then apply the other entries."""
    whole = Range(None, None, None, tree.start, tree.start)
    axes = [_axis_of(k, tree.keys, keys, rank) for k in reversed_dims]
    rest = tuple(whole if k in reversed_dims else key for k, key in enumerate(tree.keys))
    others = (key for k, key in enumerate(tree.keys) if k not in reversed_dims)
    if all(isinstance(key, Dots) or _is_whole(key) for key in others):
        return _made(f"flip(x, {axes})", tree, x=tree.base)
    base = Subscript(tree.base, rest, tree.start, tree.end)
    return _made(f"flip(x, {axes})", tree, x=base)


def is_counted(tree: Tree) -> bool:
    """Return whether an entry enumerates the rows; it is not read as a value."""
    return is_counting(tree) or _counted_column(tree) is not None


def is_counting(tree: Tree) -> bool:
    """Return whether an expression is `arange` with one argument."""
    if not isinstance(tree, CallTree) or tree.name.text.rpartition(".")[2] not in _COUNTING:
        return False
    return len([a for a in tree.arguments if a.keyword is None]) == 1


def _made(text: str, at: Tree, **parts: Tree) -> Tree:
    return frameworks.substituted(frameworks.parsed(text), parts, at)


def _is_index(key: Any) -> bool:
    return isinstance(key, Value) and bool(key.shape) and key.dtype.is_integer


def _of_rows(tree: Subscript, shape: Shape, keys: Sequence[Any], sizes: Sizes) -> Tree | None:
    """Return `x[arange(B), i]`: one element, or one row, of each of the first entries."""
    assert isinstance(tree.keys[0], CallTree)
    (count,) = (a.value for a in tree.keys[0].arguments if a.keyword is None)
    at = tree.start
    is_whole = frameworks.text_of(count, {}) == str(shape[0])
    rows = Range(None, None if is_whole else count, None, at, at)
    if any(isinstance(key, Items) for key in tree.keys[1:]):
        return None
    if not any(isinstance(key, Value) for key in keys[1:]):
        return Subscript(tree.base, (rows, *tree.keys[1:]), at, tree.end)
    index = keys[1]
    if len(keys) > 2 or len(shape) < 2 or not _is_index(index) or len(index.shape) != 1:
        return None
    place = "i"
    for axis in range(1, len(shape)):
        place = f"unsqueeze({place}, {axis})"
    base = tree.base if is_whole else Subscript(tree.base, (rows,), at, tree.end)
    if len(shape) == 2:
        return _made(f"squeeze(gather(x, {place}, 1), [1])", tree, x=base, i=tree.keys[1])
    first, *wide = sizes([shape[0], *shape[2:]], tree).items
    extents = Items((first if is_whole else count, Literal(1, at, at), *wide), at, at)
    text = f"squeeze(gather(x, expand({place}, s), 1), [1])"
    return _made(text, tree, x=base, i=tree.keys[1], s=extents)


def _counted_column(tree: Tree) -> Tree | None:
    """Return the count of `arange(B)[:, none]` or `arange(B).unsqueeze(1)`; None for others."""
    call, rest = tree, list[Tree]()
    if isinstance(tree, Subscript):
        call, rest = tree.base, [*tree.keys]
        is_column = len(rest) == 2 and _is_whole(rest[0]) and _is_new(rest[1])
    elif isinstance(tree, CallTree) and tree.name.text.rpartition(".")[2] == "unsqueeze":
        call, *rest = (a.value for a in tree.arguments)
        is_column = len(rest) == 1 and integer_literal(rest[0]) in (1, -1)
    else:
        return None
    if not is_column or not isinstance(call, CallTree) or not is_counting(call):
        return None
    return next(a.value for a in call.arguments if a.keyword is None)


def _is_new(tree: Tree) -> bool:
    return isinstance(tree, Literal) and tree.value is None


def _of_columns(
    tree: Subscript, count: Tree, shape: Shape, index: Any, sizes: Sizes
) -> Tree | None:
    """Return `x[arange(B)[:, none], i]`: elements of each entry of the first dim, at `i[B, K]`."""
    is_all = len(shape) > 1 and frameworks.text_of(count, {}) == str(shape[0])
    if not is_all or not _is_index(index) or len(index.shape) != 2:
        return None
    place = "i"
    for axis in range(2, len(shape)):
        place = f"unsqueeze({place}, {axis})"
    if len(shape) == 2:
        return _made("gather(x, i, 1)", tree, x=tree.base, i=tree.keys[1])
    extents = sizes([*index.shape, *shape[2:]], tree)
    text = f"gather(x, expand({place}, s), 1)"
    return _made(text, tree, x=tree.base, i=tree.keys[1], s=extents)


def _axis_of(place: int, trees: Sequence[Tree], keys: Sequence[Any], rank: int) -> int:
    """Return the dim that an entry of a subscript indexes after integers are applied."""
    axis = 0
    for tree, key in zip(trees[:place], keys, strict=False):
        if isinstance(tree, Dots):
            axis += rank - sum(k is not None for k in keys) + 1
        else:
            axis += key is None or isinstance(key, slice)
    return axis


def _of_list(base: Tree, axis: int, listed: Tree, at: Tree) -> Tree | None:
    """Return a slice for a list of one number, and a stack of the elements for a longer one."""
    numbers = [integer_literal(i) for i in listed.items] if isinstance(listed, Items) else []
    if not numbers or None in numbers:
        return None
    whole = [Range(None, None, None, at.start, at.start)] * axis

    def with_key(key: Tree) -> Subscript:
        return Subscript(base, (*whole, key), at.start, at.end)

    literals = [Literal(n, at.start, at.start) for n in numbers]
    if len(literals) > 1:
        parts = Items(tuple(map(with_key, literals)), at.start, at.start)
        return _made(f"stack(parts, {axis})", at, parts=parts)
    end = Literal((numbers[0] or 0) + 1, at.start, at.start)
    return with_key(Range(literals[0], None if numbers[0] == -1 else end, None, at.start, at.start))


def _is_reversal(key: Tree) -> bool:
    """Return whether an entry is `::-1`."""
    step = integer_literal(key.step) if isinstance(key, Range) and key.step is not None else None
    return isinstance(key, Range) and key.low is None and key.high is None and step == -1


def _is_whole(key: Tree) -> bool:
    return isinstance(key, Range) and key.low is None and key.high is None and key.step is None
