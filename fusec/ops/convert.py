"""Conversion between element types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.ir.dim import Dim
from fusec.ir.dtype import BOOL, I32, I64, U64, DType
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
    """Convert, rounding to nearest even; floats to integers towards zero, complex by real part.

    What i32, i64 and u64 cannot hold becomes the nearest number that they can, NaN becomes 0.
    Smaller types hold the last bits of an i32, u32 those of an i64, u64 of what is negative, too.
    What f8e4m3 cannot hold becomes its largest value, of f8e5m2 an infinity, as in PyTorch.
    """
    if dtype == BOOL:
        return np.not_equal(x, 0)
    if np.iscomplexobj(x) and not dtype.is_complex:
        x = np.real(x)
    if dtype.is_integer and np.asarray(x).dtype.kind == "f":
        return _integers(np.trunc(x), dtype)
    return x


def _integers(whole: Array, dtype: DType) -> Array:
    wide = {"i32": I32, "i64": I64, "u32": I64, "u64": I64}.get(dtype.name, I32)
    result = _nearest(whole, wide).astype(dtype.numpy)
    return np.where(whole > 0, _nearest(whole, dtype), result) if dtype == U64 else result


def _nearest(whole: Array, dtype: DType) -> Array:
    """Return whole numbers in an integer type, the nearest that there is."""
    facts = np.iinfo(dtype.numpy)
    end = 2.0 ** (dtype.bits - (dtype.kind == "int"))
    inside = (whole >= facts.min) & (whole < end)
    if np.all(inside):
        return whole.astype(dtype.numpy)
    result = np.asarray(np.where(inside, whole, 0).astype(dtype.numpy))
    result[whole >= end] = facts.max
    result[whole < facts.min] = facts.min
    return result


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
