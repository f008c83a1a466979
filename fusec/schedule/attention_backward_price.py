"""The predicted time of attention's backward: products of both walks, and tiles that are owned.

Fitted to times on an H200 of 16384 queries in all, 16 heads of 128 features, by their lengths.
"""

from __future__ import annotations

from collections.abc import Mapping

from fusec.schedule.attention_backward_choice import BackwardParameters
from fusec.schedule.attention_backward_problem import Backward
from fusec.schedule.attention_masks import visible
from fusec.target import Target

_RATE = {True: 1.08, False: 0.98}
"""Of the tensor cores' rate, that two warpgroups reach where they own keys, or queries."""
_ONE = 0.65
"""Of that, one warpgroup alone."""
_STEP = {True: 26, False: 14}
"""Rows for which a step costs something besides."""
_TILE = 3e-6
"""Seconds from a tile that is owned to the next, besides its steps."""


def seconds(
    p: BackwardParameters, backward: Backward, hints: Mapping[str, int], target: Target
) -> float:
    """Return the predicted time of all kernels without their launches."""
    batches, m, n = (d.evaluate(hints) for d in (backward.batches, backward.m, backward.n))
    features, values = backward.features.value, backward.value_features.value
    peak = target.half_flops / target.sms * (_ONE if p.warpgroups == 1 else 1.0)
    seen = visible(backward, hints)
    total = 0.0
    for walk in p.walks:
        of_keys = walk.of_keys
        own, others = (n, m) if of_keys else (m, n)
        # The products with the own rows, then the sums.
        depth = features + walk.pulls * values + walk.sums(features, values)
        tile = p.others(of_keys=of_keys)
        step = 2.0 * p.rows * (tile + _STEP[of_keys]) * depth / (peak * _RATE[of_keys])
        tiles = batches * -(-own // p.rows) / target.sms
        waves, steps = -(-tiles // 1), float(-(-others // tile))
        if backward.bounds:
            waves, steps = max(1.0, tiles), steps * seen + 0.5 + 0.5 * p.rows / tile
        total += waves * (steps * step + _TILE)
    return total
