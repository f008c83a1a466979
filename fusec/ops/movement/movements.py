"""Broadcasts, expansions and squeezes: insert, remove and expand dims of extent 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from fusec.diagnostics import FusecError, Instead
from fusec.ir.access import sample
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Operand, Type
from fusec.ops import texts
from fusec.ops.declare import Array, Dims, Ints, Mask, Shape, movement
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.movement import access
from fusec.ops.shapes import (
    described,
    mismatch,
    normal_axes,
    require_rank,
    tensor_shape,
    without_axes,
)

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]


def _infer_broadcast(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    mask: tuple[bool, ...] = attributes["is_broadcast_dim"]
    rest = iter(require_rank("broadcast", operands[0], mask.count(False), "is_broadcast_dim"))
    return (Type(dtype_of(operands[0]), tuple(dim(1) if new else next(rest) for new in mask)),)


@movement(
    infer=_infer_broadcast, access=access.BROADCAST,
    samples=sample("f32[2, 3]", is_broadcast_dim=(True, False, False)), text=texts.BROADCAST,
)  # fmt: skip
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


@movement(
    infer=_infer_in_dim, canonical=_canonical_in_dim, equal=_placed,
    access=access.BROADCAST_IN_DIM, extents="shape",
    samples=sample("f32[2, 1]", shape=(dim(2), dim(3), dim(2)), broadcast_dims=(0, 2)),
    text=texts.BROADCAST_IN_DIM,
)  # fmt: skip
def broadcast_in_dim(arg: Array, shape: Shape, broadcast_dims: Ints) -> Array:
    """Map dim i to `broadcast_dims[i]` of `shape`, and broadcast along all other dims."""
    extents = [1] * len(shape)
    for place, extent in zip(broadcast_dims, np.shape(arg), strict=True):
        extents[place] = extent
    return np.broadcast_to(np.reshape(arg, extents), tuple(shape))


def _aligned_extents(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    shape, target = operands[0].shape, attributes["shape"]
    for extent, wanted in zip(reversed(shape), reversed(target), strict=False):
        if extent != 1:
            yield extent, wanted


def _canonical_expand(operands: Operands, attributes: Attributes) -> Attributes:
    shape, target = tensor_shape("expand", operands[0]), attributes["shape"]
    new = len(target) - len(shape)
    if new < 0:
        raise FusecError(
            f"`expand` to {len(target)} dims of a tensor with {len(shape)}",
            notes=[described(operands)],
        )
    if -1 in target[:new]:
        raise FusecError("`expand`: -1 keeps an extent, and a new dim has none")
    kept = tuple(e if w == -1 else w for e, w in zip(shape, target[new:], strict=True))
    return {"shape": (*target[:new], *kept)}


def _infer_expand(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    for extent, wanted in _aligned_extents(operands, attributes):
        if extent != wanted:
            why = "only dims of extent 1 can expand"
            instead = _with_new_dims(operands[0].shape, attributes["shape"])
            instead = instead or _with_kept_dims(operands[0].shape, attributes["shape"])
            raise mismatch("expand", extent, wanted, why, operands, instead=instead)
    return (Type(dtype_of(operands[0]), attributes["shape"]),)


def _with_new_dims(shape: Sequence[Dim], wanted: Sequence[Dim]) -> Instead | None:
    """Return the call with new dims of extent 1 at the wanted positions instead of leading ones."""
    count = len(wanted) - len(shape)
    for new in combinations(range(len(wanted)), count) if count > 0 else ():
        kept = [e for axis, e in enumerate(wanted) if axis not in new]
        if all(a in (b, 1) for a, b in zip(shape, kept, strict=True)):
            arg = "{arg}"
            for axis in new:
                arg = f"unsqueeze({arg}, {axis})"
            return Instead(arguments={"arg": arg}, why="new dims go in front of all others")
    return None


def _with_kept_dims(shape: Sequence[Dim], wanted: Sequence[Dim]) -> Instead:
    """Return the call with -1 for the dims that cannot expand."""
    new = len(wanted) - len(shape)
    kept = [-1 if a not in (b, 1) else b for a, b in zip(shape, wanted[new:], strict=True)]
    sizes = ", ".join(map(str, (*wanted[:new], *kept)))
    return Instead(arguments={"shape": f"[{sizes}]"}, why="-1 keeps an extent")


@movement(
    infer=_infer_expand, canonical=_canonical_expand, equal=_aligned_extents,
    access=access.EXPAND, extents="shape",
    samples=sample("f32[3, 1]", shape=(dim(2), dim(3), dim(2))),
    text=texts.EXPAND,
)  # fmt: skip
def expand(arg: Array, shape: Shape) -> Array:
    """Broadcast dims of extent 1 and new leading dims; -1 keeps an extent."""
    return np.broadcast_to(arg, tuple(shape))


def _squeezed(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    if not attributes["squeeze_expanded"]:
        for axis in attributes["dims"]:
            yield operands[0].shape[axis], dim(1)


def _infer_squeeze(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    shape = tensor_shape("squeeze", operands[0])
    for extent, one in _squeezed(operands, attributes):
        if extent != one:
            ones = [k for k, e in enumerate(shape) if e == 1]
            why = f"dim {ones[0]} alone has extent 1" if ones else ""
            one = Instead(arguments={"dims": str(ones)}, why=why) if len(ones) == 1 else None
            none = Instead("set({arg})", why="PyTorch leaves a dim that is not 1 as it is")
            raise FusecError(
                f"`squeeze` of a dim of extent {extent}, not 1",
                notes=[described(operands)],
                help="`select` takes one element of a dim, `flatten` joins two",
                instead=one or (None if ones else none),
            )
    return (Type(dtype_of(operands[0]), without_axes(shape, attributes["dims"])),)


@movement(
    infer=_infer_squeeze, equal=_squeezed, access=access.SQUEEZE,
    samples=sample("f32[2, 1, 3]", dims=(1,), squeeze_expanded=False), text=texts.SQUEEZE,
)  # fmt: skip
def squeeze(arg: Array, dims: Dims, squeeze_expanded: bool = False) -> Array:
    """Remove dims of extent 1; with `squeeze_expanded` also expanded dims."""
    index = tuple(0 if axis in (dims or ()) else slice(None) for axis in range(np.ndim(arg)))
    return np.asarray(arg)[index]
