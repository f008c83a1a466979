"""The predicted time of an attention kernel: its tiles of keys, on tensor cores and beside them."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.schedule.attention_choice import AttentionParameters
from fusec.schedule.attention_masks import seen_part
from fusec.schedule.attention_problem import Attention
from fusec.target import Target

_RATE = 0.62
"""Of the tensor cores' rate, which softmax and products reach side by side (estimated)."""
_ALONE = 0.6
"""Of that, where one warpgroup's softmax waits for its own products."""
_TILE = 3e-6
"""Seconds from a tile of queries to the next: first loads, first softmax, outputs (estimated)."""


def seconds(
    p: AttentionParameters, attention: Attention, hints: Mapping[str, int], target: Target
) -> float:
    """Return the predicted time without the launch."""
    batches, m, n = (d.evaluate(hints) for d in (attention.batches, attention.m, attention.n))
    features = attention.features.value + attention.value_features.value
    tiles = batches * -(-m // p.rows)
    steps = -(-n // p.tile_keys) * seen_part(attention.bounds, m, n, hints)
    rate = target.half_flops * _RATE * (1.0 if p.ping_pong else _ALONE) / target.sms
    rate *= p.tile_keys / (p.tile_keys + 16) * p.stages / (p.stages + 0.1)
    step = 2.0 * p.rows * p.tile_keys * features / rate
    return -(-tiles // target.sms) * (steps * step + _TILE)
