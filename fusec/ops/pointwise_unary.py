"""Functions of one operand: powers, roots and reciprocals."""

from __future__ import annotations

from fusec.ir.op import Cost
from fusec.ops.declare import Array, pointwise
from fusec.ops.dtypes import FLOAT
from fusec.ops.lazy import np


@pointwise(cuda={"f32": "rsqrtf({x})", "f64": "rsqrt({x})"}, dtype=FLOAT, cost=Cost(0, 1),
           domain=(1e-3, 1e3), accuracy=2)  # fmt: skip
def rsqrt(x: Array) -> Array:
    """Return the reciprocal square root, 1 / sqrt(x)."""
    return 1 / np.sqrt(x)
