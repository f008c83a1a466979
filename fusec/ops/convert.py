"""Conversion between element types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.ir.dim import Dim
from fusec.ir.dtype import BOOL, DType
from fusec.ir.graph import Operand, Type
from fusec.ops.builder.inputs import check_dtype
from fusec.ops.declare import Array, declare, size_of
from fusec.ops.lazy import np


def _unchanged(size: Dim) -> Dim:
    return size


def _infer(operands: tuple[Operand, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
    source, dtype = operands[0].type, attributes["dtype"]
    check_dtype(dtype)
    return (Type(dtype, source.shape, size_of(_unchanged, operands, dtype)),)


def _compute(operands: tuple[Operand, ...], result: DType) -> tuple[DType, ...]:
    return (operands[0].type.dtype.compute,)


def _cast(x: Array, dtype: DType) -> Array:
    """Convert: floats round to nearest even, integers truncate, complex keeps the real part.

    Out-of-range values saturate in i32, i64 and u64; NaN becomes 0.
    Smaller types hold the last bits of an i32, u32 those of an i64, u64 of what is negative, too.
    Out-of-range values saturate in f8e4m3 and become infinite in f8e5m2, as in PyTorch.
    """
    if dtype == BOOL:
        return np.not_equal(x, 0)
    if np.iscomplexobj(x) and not dtype.is_complex:
        x = np.real(x)
    if dtype.is_integer and np.asarray(x).dtype.kind == "f":
        from fusec.ir.integers import to_integers

        return to_integers(x, dtype)
    return x


_cast.__name__ = "cast"
cast = declare(
    _cast,
    "pointwise",
    infer=_infer,
    compute=_compute,
    cuda={"default": "{x}"},
    converts=True,
    condition=1,
)
