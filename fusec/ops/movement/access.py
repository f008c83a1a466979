"""Coordinate maps of movement and indexing operations: their declarations' `access`."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.ir.access import Access, Branch, Condition, Coordinates, Pulled, Pushed, needed
from fusec.ir.dim import Dim, Shape, dim
from fusec.ir.expression import (
    Index,
    Loaded,
    contiguous_strides,
    delinearize,
    index,
    linearize,
    of_atom,
)
from fusec.ir.graph import Node, Operand, Value

ZERO = index(0)


def _kept(node: Node, coordinates: Coordinates) -> Coordinates:
    dropped: set[int] = set(node.attributes["dims"])
    return tuple(c for i, c in enumerate(coordinates) if i not in dropped)


def _inserted(node: Node, coordinates: Coordinates) -> Coordinates:
    dropped: set[int] = set(node.attributes["dims"])
    rest = iter(coordinates)
    rank = len(coordinates) + len(dropped)
    return tuple(ZERO if i in dropped else next(rest) for i in range(rank))


def _one(node: Node, coordinates: Coordinates, *conditions: Condition) -> Pulled:
    return Pulled((Branch(node.operands[0], coordinates, needed(*conditions)),))


def _clamp_broadcast(shape: Shape, coordinates: Coordinates) -> Coordinates:
    """Return the coordinates with 0 at dims of extent 1."""
    return tuple(ZERO if e == 1 else c for e, c in zip(shape, coordinates, strict=True))


def _reshaped(coordinates: Coordinates, source: Shape, target: Shape) -> Coordinates:
    common = 0
    for a, b in zip(source, target, strict=False):
        if a != b:
            break
        common += 1
    head, tail = coordinates[:common], coordinates[common:]
    linear = linearize(tail, contiguous_strides(source[common:]))
    return (*head, *delinearize(linear, target[common:]))


def _pull_same(node: Node, at: Coordinates) -> Pulled:
    return _one(node, at)


def _pull_broadcast(node: Node, at: Coordinates) -> Pulled:
    mask: tuple[bool, ...] = node.attributes["is_broadcast_dim"]
    return _one(node, tuple(c for c, new in zip(at, mask, strict=True) if not new))


def _pull_broadcast_in_dim(node: Node, at: Coordinates) -> Pulled:
    source = node.operands[0].shape
    places: tuple[int, ...] = node.attributes["broadcast_dims"]
    return _one(node, _clamp_broadcast(source, tuple(at[p] for p in places)))


def _pull_expand(node: Node, at: Coordinates) -> Pulled:
    source = node.operands[0].shape
    return _one(node, _clamp_broadcast(source, at[len(at) - len(source) :]))


def _pull_squeeze(node: Node, at: Coordinates) -> Pulled:
    return _one(node, _inserted(node, at))


def _pull_reshape(node: Node, at: Coordinates) -> Pulled:
    return _one(node, _reshaped(at, node.output.shape, node.operands[0].shape))


def _pull_permute(node: Node, at: Coordinates) -> Pulled:
    order: tuple[int, ...] = node.attributes["dims"]
    source = [ZERO] * len(order)
    for position, axis in enumerate(order):
        source[axis] = at[position]
    return _one(node, tuple(source))


def _pull_slice(node: Node, at: Coordinates) -> Pulled:
    starts, steps = node.attributes["start_indices"], node.attributes["strides"]
    return _one(node, tuple(c * s + index(b) for c, b, s in zip(at, starts, steps, strict=True)))


def _pairs(widths: tuple[Dim, ...]) -> list[tuple[Dim, Dim]]:
    return [(dim(widths[i]), dim(widths[i + 1])) for i in range(0, len(widths), 2)]


def _pull_pad(node: Node, at: Coordinates) -> Pulled:
    source = node.operands[0].shape
    moved = tuple(
        c - low for c, (low, _) in zip(at, _pairs(node.attributes["pad_widths"]), strict=True)
    )
    conditions = [Condition(c, dim(0), e) for c, e in zip(moved, source, strict=True)]
    branch = Branch(node.operands[0], moved, needed(*conditions))
    return Pulled((branch,), node.operands[1])


def _cat_offsets(node: Node) -> list[Dim]:
    axis: int = node.attributes["dim"]
    offsets = [dim(0)]
    for operand in node.operands:
        offsets.append(offsets[-1] + operand.shape[axis])
    return offsets


def _pull_cat(node: Node, at: Coordinates) -> Pulled:
    axis: int = node.attributes["dim"]
    offsets = _cat_offsets(node)
    branches: list[Branch] = []
    for k, operand in enumerate(node.operands):
        moved = (*at[:axis], at[axis] - offsets[k], *at[axis + 1 :])
        where = needed(Condition(at[axis], offsets[k], offsets[k + 1]))
        branches.append(Branch(operand, moved, where))
    return Pulled(tuple(branches))


def _pull_update(node: Node, at: Coordinates) -> Pulled:
    arg, source = node.operands
    moved = tuple(c - s for c, s in zip(at, node.attributes["start_indices"], strict=True))
    inside = needed(*(Condition(c, dim(0), e) for c, e in zip(moved, source.shape, strict=True)))
    branch = Branch(source, moved, inside)
    return Pulled((branch, Branch(arg, at)) if inside else (branch,))


def _loaded(tensor: Operand, at: Coordinates, extent: Dim) -> Index:
    assert isinstance(tensor, Value)
    return of_atom(Loaded(tensor, at, extent))


def _pull_index_select(node: Node, at: Coordinates) -> Pulled:
    axis: int = node.attributes["dim"]
    source, chosen = node.operands[0], node.operands[1]
    position = _loaded(chosen, () if not chosen.shape else (at[axis],), source.shape[axis])
    return _one(node, (*at[:axis], position, *at[axis + 1 :]))


def _pull_select(node: Node, at: Coordinates) -> Pulled:
    axis: int = node.attributes["dim"]
    chosen, extent = node.operands[1], node.operands[0].shape[axis]
    known = chosen.type.dim
    position = index(known) if known is not None else _loaded(chosen, (), extent)
    return _one(node, (*at[:axis], position, *at[axis:]))


def _pull_gather(node: Node, at: Coordinates) -> Pulled:
    axis: int = node.attributes["dim"]
    source, chosen = node.operands[0], node.operands[1]
    position = _loaded(chosen, _clamp_broadcast(chosen.shape, at), source.shape[axis])
    other = (ZERO if e == 1 else c for c, e in zip(at, source.shape, strict=True))
    return _one(node, tuple(position if k == axis else c for k, c in enumerate(other)))


def _pull_embedding(node: Node, at: Coordinates) -> Pulled:
    chosen, table = node.operands[0], node.operands[1]
    row = _loaded(chosen, at[:-1], table.shape[0])
    return Pulled((Branch(table, (row, at[-1])),))


def _pull_flip(node: Node, at: Coordinates) -> Pulled:
    dims: set[int] = set(node.attributes["dims"])
    shape = node.output.shape
    return _one(node, tuple(index(e - 1) - c if k in dims else c
                            for k, (c, e) in enumerate(zip(at, shape, strict=True))))  # fmt: skip


def _push_same(node: Node, at: Coordinates, operand: int) -> Pushed | None:
    return Pushed(at)


def _push_broadcast(node: Node, at: Coordinates, operand: int) -> Pushed | None:
    mask: tuple[bool, ...] = node.attributes["is_broadcast_dim"]
    rest = iter(at)
    return Pushed(tuple(ZERO if new else next(rest) for new in mask))


def _push_broadcast_in_dim(node: Node, at: Coordinates, operand: int) -> Pushed | None:
    source, target = node.operands[0].shape, node.output.shape
    places: tuple[int, ...] = node.attributes["broadcast_dims"]
    out = [ZERO] * len(target)
    for place, extent, position in zip(places, source, at, strict=True):
        if extent != target[place]:
            return None
        out[place] = position
    if any(target[i] != 1 for i in range(len(target)) if i not in places):
        return None
    return Pushed(tuple(out))


def _push_expand(node: Node, at: Coordinates, operand: int) -> Pushed | None:
    return Pushed(at) if node.operands[0].shape == node.output.shape else None


def _push_squeeze(node: Node, at: Coordinates, operand: int) -> Pushed | None:
    return Pushed(_kept(node, at))


def _push_reshape(node: Node, at: Coordinates, operand: int) -> Pushed | None:
    return Pushed(_reshaped(at, node.operands[0].shape, node.output.shape))


def _push_permute(node: Node, at: Coordinates, operand: int) -> Pushed | None:
    order: tuple[int, ...] = node.attributes["dims"]
    return Pushed(tuple(at[axis] for axis in order))


def _push_slice(node: Node, at: Coordinates, operand: int) -> Pushed | None:
    out: list[Index] = []
    conditions: list[Condition] = []
    attributes = node.attributes
    for position, start, step, extent in zip(
        at, attributes["start_indices"], attributes["strides"], node.output.shape, strict=True
    ):
        if step != 1:
            return None
        moved = position - index(start)
        conditions.append(Condition(moved, dim(0), extent))
        out.append(moved)
    return Pushed(tuple(out), needed(*conditions))


def _push_flip(node: Node, at: Coordinates, operand: int) -> Pushed | None:
    return Pushed(_pull_flip(node, at).branches[0].coordinates)


def _push_pad(node: Node, at: Coordinates, operand: int) -> Pushed | None:
    pairs = _pairs(node.attributes["pad_widths"])
    if operand != 0 or any(w != 0 for pair in pairs for w in pair):
        return None
    return Pushed(at)


def _push_update(node: Node, at: Coordinates, operand: int) -> Pushed | None:
    if operand == 0:
        return Pushed(at)
    starts = node.attributes["start_indices"]
    out = tuple(c + index(s) for c, s in zip(at, starts, strict=True))
    inside = (Condition(c, dim(0), e) for c, e in zip(out, node.output.shape, strict=True))
    return Pushed(out, needed(*inside), complete=False)


# For each dim of the result, the dim of the operand that it is aligned with.


def _along_same(node: Node) -> tuple[int | None, ...]:
    return tuple(range(node.output.rank))


def _along_broadcast(node: Node) -> tuple[int | None, ...]:
    mask: tuple[bool, ...] = node.attributes["is_broadcast_dim"]
    rest = iter(range(len(mask)))
    return tuple(None if new else next(rest) for new in mask)


def _along_broadcast_in_dim(node: Node) -> tuple[int | None, ...]:
    places: tuple[int, ...] = node.attributes["broadcast_dims"]
    return tuple(places.index(k) if k in places else None for k in range(node.output.rank))


def _along_expand(node: Node) -> tuple[int | None, ...]:
    new = node.output.rank - len(node.operands[0].shape)
    return (*(None,) * new, *range(node.output.rank - new))


def _along_squeeze(node: Node) -> tuple[int | None, ...]:
    rank = len(node.operands[0].shape)
    return tuple(k for k in range(rank) if k not in node.attributes["dims"])


def _along_permute(node: Node) -> tuple[int | None, ...]:
    order: tuple[int, ...] = node.attributes["dims"]
    return order


def _window_of_slice(node: Node) -> tuple[tuple[Dim, ...], tuple[int, ...]]:
    return node.attributes["start_indices"], node.attributes["strides"]


# The part of an operand that is in the result.


def _always(node: Node) -> bool:
    return True


def _cuts(node: Node) -> bool:
    return any(not w.at_least(0) for w in node.attributes["pad_widths"])


def _left_by_pad(node: Node, shape: tuple[int, ...], target: tuple[int, ...]) -> Iterable[int]:
    """Yield the extent of each dim that a pad with negative widths keeps."""
    widths = node.attributes["pad_widths"]
    for axis, (extent, padded) in enumerate(zip(shape, target, strict=True)):
        given = widths[2 * axis : 2 * axis + 2]
        if all(w.is_const for w in given):
            yield max(0, extent + sum(min(0, int(w.value)) for w in given))
        else:
            yield extent if padded >= extent else 0


def _joined(node: Node) -> int:
    return node.attributes["dim"]


def _all(node: Node, shape: tuple[int, ...], target: tuple[int, ...]) -> Iterable[int]:
    return shape


SET = Access(_pull_same, _push_same, _along_same, repeatable=True)
SEGMENT_SET = Access(_pull_same, _push_same, _along_same, view=True)
BROADCAST = Access(_pull_broadcast, _push_broadcast, _along_broadcast, view=True, repeatable=True)
BROADCAST_IN_DIM = Access(
    _pull_broadcast_in_dim, _push_broadcast_in_dim, _along_broadcast_in_dim,
    repeats=True, view=True, repeatable=True,
)  # fmt: skip
EXPAND = Access(_pull_expand, _push_expand, _along_expand, repeats=True, view=True, repeatable=True)
SQUEEZE = Access(_pull_squeeze, _push_squeeze, _along_squeeze, view=True, repeatable=True)
RESHAPE = Access(_pull_reshape, _push_reshape, view=True, repeatable=True)
PERMUTE = Access(_pull_permute, _push_permute, _along_permute, view=True, repeatable=True)
SLICE = Access(
    _pull_slice, _push_slice, _along_same, _window_of_slice, partial=_always,
    view=True, repeatable=True,
)  # fmt: skip
PAD = Access(_pull_pad, _push_pad, partial=_cuts, reached=_left_by_pad)
CAT = Access(_pull_cat, reached=_all, concat_dim=_joined)
UPDATE_SLICE = Access(_pull_update, _push_update, overlays=True)
FLIP = Access(_pull_flip, _push_flip, repeatable=True)
INDEX_SELECT = Access(_pull_index_select, partial=_always)
SELECT = Access(_pull_select, partial=_always)
GATHER = Access(_pull_gather, partial=_always)
EMBEDDING = Access(_pull_embedding, partial=_always)
