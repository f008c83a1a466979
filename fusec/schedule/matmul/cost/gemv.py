"""The predicted time of a GEMM kernel that streams B."""

from __future__ import annotations

from math import ceil

from fusec.schedule.matmul.cost.work import ProductWork, computing_seconds
from fusec.schedule.matmul.gemv import GemvParameters
from fusec.schedule.matmul.limits import WARPS
from fusec.target import Target


def gemv_seconds(p: GemvParameters, needed: ProductWork, target: Target) -> float:
    """Return the time without the launch: rounds of loads, bound by the memory bandwidth.

    Waiting blocks start as others end, so the last ones are not a separate wave.
    """
    sizes, cost = needed.sizes, target.cost.matmul_gemv
    blocks = sizes.tiles(p) * p.splits
    places = target.sms * p.resident
    running = min(blocks, places)
    rounds = ceil(ceil(ceil(sizes.k / p.tile_k) / p.splits) / p.stages)
    loaded = min(p.tile_n, sizes.n) * min(p.tile_k * p.stages, sizes.k) * needed.widths[1]
    share = cost.stage_share.get(p.stages, 1.0) * cost.row_share.get(p.tile_m, 1.0)
    rate = cost.memory_reach * (1.0 if p.converted else share)
    parts = [cost.round_seconds, running * loaded / (target.bandwidth * rate)]
    if p.converted:
        rows = min(p.tile_m, sizes.m) * min(p.tile_k * p.stages, sizes.k) * needed.widths[0]
        parts.append(running * (loaded + rows) / (target.l2_bandwidth * cost.l2_reach))
        if needed.blocks[1] > 1:
            weights = min(p.tile_n, sizes.n) * min(p.tile_k * p.stages, sizes.k)
            parts.append(weights / cost.converted_across_rate)
    if needed.computing[0]:
        computed = running * p.tile_m * min(p.tile_k * p.stages, sizes.k)
        parts.append(computing_seconds(needed, computed, cost.computed_rows_issue, target))
    norm = cost.overlap_exponent
    each = sum(part**norm for part in parts) ** (1 / norm)
    elements = min(p.tile_m, sizes.m) * min(p.tile_n, sizes.n)
    flops, _ = needed.epilogue.operations(target)
    after = flops * elements / (32 * WARPS) * 32 / target.flops * target.sms
    # Half of the first round's loads, and of the last round's MMAs, do not overlap.
    taken = cost.start_seconds + max(1.0, blocks / places) * rounds * each + each / 2 + after
    return taken + (cost.slice_arrival_seconds if p.splits > 1 else 0.0)
