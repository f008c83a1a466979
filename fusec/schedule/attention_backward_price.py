"""The predicted time of attention's backward: products of both walks, and tiles that are owned."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.schedule.attention_backward_choice import BackwardParameters
from fusec.schedule.attention_backward_problem import Backward
from fusec.schedule.attention_masks import seen_part
from fusec.target import Target

_RATE = {1: 0.5, 2: 0.75, 3: 0.75}
"""Of the tensor cores' rate, that warpgroups reach side by side with their weights."""
_STEP = 8
"""Rows for which a step costs something besides."""
_TILE = 4e-6
"""Seconds from a tile that is owned to the next, besides its steps."""


def seconds(
    p: BackwardParameters, backward: Backward, hints: Mapping[str, int], target: Target
) -> float:
    """Return the predicted time of both kernels without their launches."""
    batches, m, n = (d.evaluate(hints) for d in (backward.batches, backward.m, backward.n))
    features, values = backward.features.value, backward.value_features.value
    rate = target.half_flops * _RATE[p.warpgroups] / target.sms
    seen = seen_part(backward.bounds, m, n, hints) if backward.bounds else 1.0
    total = 0.0
    for of_keys, own, others in ((True, n, m), (False, m, n)):
        # Both products with the own rows, then one sum, or two where keys are owned.
        depth = 2 * features + (2 if of_keys else 1) * values
        tile = p.others(of_keys=of_keys)
        step = 2.0 * p.rows * (tile + _STEP) * depth / rate
        tiles = batches * -(-own // p.rows) / target.sms
        waves = max(1.0, tiles) if backward.bounds else -(-tiles // 1)
        steps = -(-others // tile) * seen + (0.5 if backward.bounds else 0.0)
        total += waves * (steps * step + _TILE)
    return total
