"""ATen operations whose op line depends on shapes, types or several results.

All others are converted by their entry in the table of names, `fusec.ops.frameworks`.
"""

from __future__ import annotations

from fusec.models.rules import (  # each declares its rules
    attention,
    composed,
    convolution,
    creation,
    indices,
    movement,
    norms,
    pointwise,
    pooling,
)
from fusec.models.rules.build import RULES as RULES

__all__ = [
    "RULES", "attention", "composed", "convolution", "creation", "indices", "movement", "norms",
    "pointwise", "pooling",
]  # fmt: skip
