"""What may be asked of tensor cores: fewer bits of factors in f32."""

from __future__ import annotations

from fusec.ir.op import Cost
from fusec.ops.declare import Array, pointwise
from fusec.ops.dtypes import FLOAT

TF32_UNITS = 2.0**12
"""Half of a unit of 10 bits behind the point, in units of 2^-23."""


@pointwise(
    cuda={"f32": "fusec::round_to_tf32({x})", "default": "{x}"},
    dtype=FLOAT,
    cost=Cost(1),
    accuracy=TF32_UNITS,
)
def tf32(x: Array) -> Array:
    """Return x, of which no more than 10 bits behind the point count: tensor cores multiply these.

    Where both factors of a product in f32 are such, it is off by 2^-11 of each, and is quicker.
    """
    return x
