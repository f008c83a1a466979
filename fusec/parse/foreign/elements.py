"""Assignments to elements, `x[key] = value`, as expressions of the changed tensor."""

from __future__ import annotations

from collections.abc import Callable

from fusec.codes.document import UNEXPECTED_TOKEN
from fusec.dataclasses import replace
from fusec.diagnostics import FusecError, Span
from fusec.ir.dim import Dim
from fusec.ir.dtype import BOOL
from fusec.ir.graph import Type
from fusec.parse.foreign import frameworks
from fusec.parse.syntax.conditions import is_condition
from fusec.parse.syntax.trees import (
    Argument,
    CallTree,
    Infix,
    Items,
    Literal,
    Name,
    Range,
    Subscript,
    Tree,
    integer_literal,
)


def updated(
    tree: CallTree, type_of: Callable[[Tree], Type | None], span: Callable[[Tree], Span]
) -> Tree:
    """Return `x[key] = value` as an expression of the changed tensor: `where`, or `update_slice`.

    type_of: returns the type of an expression; span: its location.
    """
    base, *keys, value = (a.value for a in tree.arguments)
    changed, mask = type_of(base), type_of(keys[0])
    shape = () if changed is None else changed.shape or ()
    is_mask = len(keys) == 1 and (
        is_condition(keys[0]) or (mask is not None and mask.dtype is BOOL)
    )
    name = Name("where" if is_mask else "update_slice", tree.start, tree.start)
    if is_mask:
        rank = len(mask.shape or ()) if mask is not None else len(shape)
        wide = _with_dims(keys[0], rank, len(shape))
        arguments = tuple(Argument(None, part) for part in (wide, value, base))
        return CallTree(name, arguments, tree.start, tree.end)
    parts = [_bounds(key, size, tree) for key, size in zip(keys, shape, strict=False)]
    parts += [
        (Literal(0, tree.start, tree.end), frameworks.size_tree(e, tree))
        for e in shape[len(keys) :]
    ]
    known = [part for part in parts if part is not None]
    if not shape or len(keys) > len(shape) or len(known) < len(parts):
        raise FusecError(
            "op lines cannot assign to elements: tensors are immutable",
            span=span(tree.name),
            help="`y = where(mask, value, x)` changes elements, and "
            "`y = update_slice(x, source, start_indices)` a slice",
            code=UNEXPECTED_TOKEN,
        )
    starts = Items(tuple(low for low, _ in known), tree.start, tree.end)
    if isinstance(value, Literal) and isinstance(base, Name):
        extents = Items(tuple(extent for _, extent in known), tree.start, tree.end)
        word = Name("dtype", tree.start, tree.start)
        kind = Name("" if changed is None else changed.dtype.name, tree.start, tree.start)
        full = (Argument(None, extents), Argument(None, value), Argument(word, kind))
        value = CallTree(replace(name, text="full"), full, tree.start, tree.end)
    arguments = tuple(Argument(None, part) for part in (base, value, starts))
    return CallTree(name, arguments, tree.start, tree.end)


def _bounds(key: Tree, size: Dim, at: Tree) -> tuple[Tree, Tree] | None:
    """Return the start of a key of an assignment, and its number of elements."""
    if isinstance(key, Range) and key.step is None:
        low = key.low or Literal(0, at.start, at.end)
        high = key.high or frameworks.size_tree(size, at)
        start, end = integer_literal(low), integer_literal(high)
        if (start or 0) < 0 or (end or 0) < 0:
            return None
        if start is not None and end is not None:
            return low, Literal(end - start, at.start, at.end)
        return low, high if start == 0 else Infix("-", high, low, at.start, at.end, at.start)
    number = integer_literal(key)
    return (key, Literal(1, at.start, at.end)) if number is not None and number >= 0 else None


def _with_dims(mask: Tree, rank: int, wanted: int) -> Tree:
    """Return a mask of the first dims of a tensor with new dims for the others."""
    if rank >= wanted:
        return mask
    at = mask.start
    whole = [Range(None, None, None, at, at)] * rank
    new = [Literal(None, at, at)] * (wanted - rank)
    return Subscript(mask, (*whole, *new), mask.start, mask.end)
