"""Helpers of composites: widen 16-bit floats and round once at the end; element counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusec.ir.dtype import F32
from fusec.ir.graph import Operand
from fusec.ops.dtypes import dtype_of
from fusec.ops.shapes import tensor_shape

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder


def widen(builder: GraphBuilder, x: Operand) -> Operand:
    """Return x in its compute type; integers become f32."""
    dtype = dtype_of(x)
    target = dtype.compute if dtype.is_float else F32
    return x if dtype == target else builder.apply("cast", x, dtype=target)


def narrow(builder: GraphBuilder, value: Operand, like: Operand) -> Operand:
    """Return a result in the type of the operand `like`, if that is a float."""
    dtype = dtype_of(like)
    same = dtype_of(value) == dtype or not dtype.is_float
    return value if same else builder.apply("cast", value, dtype=dtype)


def element_count(builder: GraphBuilder, x: Operand, dims: Sequence[int]) -> Operand | int:
    """Return the number of elements over dims: a number if it is a constant."""
    constant, total = 1, None
    for axis in dims:
        extent = tensor_shape("mean", x)[axis]
        if extent.is_const:
            constant *= extent.value
        else:
            size = builder.apply("size", x, dim=axis)
            total = size if total is None else builder.apply("mul", total, size)
    if total is None:
        return constant
    return total if constant == 1 else builder.apply("mul", total, constant)
