"""Lists, tuples and ranges that Python evaluates before a kernel runs."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.parse.foreign.repeated import folded_sizes
from fusec.parse.syntax.trees import (
    CallTree,
    Dots,
    Infix,
    Items,
    Literal,
    Range,
    Subscript,
    Tree,
    integer_literal,
)

MOST_ITEMS = 64
"""The longest list that is written out."""


def folded_list(tree: Tree) -> Tree:
    """Return the list, item or length of an expression of lists; other trees unchanged."""
    made: Tree | None = None
    if isinstance(tree, Infix):
        made = _joined(tree)
    elif isinstance(tree, CallTree) and len(tree.arguments) == 1:
        made = _called(tree.name.text, tree.arguments[0].value, tree)
    elif isinstance(tree, Subscript):
        made = _indexed(tree)
    return folded_sizes(tree) if made is None else made


def _joined(tree: Infix) -> Tree | None:
    """Return `[a] + [b]` and `[a] * 3` as lists."""
    left, right = tree.left, tree.right
    if tree.operator == "+" and isinstance(left, Items) and isinstance(right, Items):
        return Items((*left.items, *right.items), tree.start, tree.end)
    listed, times = (left, right) if isinstance(left, Items) else (right, left)
    count = integer_literal(times)
    if tree.operator != "*" or not isinstance(listed, Items) or count is None:
        return None
    if len(listed.items) * count > MOST_ITEMS:
        return None
    return Items(listed.items * count, tree.start, tree.end)


def _called(name: str, value: Tree, at: Tree) -> Tree | None:
    """Return `list(...)` and `tuple(...)` as lists, and the `len` of one."""
    if name in ("list", "tuple") and isinstance(value, CallTree):
        return _counted(value, at)
    if not isinstance(value, Items):
        return None
    if name in ("list", "tuple"):
        return replace(value, start=at.start, end=at.end)
    return Literal(len(value.items), at.start, at.end) if name == "len" else None


def _counted(call: CallTree, at: Tree) -> Items | None:
    """Return the list of the numbers of a range."""
    bounds = [integer_literal(a.value) for a in call.arguments if a.keyword is None]
    known = [b for b in bounds if b is not None]
    is_range = call.name.text in ("range", "arange") and 1 <= len(known) == len(bounds) <= 3
    if not is_range or 0 in known[2:] or len(numbers := range(*known)) > MOST_ITEMS:
        return None
    return Items(tuple(Literal(n, at.start, at.end) for n in numbers), at.start, at.end)


def _indexed(tree: Subscript) -> Tree | None:
    """Return an item or a part of a list; and `x[(..., none)]` as `x[..., none]`."""
    key = tree.keys[0]
    if len(tree.keys) > 1:
        return None
    if isinstance(key, Items) and any(_is_new(item) for item in key.items):
        return replace(tree, keys=tuple(map(_key, key.items)))
    if not isinstance(tree.base, Items):
        return None
    items, at = tree.base.items, integer_literal(key)
    if at is not None and -len(items) <= at < len(items):
        return items[at]
    if not isinstance(key, Range):
        return None
    bounds = [None if b is None else integer_literal(b) for b in (key.low, key.high, key.step)]
    given = sum(b is not None for b in (key.low, key.high, key.step))
    if sum(b is not None for b in bounds) < given or bounds[2] == 0:
        return None
    return replace(tree.base, items=items[slice(*bounds)])


def _is_new(key: Tree) -> bool:
    """Return whether an entry is `...` or `none`, which a list of indices cannot contain."""
    return isinstance(key, Dots) or (isinstance(key, Literal) and key.value is None)


def _key(item: Tree) -> Tree:
    """Return an entry of a tuple in the form of a subscript: `slice(none)` as `:`."""
    called = item if isinstance(item, CallTree) and item.name.text == "slice" else None
    if called is None or not all(map(_is_new, (a.value for a in called.arguments))):
        return item
    return Range(None, None, None, item.start, item.end)
