"""Tensors created from scalars, and scalars created from sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError
from fusec.ir.dtype import F32, F64, I64, DType
from fusec.ir.graph import Operand, Type
from fusec.ir.roles import Text
from fusec.ops import texts
from fusec.ops.builder.inputs import check_dtype
from fusec.ops.declare import Array, Axis, Shape, Size, composite, factory, scalar
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.numerics import exact
from fusec.ops.shapes import described, tensor_shape, text

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]


def _require_scalars(name: str, operands: Operands) -> None:
    for operand in operands:
        if operand.type.shape is not None:
            raise FusecError(f"`{name}` needs scalars", notes=[described([operand])])


def _canonical_full(operands: Operands, attributes: Attributes) -> Attributes:
    own = dtype_of(operands[0])
    return {"dtype": attributes["dtype"] or (F32 if own == F64 else own)}


def _infer_full(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    _require_scalars("full", operands)
    check_dtype(attributes["dtype"])
    shape = attributes["shape"]
    if [e for e in shape if e.is_const and e.value < 0]:
        raise FusecError(f"`full` of shape {text(shape)}: extents are at least 0")
    return (Type(attributes["dtype"], shape),)


@factory(
    infer=_infer_full,
    canonical=_canonical_full,
    cuda="{fill_value}",
    extents="shape",
    text=texts.FULL,
    exact=exact.either,
    fills="fill_value",
)
def full(shape: Shape, fill_value: Array, dtype: DType | None = None) -> Array:
    """Return a tensor filled with one value; default dtype f32 for floats."""
    return np.full(tuple(shape), fill_value)


def _canonical_iota(operands: Operands, attributes: Attributes) -> Attributes:
    return {"dtype": attributes["dtype"] or I64}


def _infer_iota(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    _require_scalars("iota", operands)
    check_dtype(attributes["dtype"])
    length = attributes["length"]
    if length.is_const and length.value < 0:
        raise FusecError(f"`iota` of length {length}")
    return (Type(attributes["dtype"], (length,)),)


_SEQUENCE = {
    "i64": "fusec::wrapping_add({start}, fusec::wrapping_mul({step}, {index}))",
    "f64": "fusec::at_step({start}, {step}, {index})",
}


def _in_64_bits(operands: Operands, dtype: DType) -> tuple[DType, ...]:
    wide = F64 if dtype.is_float else I64 if dtype.is_integer else dtype
    return (wide,) * len(operands)


@factory(
    infer=_infer_iota,
    canonical=_canonical_iota,
    cuda=_SEQUENCE,
    compute=_in_64_bits,
    text=texts.IOTA,
)
def iota(length: Size, start: Array = 0, step: Array = 1, dtype: DType | None = None) -> Array:
    """Return start, start + step, ... as a 1-dim tensor; default dtype i64.

    Computed in 64 bits and rounded once.
    """
    first = np.asarray(start)
    return first + np.asarray(step) * np.arange(length).astype(first.dtype)


def _infer_size(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    axis: int = attributes["dim"]
    return (Type(I64, None, tensor_shape("size", operands[0])[axis]),)


@scalar(infer=_infer_size, text=Text(layout="size({0}, {dim})"))
def size(arg: Array, dim: Axis) -> Array:
    """Return the extent of a dim as an integer scalar."""
    return np.asarray(np.shape(arg)[dim], np.int64)


def _each_size(builder: GraphBuilder, arg: Operand) -> tuple[Operand, ...]:
    rank = len(tensor_shape("shape", arg))
    return tuple(builder.apply("size", arg, dim=axis) for axis in range(rank))


@composite(expand=_each_size, many=True)
def shape(arg: Array) -> Array:
    """Return the extents of all dims as integer scalars."""
    return tuple(np.asarray(extent, np.int64) for extent in np.shape(arg))
