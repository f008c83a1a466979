"""The predicted time of an attention kernel: its steps along keys, and tiles of queries.

Fitted to times on an H200 of 16384 queries in all, 16 heads of 128 features, by their lengths.
"""

from __future__ import annotations

from collections.abc import Mapping

from fusec.schedule.attention_choice import AttentionParameters
from fusec.schedule.attention_masks import visible
from fusec.schedule.attention_problem import Attention
from fusec.target import Target

_RATE = {1: 0.65, 2: 0.96, 3: 0.93}
"""Of the tensor cores' rate, that warpgroups reach side by side with their softmax."""
_SINGLE = 0.8
"""Of that, where loads wait for products."""
_TURNS = 0.99
"""Of that, where warpgroups take turns at the tensor cores."""
_STEP = 12
"""Keys for which a step along keys costs something besides."""
_TILE = 2.9e-6
"""Seconds from a tile of queries to the next, besides its steps."""
_MASKED_RATE, _MASKED_TILE = 0.85, 5e-6
"""The same where masks say which keys are seen."""


def seconds(
    p: AttentionParameters, attention: Attention, hints: Mapping[str, int], target: Target
) -> float:
    """Return the predicted time without the launch."""
    batches, m, n = (d.evaluate(hints) for d in (attention.batches, attention.m, attention.n))
    features = attention.features.value + attention.value_features.value
    rate = target.half_flops * _RATE[p.warpgroups] / target.sms
    rate *= (_SINGLE if p.stages == 1 else 1.0) * (_TURNS if p.ping_pong else 1.0)
    step = 2.0 * p.rows * (p.tile_keys + _STEP) * features / rate
    steps = -(-n // p.tile_keys)
    tiles = batches * -(-m // p.rows) / target.sms
    if not attention.bounds:
        return -(-tiles // 1) * (steps * step + _TILE)
    seen = steps * visible(attention, hints) + 0.5  # half a step is seen in part
    return max(1.0, tiles) * (seen * step / _MASKED_RATE + _MASKED_TILE)
