"""Broadcasts, expansions and squeezes: dims of extent 1 come, go and grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Operand, Type
from fusec.ops.declare import Array, Ints, Mask, Shape, movement
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.shapes import mismatch, normal_axes, require_rank

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]


def _infer_broadcast(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    mask: tuple[bool, ...] = attributes["is_broadcast_dim"]
    rest = iter(require_rank("broadcast", operands[0], mask.count(False), "is_broadcast_dim"))
    return (Type(dtype_of(operands[0]), tuple(dim(1) if new else next(rest) for new in mask)),)


@movement(infer=_infer_broadcast)
def broadcast(arg: Array, is_broadcast_dim: Mask) -> Array:
    """Insert dims of extent 1 where `is_broadcast_dim` is true."""
    return np.expand_dims(arg, tuple(i for i, new in enumerate(is_broadcast_dim) if new))


def _placed(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    shape, places = attributes["shape"], attributes["broadcast_dims"]
    for extent, place in zip(operands[0].shape, places, strict=False):
        if extent != 1:
            yield extent, shape[place]


def _canonical_in_dim(operands: Operands, attributes: Attributes) -> Attributes:
    name, shape = "broadcast_in_dim", attributes["shape"]
    places = normal_axes(name, attributes["broadcast_dims"], len(shape), "broadcast_dims entry")
    if list(places) != sorted(places):
        raise FusecError(f"broadcast_dims of `{name}` must increase, got {list(places)}")
    require_rank(name, operands[0], len(places), "broadcast_dims")
    return {"broadcast_dims": places}


def _infer_in_dim(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    for extent, target in _placed(operands, attributes):
        if extent != target:
            raise mismatch("broadcast_in_dim", extent, target, "extents of the operand and of "
                           "`shape` must be equal or 1", operands)  # fmt: skip
    return (Type(dtype_of(operands[0]), attributes["shape"]),)


@movement(infer=_infer_in_dim, canonical=_canonical_in_dim, equal=_placed)
def broadcast_in_dim(arg: Array, shape: Shape, broadcast_dims: Ints) -> Array:
    """Put dim i at `broadcast_dims[i]` of `shape`, and repeat along all other dims."""
    extents = [1] * len(shape)
    for place, extent in zip(broadcast_dims, np.shape(arg), strict=True):
        extents[place] = extent
    return np.broadcast_to(np.reshape(arg, extents), tuple(shape))
