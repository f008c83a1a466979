"""The predicted time of a product's kernel that streams over B."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from fusec.schedule.matmul_vector import WARPS, resident
from fusec.schedule.matmul_work import computing_seconds
from fusec.target import Target

if TYPE_CHECKING:
    from fusec.schedule.matmul_choice import MatmulParameters
    from fusec.schedule.matmul_work import ProductWork

# All of what follows is fitted to times on an H200, of 33 to 470 MB of B.
_START = 2.75e-6
"""Seconds before the first words of B are there and after the last, with a plain epilogue."""
_LATENCY = 0.8e-6
"""From asking for the parts of a round to having multiplied them, while memory has nothing else to
do."""
_MEMORY_RATE = 0.98
"""Of the bandwidth, where B is read once."""
_STAGES = {1: 0.865, 2: 1.0, 4: 0.93}
"""The part of that by the stages: 128 bytes of a column are half of what L2 fetches, whose other
half another warp asks for, and 512 of each warp fill the queues of the memory."""
_ROWS = {8: 1.0, 16: 0.93, 32: 0.85}
"""The same by the rows of a tile, which are loaded from L1 and L2 beside B."""
_L2_RATE = 1.25
"""Of `l2_bandwidth`, where rows of A are more than the columns of weights (8 rows and more)."""
_ACROSS_RATE = 2.6e10
"""Weights along N a second that a block makes halves of, whatever their bits."""
_COMPUTING_ISSUE = 0.45
"""Of the issue slots, those in which rows of A are computed beside loads of B."""
_SLICES = 3.9e-6
"""A slice stored and counted, and the first of the others there."""
_NORM = 4
"""How far the latency of loads and their bandwidth are hidden behind each other."""


def vector_seconds(p: MatmulParameters, needed: ProductWork, target: Target) -> float:
    """Return the time without the launch: rounds of loads, which end when memory has given all.

    Blocks that wait begin as others end, so that the last ones are not a wave of their own.
    """
    sizes = needed.sizes
    blocks = sizes.tiles(p) * p.splits
    places = target.sms * resident(p)
    running = min(blocks, places)
    rounds = ceil(ceil(ceil(sizes.k / p.tile_k) / p.splits) / p.stages)
    loaded = min(p.tile_n, sizes.n) * min(p.tile_k * p.stages, sizes.k) * needed.widths[1]
    rate = _MEMORY_RATE * (
        1.0 if p.converted else _STAGES.get(p.stages, 1.0) * _ROWS.get(p.tile_m, 1.0)
    )
    parts = [_LATENCY, running * loaded / (target.bandwidth * rate)]
    if p.converted:
        rows = min(p.tile_m, sizes.m) * min(p.tile_k * p.stages, sizes.k) * needed.widths[0]
        parts.append(running * (loaded + rows) / (target.l2_bandwidth * _L2_RATE))
        if needed.blocks[1] > 1:
            weights = min(p.tile_n, sizes.n) * min(p.tile_k * p.stages, sizes.k)
            parts.append(weights / _ACROSS_RATE)
    if needed.computing[0]:
        computed = running * p.tile_m * min(p.tile_k * p.stages, sizes.k)
        parts.append(computing_seconds(needed, computed, _COMPUTING_ISSUE, target))
    each = sum(part**_NORM for part in parts) ** (1 / _NORM)
    elements = min(p.tile_m, sizes.m) * min(p.tile_n, sizes.n)
    after = needed.epilogue.flops * elements / (32 * WARPS) * 32 / target.flops * target.sms
    # Half of the loads of the first round, and of the last one's products, overlap nothing.
    taken = _START + max(1.0, blocks / places) * rounds * each + each / 2 + after
    return taken + (_SLICES if p.splits > 1 else 0.0)
