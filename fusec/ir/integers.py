"""Conversion of floats to integers: the rule of casts and of all other conversions."""

from __future__ import annotations

from typing import Any, cast

from fusec.ir.arrays import np
from fusec.ir.dtype import I32, I64, U64, DType


def to_integers(array: Any, dtype: DType) -> Any:
    """Return floats converted to integers of a type, truncated.

    Out-of-range values saturate in i32, i64 and u64; NaN becomes 0. Smaller types take the low bits
    of an i32, u32 those of an i64, as does u64 for negative values.
    """
    with np.errstate(all="ignore"):
        whole: Any = np.trunc(array)
        wide = {"i32": I32, "i64": I64, "u32": I64, "u64": I64}.get(dtype.name, I32)
        result: Any = _nearest(whole, wide).astype(dtype.numpy)
        if dtype != U64:
            return result
        return cast(Any, np.where(whole > 0, _nearest(whole, dtype), result))


def _nearest(whole: Any, dtype: DType) -> Any:
    """Return integral values in an integer type, saturated."""
    facts = np.iinfo(dtype.numpy)
    end = 2.0 ** (dtype.bits - (dtype.kind == "int"))
    inside = (whole >= facts.min) & (whole < end)
    if np.all(inside):
        return whole.astype(dtype.numpy)
    result = np.asarray(np.where(inside, whole, 0).astype(dtype.numpy))
    result[whole >= end] = facts.max
    result[whole < facts.min] = facts.min
    return result
