"""The predicted time of an attention kernel: its steps along keys, and tiles of queries."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.schedule.attention.forward.choice import AttentionParameters
from fusec.schedule.attention.forward.problem import AttentionGraph
from fusec.schedule.attention.masks import visible
from fusec.target import Target


def seconds(
    p: AttentionParameters, attention: AttentionGraph, hints: Mapping[str, int], target: Target
) -> float:
    """Return the predicted time without the launch."""
    batches, m, n = (d.evaluate(hints) for d in (attention.batches, attention.m, attention.n))
    cost = target.cost.attention
    features = attention.features.value + attention.value_features.value
    rate = target.half_flops * cost.warpgroup_reach[p.warpgroups] / target.sms
    share = cost.single_stage_share if p.stages == 1 else 1.0
    rate *= share * (cost.ping_pong_share if p.ping_pong else 1.0)
    step = 2.0 * p.rows * (p.tile_keys + cost.step_keys) * features / rate
    steps = -(-n // p.tile_keys)
    tiles = batches * -(-m // p.rows) / target.sms
    if not attention.bounds:
        return -(-tiles // 1) * (steps * step + cost.tile_seconds)
    seen = steps * visible(attention, hints) + 0.5  # half a step is partly visible
    return max(1.0, tiles) * (seen * step / cost.masked_share + cost.masked_tile_seconds)
