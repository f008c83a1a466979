"""Flips, repeats and layouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError
from fusec.ir.access import sample
from fusec.ir.dim import Dim
from fusec.ir.graph import Operand, Type
from fusec.ops.declare import Array, Dims, Ints, Shape, composite, movement
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.movement import access, links
from fusec.ops.shapes import described, tensor_shape, text

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder


def _infer_flip(operands: tuple[Operand, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    return (Type(dtype_of(operands[0]), tensor_shape("flip", operands[0])),)


@movement(
    infer=_infer_flip, access=access.FLIP, samples=sample("f32[2, 3]", dims=(1,)), links=links.flip
)
def flip(arg: Array, dims: Dims) -> Array:
    """Reverse the order of elements along `dims`."""
    return np.flip(arg, None if dims is None else tuple(dims))


def _expand_repeat(builder: GraphBuilder, arg: Operand, repeats: tuple[Dim, ...]) -> Operand:
    shape = tensor_shape("repeat", arg)
    if len(repeats) < len(shape):
        raise FusecError(
            f"`repeat`: {len(repeats)} repeats for {len(shape)} dims",
            notes=[described([arg])],
            help=f"write one for each dim, as in {[1] * (len(shape) - 1) + [2]}",
        )
    if any(count.is_const and count.value < 0 for count in repeats):
        raise FusecError(f"`repeat`: counts are at least 0, got {text(repeats)}")
    new = len(repeats) - len(shape)
    unmerged: list[Dim] = list(repeats[:new])
    result: list[Dim] = list(repeats[:new])
    places: list[int] = []
    for extent, count in zip(shape, repeats[new:], strict=True):
        if count != 1:
            unmerged.append(count)
        places.append(len(unmerged))
        unmerged.append(extent)
        result.append(extent * count)
    if len(unmerged) == len(shape):
        return builder.apply("set", arg)
    wide = builder.apply("broadcast_in_dim", arg, shape=unmerged, broadcast_dims=places)
    return (
        wide if len(unmerged) == len(result) else builder.apply("reshape", wide, new_shape=result)
    )


@composite(expand=_expand_repeat)
def repeat(arg: Array, repeats: Shape) -> Array:
    """Repeat the whole tensor `repeats[i]` times along dim i; more counts than dims add dims."""
    return np.tile(arg, tuple(repeats))


def _expand_stride_order(
    builder: GraphBuilder, arg: Operand, stride_order: tuple[int, ...]
) -> Operand:
    rank = len(tensor_shape("stride_order", arg))
    if sorted(stride_order) != list(range(rank)):
        raise FusecError(
            f"`stride_order` {list(stride_order)} is not a permutation of 0 to {rank - 1}",
            notes=[described([arg])],
        )
    copy = builder.apply("set", arg)
    builder.prefer_order(copy, stride_order)
    return copy


@composite(expand=_expand_stride_order)
def stride_order(arg: Array, stride_order: Ints) -> Array:
    """Copy; as an output the copy is laid out so: dim i is the stride_order[i]-th fastest."""
    return arg
