"""The sum, product or extremum of the blocks of all ranks, bitwise equal on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fusec.diagnostics import Unsupported
from fusec.ir.dtype import DType, of_numpy
from fusec.ir.evaluate import Array

_FUNCTIONS: dict[str, Any] = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def check_reduction(reduction: str, dtype: DType) -> None:
    """Raise Unsupported for a reduction that is undefined for a type."""
    if reduction not in _FUNCTIONS:
        raise Unsupported(f"no reduction over ranks is called `{reduction}`")
    if dtype.is_complex and reduction in ("max", "min"):
        raise Unsupported(f"complex numbers ({dtype}) have no {reduction} over ranks")


def reduce_blocks(blocks: Sequence[Array], reduction: str) -> Array:
    """Return blocks of one type reduced in order.

    16-bit floats are accumulated in f32 and rounded once; integers wrap around; the sum of bools is
    whether any is true, their product whether all are. Extrema propagate NaN.
    """
    dtype = of_numpy(blocks[0].dtype)
    check_reduction(reduction, dtype)
    function, wide = _FUNCTIONS[reduction], dtype.compute.numpy
    with np.errstate(all="ignore"):
        total = blocks[0].astype(wide)
        for block in blocks[1:]:
            function(total, block.astype(wide), out=total)
        return total.astype(dtype.numpy)
