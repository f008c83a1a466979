"""An embedding with a norm limit: as in PyTorch, it renormalizes rows of the weight in place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fusec.parse.dsl.datatype import DataType

if TYPE_CHECKING:
    from fusec.nvfuser.definition import FusionDefinition

_GUARD = 1e-7
"""Constant that PyTorch adds to a norm before it divides by it."""


def embedding_with_norm(
    definition: FusionDefinition, index: Any, weight: Any, max_norm: Any, norm_type: Any
) -> Any:
    """Return rows of the weight, none longer than `max_norm`; the weight changes in place."""
    ops = definition.ops
    power = 2.0 if norm_type is None else norm_type
    rows = ops.cast(ops.embedding_fwd(index, weight), dtype=DataType.Float)
    powers = ops.sum(ops.pow(ops.abs(rows), power), [-1], keepdim=True)
    norm = ops.pow(powers, ops.reciprocal(power))
    scale = ops.where(norm > max_norm, ops.truediv(max_norm, norm + _GUARD), 1.0)
    kept = ops.cast(ops.mul(rows, scale), dtype=weight.dtype)
    count, width = math.prod(ops.size(index, k) for k in range(index.ndim)), ops.size(weight, 1)
    places = ops.broadcast_in_dim(ops.reshape(index, [count]), [count, width], [0])
    new = ops.scatter(weight, places, ops.reshape(kept, [count, width]), 0)
    definition.add_output(new, weight)
    return kept
