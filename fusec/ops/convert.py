"""Conversion between element types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.ir.dim import Dim
from fusec.ir.dtype import BOOL, DType
from fusec.ir.graph import Operand, Type
from fusec.ops.declare import Array, declare, size_of
from fusec.ops.inputs import check_dtype
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
    """Convert, rounding to nearest even; floats to integers towards zero, complex by real part."""
    if dtype == BOOL:
        return np.not_equal(x, 0)
    if np.iscomplexobj(x) and not dtype.is_complex:
        x = np.real(x)
    if dtype.is_integer and np.asarray(x).dtype.kind == "f":
        return np.trunc(x)
    return x


_cast.__name__ = "cast"
cast = declare(_cast, "pointwise", infer=_infer, compute=_compute, cuda={"default": "{x}"})
