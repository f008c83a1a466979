"""The predicted time of decode attention: waves of blocks that read, and the final combine."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.schedule.attention.decode.choice import IN_REGISTERS, DecodeParameters, shared_layout
from fusec.schedule.attention.decode.problem import Decode
from fusec.schedule.pressure import MOST, resident_blocks
from fusec.target import Target

LEAST_TILES = 2
"""Tiles per warp below which another split does not pay."""
MOST_WAVES = 8


def held(decode: Decode, p: DecodeParameters) -> int:
    """Return the registers per thread of queries, accumulators, scores and weights."""
    graph = decode.graph
    features = graph.features.value
    queries = features // 4 if features <= IN_REGISTERS else 0
    return queries + graph.value_features.value // 2 + p.tile_keys * 3 // 4


def streaming(moved: int, target: Target) -> float:
    """Return the lower bound in seconds for reading that many bytes."""
    return moved / (target.bandwidth * target.cost.attention_decode.memory_reach)


def seconds(
    p: DecodeParameters, decode: Decode, moved: int, hints: Mapping[str, int], target: Target
) -> float:
    """Return the predicted time without the launch; moved: bytes of memory."""
    blocks = max(1, decode.batches.evaluate(hints)) * p.splits
    places = _places(p, decode, target)
    waves, left = -(-blocks // places), blocks % places
    # With few blocks left for the last wave, each gets more than its share of the bandwidth.
    idle = (blocks - left + max(left, target.sms / target.draw if left else 0)) / blocks
    cost = target.cost.attention_decode
    parts = cost.combine_seconds + cost.further_split_seconds * p.splits if p.splits > 1 else 0.0
    read = streaming(moved, target)
    uneven = min(cost.uneven_share * read, cost.uneven_limit_seconds)
    return read * idle + uneven + cost.wave_seconds * waves + parts


def best_splits(
    p: DecodeParameters, decode: Decode, hints: Mapping[str, int], target: Target
) -> list[int]:
    """Return the split counts that make whole waves of blocks."""
    keys = decode.graph.n.evaluate(hints)
    most = max(1, keys // (p.tile_keys * p.warps * LEAST_TILES))
    blocks, places = max(1, decode.batches.evaluate(hints)), _places(p, decode, target)
    found = {1, *(wave * places // blocks for wave in range(1, MOST_WAVES + 1))}
    return sorted({min(most, max(1, splits)) for splits in found})


def _places(p: DecodeParameters, decode: Decode, target: Target) -> int:
    """Return how many blocks are resident on the GPU at a time."""
    registers = min(MOST, held(decode, p) + 60)
    shared = shared_layout(p, decode).bytes
    return target.sms * max(1, resident_blocks(p.threads, registers, shared, target))
