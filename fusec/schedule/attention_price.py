"""The predicted time of an attention kernel: its steps along keys, and tiles of queries.

Fitted to times on an H200 of 16384 queries in all, 16 heads of 128 features, by their lengths.
"""

from __future__ import annotations

from collections.abc import Mapping

from fusec.schedule.attention_choice import AttentionParameters
from fusec.schedule.attention_masks import seen_part
from fusec.schedule.attention_problem import Attention
from fusec.target import Target

_RATE = {1: 0.6, 2: 0.91, 3: 0.87}
"""Of the tensor cores' rate, that warpgroups reach side by side with their softmax."""
_MASKED = 0.92
"""Of that, where masks say what is seen."""
_STEP = 12
"""Keys for which a step along keys costs something besides."""
_TILE = 1.5e-6
"""Seconds from a tile of queries to the next, besides its steps."""
_ALONE = {1: 1.0, 2: 0.4}
"""Seconds, in steps, that a tile waits for its queries, by the tiles of queries at hand."""
_FIRST = 3e-6
"""Seconds before the first scores and after the last sums."""


def seconds(
    p: AttentionParameters, attention: Attention, hints: Mapping[str, int], target: Target
) -> float:
    """Return the predicted time without the launch."""
    batches, m, n = (d.evaluate(hints) for d in (attention.batches, attention.m, attention.n))
    features = attention.features.value + attention.value_features.value
    tiles = batches * -(-m // p.rows)
    steps = -(-n // p.tile_keys) * seen_part(attention.bounds, m, n, hints)
    if attention.bounds:
        steps += 0.5  # that are seen in part
    rate = target.half_flops * _RATE[p.warpgroups] / target.sms
    rate *= _MASKED if attention.bounds else 1.0
    step = 2.0 * p.rows * (p.tile_keys + _STEP) * features / rate
    waits = _ALONE[p.query_stages] + (0.0 if p.stages > 1 else steps)
    waves = max(1.0, tiles / target.sms) if attention.bounds else -(-tiles // target.sms)
    return waves * ((steps + waits) * step + _TILE) + _FIRST
