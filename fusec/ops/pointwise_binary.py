"""Arithmetic of two operands."""

from __future__ import annotations

from fusec.ops.declare import Array, pointwise
from fusec.ops.dtypes import PROMOTE
from fusec.ops.lazy import np


@pointwise(cuda={"bool": "{a} || {b}", "default": "{a} + {b}"}, dtype=PROMOTE, commutative=True,
           sizes=lambda a, b: a + b)  # fmt: skip
def add(a: Array, b: Array) -> Array:
    """Add two operands; of bools, their or."""
    return np.add(a, b)


@pointwise(cuda={"bool": "{a} && {b}", "default": "{a} * {b}"}, dtype=PROMOTE, commutative=True,
           sizes=lambda a, b: a * b)  # fmt: skip
def mul(a: Array, b: Array) -> Array:
    """Multiply two operands; of bools, their and."""
    return np.multiply(a, b)
