"""The predicted time of attention's backward: the GEMM steps of both walks, and owned tiles."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.schedule.attention.backward.choice import BackwardParameters
from fusec.schedule.attention.backward.problem import Backward
from fusec.schedule.attention.masks import visible
from fusec.target import Target


def seconds(
    p: BackwardParameters, backward: Backward, hints: Mapping[str, int], target: Target
) -> float:
    """Return the predicted time of all kernels without their launches."""
    batches, m, n = (d.evaluate(hints) for d in (backward.batches, backward.m, backward.n))
    features, values = backward.features.value, backward.value_features.value
    cost = target.cost.attention_backward
    share = cost.one_warpgroup_share if p.warpgroups == 1 else 1.0
    peak = target.half_flops / target.sms * share
    seen = visible(backward, hints)
    total = 0.0
    for walk in p.walks:
        of_keys = walk.of_keys
        own, others = (n, m) if of_keys else (m, n)
        # Depth of the GEMMs that read the owned rows, then of those that accumulate.
        depth = features + walk.pulls * values + walk.sums(features, values)
        tile = p.others(of_keys=of_keys)
        step = 2.0 * p.rows * (tile + cost.step_rows) * depth / peak
        tiles = batches * -(-own // p.rows) / target.sms
        waves, steps = -(-tiles // 1), float(-(-others // tile))
        if backward.bounds:
            waves, steps = max(1.0, tiles), steps * seen + 0.5 + 0.5 * p.rows / tile
        total += waves * (steps * step + cost.tile_seconds)
    return total
