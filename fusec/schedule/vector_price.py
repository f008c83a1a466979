"""The predicted time of a product's kernel that streams over B."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusec.schedule.matmul_vector import MOST_SUMS, WARPS, resident
from fusec.segment.protocol import OVERLAP
from fusec.target import Target

if TYPE_CHECKING:
    from fusec.schedule.matmul_choice import MatmulParameters
    from fusec.schedule.matmul_work import ProductWork

_START = 2e-6
"""Seconds before the first words of B are there, and after the last of them."""
_LATENCY = 1.1e-6
"""From asking for a part of B to having multiplied it, while memory is busy."""
_INGEST = 1.12e11
"""Bytes a second that an SM takes of L2, 64 a clock."""
_MEMORY_RATE = 0.97
"""Of the bandwidth, where operands are read once."""
_SLICES = 2e-6
"""A slice stored and counted, and the first of the others there."""


def vector_seconds(p: MatmulParameters, needed: ProductWork, target: Target) -> float:
    """Return the time without the launch: rounds of blocks, each of the steps of its part of K."""
    sizes = needed.sizes
    tiles = sizes.tiles(p)
    blocks = tiles * p.splits
    places = target.sms * resident(p)
    steps = -(-(-(-sizes.k // p.tile_k) // p.splits) // p.stages)
    depth = min(p.tile_k * p.stages, sizes.k) * 2
    columns, rows = min(p.tile_n, sizes.n), min(p.tile_m, sizes.m)
    each = (columns + rows) * depth
    rounds = -(-blocks // places)
    running = -(-blocks // rounds)
    # An SM has at most so many blocks at a time as divide evenly among all.
    beside = -(-running // target.sms)
    parts = (
        _LATENCY,
        beside * each / _INGEST,
        running * columns * depth / (target.bandwidth * _MEMORY_RATE),
    )
    step = sum(part**OVERLAP for part in parts) ** (1 / OVERLAP)
    pieces = -(-sizes.n * sizes.m // max(1, tiles)) / (32 * WARPS)
    epilogue = pieces * needed.epilogue.flops / MOST_SUMS * 1e-6
    return _START + rounds * steps * step + epilogue + (_SLICES if p.splits > 1 else 0.0)
