"""The predicted time of a GEMM kernel: its steps along K, and what follows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusec.dataclasses import replace
from fusec.ir.identity_cache import IdentityCache
from fusec.schedule.matmul.choice import COMPARED_METHODS, TURNS, MatmulParameters
from fusec.schedule.matmul.cost.cache_hints import displaced_bytes
from fusec.schedule.matmul.cost.gemv import gemv_seconds
from fusec.schedule.matmul.cost.occupancy import ctas_per_sm
from fusec.schedule.matmul.cost.persistent import persistent_seconds
from fusec.schedule.matmul.cost.work import ProductWork, computing_seconds, line_cost, part_of_rate
from fusec.schedule.matmul.gemv import GemvParameters
from fusec.schedule.matmul.hopper import (
    MULTIPLIERS,
    PersistentParameters,
    SplitKParameters,
    StreamKParameters,
)
from fusec.schedule.matmul.operands.computed import WRITERS
from fusec.schedule.matmul.portable import SimtParameters
from fusec.schedule.matmul.stream_k import ranges
from fusec.segment.protocol import OVERLAP, Estimate, together
from fusec.target import Target
from fusec.target.costs import MatmulCost

_SIMT_RESIDENT = 4
"""Resident CTAs per SM of kernel `simt`."""
_BARRIER, _SLOT = 8, 16
"""Bytes of shared memory besides the stages: barriers per stage, and a slot for a CTA's ticket."""


def seconds(p: MatmulParameters, needed: ProductWork, target: Target) -> float:
    """Return the predicted time without the launch: waves of tiles, then the split-K combine."""
    match p:
        case PersistentParameters():
            return persistent_seconds(p, needed, target)
        case GemvParameters():
            return gemv_seconds(p, needed, target)
        case StreamKParameters():
            return _range_seconds(p, needed, target)
        case SplitKParameters():
            return _split_seconds(p, needed, target)
        case SimtParameters():
            return _plain_seconds(p, needed, _simt_seconds(p, needed, target), target)
        case _:
            return _plain_seconds(p, needed, _mma_seconds(p, needed, target), target)


_RANKED = IdentityCache[Sequence[MatmulParameters]]()


def ranked(
    found: Iterable[MatmulParameters], needed: ProductWork, target: Target
) -> Sequence[MatmulParameters]:
    """Return records in the order of their predicted time, fastest first.

    The order is cached for the records and the work: a GEMM is offered with many fused operations.
    """
    return _RANKED.of(
        found, (needed, target), lambda: sorted(found, key=lambda p: seconds(p, needed, target))
    )


def _split_seconds(p: SplitKParameters, needed: ProductWork, target: Target) -> float:
    """Return the time of clusters that each compute a partition of K of a tile."""
    tiles, ctas = needed.sizes.tiles(p), _ctas(p, needed)
    cost = target.cost.matmul
    filled = (
        target.sms * cost.cluster_fill.get(p.ctas, 0.5) * ctas_per_sm(p, _ring_bytes(p, needed))
    )
    resident = max(1, int(filled) // p.ctas * p.ctas)
    steps = -(-needed.sizes.k // p.tile_k)
    own = -(-steps // (p.cluster_k * p.splits))
    epilogue = _epilogue_seconds(p, needed, target)
    if p.has_second:  # all SMs share it
        epilogue /= p.splits
    tile = cost.tile_seconds + cost.cluster_rank_seconds * p.cluster_k + epilogue
    waves, rest = divmod(ctas, resident)
    taken = hand_off_seconds(p, tiles, cost) + (
        cost.fp8_cluster_seconds if needed.is_narrow and p.cluster_k > 1 else 0
    )
    for count, running in ((waves, resident), (1, rest)):
        if count and running:
            step = _step_seconds(p, needed, running, tiles * steps, target)
            taken += count * (own * step + tile)
    return taken


def _ctas(p: MatmulParameters, needed: ProductWork) -> int:
    """Return the CTAs of all partitions of all tiles; the last of a pair may be alone."""
    return needed.sizes.clusters(p) * p.ctas * p.splits


def _range_seconds(p: StreamKParameters, needed: ProductWork, target: Target) -> float:
    """Return the time of stream-K: CTAs with equally many steps, which may begin inside a tile.

    A CTA that ends a tile adds the partial sums of the CTA that began it.
    """
    tiles, steps = needed.sizes.tiles(p), -(-needed.sizes.k // p.tile_k)
    count = ranges(tiles, target)
    own = -(-tiles * steps // count)
    step = _step_seconds(p, needed, count, tiles * steps, target)
    cost = target.cost.matmul
    tile = cost.tile_seconds + cost.cluster_rank_seconds + _epilogue_seconds(p, needed, target)
    met = 2 * 4 * p.tile_m * p.tile_n / cost.slice_rate
    return own * step + (own / steps + 1) * tile + met


def _ring_bytes(p: SplitKParameters, needed: ProductWork) -> int:
    """Return the shared memory of a CTA of a split-K GEMM."""
    a, b = needed.widths
    operands = int((p.tile_m * a + p.tile_n * b) * p.tile_k)
    return p.stages * (operands + 2 * _BARRIER) + _SLOT


def _plain_seconds(
    p: MatmulParameters, needed: ProductWork, computed: float, target: Target
) -> float:
    """Return the time of a kernel with one CTA per tile, whose steps do not wait for memory.

    computed: the seconds of the operations.
    """
    # About half of the SMs saturate the memory bandwidth.
    resident = target.sms * (1 if p.on_tensor_cores else _SIMT_RESIDENT)
    filled = min(1.0, 2 * max(1, min(_ctas(p, needed), resident)) / target.sms)
    moved = needed.bytes / (target.bandwidth * filled) + target.cost.matmul.plain_start_seconds
    return max(computed, moved)


def _mma_seconds(p: MatmulParameters, needed: ProductWork, target: Target) -> float:
    """Return the time of mma.sync and of the epilogue, in waves of one CTA per SM."""
    cost, ctas = target.cost.matmul, _ctas(p, needed)
    part = cost.mma_reach_hopper if target.capability >= 90 else cost.mma_reach
    across = sum(b > 1 for b in needed.blocks)
    part *= cost.mma_tf32_reach[across] if needed.is_tf32 else 1.0
    rate = target.half_flops * part * cost.unaligned_reach[needed.loose]
    per_tile = 2.0 * p.tile_m * p.tile_n * max(1, needed.sizes.k) / (rate / target.sms)
    per_tile += cost.plain_tile_seconds
    if p.vector_width == 1:
        stored = min(p.tile_m, needed.sizes.m) * min(p.tile_n, needed.sizes.n)
        share = max(cost.lone_store_share, min(1.0, ctas / target.sms))
        per_tile += stored * cost.element_store_seconds * share
    return -(-ctas // target.sms) * per_tile


def _simt_seconds(p: MatmulParameters, needed: ProductWork, target: Target) -> float:
    """Return the time of multiply-adds, one stage at a time: CTAs of an SM share its rate.

    A single CTA waits for its loads. 64-bit words take twice as long.
    """
    cost = target.cost.matmul
    words = 2 if max(needed.widths) >= 8 else 1
    steps = -(-max(1, needed.sizes.k) // p.tile_k)
    work = 2.0 * p.tile_m * p.tile_n * p.tile_k * target.sms / (target.flops * cost.simt_reach)
    waves, rest = divmod(_ctas(p, needed), target.sms * _SIMT_RESIDENT)
    taken = 0.0
    for count, of_sm in ((waves, _SIMT_RESIDENT), (1, -(-rest // target.sms))):
        if count and of_sm:
            step = words * max(cost.simt_step_seconds, of_sm * work)
            taken += count * (steps * step + cost.plain_tile_seconds)
    return taken


def _step_seconds(
    p: SplitKParameters, needed: ProductWork, running: int, steps: int, target: Target
) -> float:
    """Return the time of a stage, bound by its wgmma, its loads, or the loads of all CTAs.

    running: resident CTAs; steps: of all tiles.
    """
    sizes, cost, common = needed.sizes, target.cost.matmul, target.cost.matmul_wgmma
    rows, columns = min(p.tile_m, sizes.m), p.products * min(p.columns, sizes.n)
    (a, b), depth = needed.widths, p.tile_k
    # An operand that a pair shares is loaded once.
    asked = (rows * a * depth / p.cluster_n, columns * b * depth / p.cluster_m)
    loaded = sum(asked)
    penalties = cost.line_penalties
    taken = sum(part * line_cost(needed, side, penalties) for side, part in enumerate(asked))
    from_memory = min(1.0, needed.bytes / max(1, loaded * steps))
    displaced = 1 + displaced_bytes(p, needed, target) / max(1, needed.bytes)
    # CTAs of an SM fill each other's gaps in the tensor core rate.
    count = -(-running // target.sms)
    part = part_of_rate(cost.tensor_reach, p.tile_m if p.swap_ab else p.tile_n)
    part = min(part, cost.tensor_reach[-1][1] / count)
    rate = target.half_flops * part / target.sms
    rate *= common.fp8_ratio if needed.is_narrow else common.tf32_ratio if needed.is_tf32 else 1.0
    parts = (
        2.0 * p.tile_m * p.tile_n * depth / rate,
        count * p.tile_n * depth / cost.converted_weights_rate if p.converted else 0.0,
        (cost.l2_stage_seconds + cost.memory_stage_seconds * from_memory) / max(1, p.stages - 1),
        count * taken / cost.smem_fill_rate,
        count * loaded / common.tf32_rounding_rate if needed.is_tf32 else 0.0,
        running * loaded * from_memory * displaced / (target.bandwidth * cost.memory_reach),
    )
    if needed.computing[0]:
        elements = running * p.tile_m * depth
        computing = computing_seconds(needed, elements, cost.computed_rows_issue, target)
        parts = (*parts, computing, cost.computed_rows_seconds / WRITERS)
    return sum(part**OVERLAP for part in parts) ** (1 / OVERLAP)


def _epilogue_seconds(p: SplitKParameters, needed: ProductWork, target: Target) -> float:
    """Return the extra time of a CTA's epilogue over a plain one: nothing overlaps with it."""
    sizes, epilogue, cost = needed.sizes, needed.epilogue, target.cost.matmul
    count = min(p.tile_m, sizes.m) * min(p.columns, sizes.n) / p.cluster_k
    flops, sfu = epilogue.operations(target)
    issued = flops / (target.flops / 2)
    special = sfu / target.special
    turns = -(-count // (MULTIPLIERS * p.vector_width)) if epilogue.reads else 0
    return count * max(issued, special) * target.sms + turns * cost.epilogue_load_seconds


def hand_off_seconds(p: SplitKParameters, tiles: int, cost: MatmulCost) -> float:
    """Return the time that the clusters of each of `tiles` tiles spend combining partial sums."""
    return 0.0 if p.splits == 1 else _waiting_seconds(p, p.split_method, tiles, cost)


def _waiting_seconds(p: SplitKParameters, method: str, tiles: int, cost: MatmulCost) -> float:
    each = 2 if p.leaves_halves else 4
    if method == "two_pass":
        stored = tiles * p.splits * p.tile_m * p.tile_n * each
        return cost.second_kernel_seconds + stored / cost.workspace_rate
    if method in TURNS:
        return (p.splits - 1) * cost.serial_hand_off_seconds
    slices = (1 if method == "parallel" else p.splits) * p.tile_m * p.tile_n * each / p.cluster_k
    return cost.slice_arrival_seconds + slices / cost.slice_rate


def best_method(p: SplitKParameters, tiles: int, cost: MatmulCost) -> SplitKParameters:
    """Return a split with the method whose clusters are predicted to wait the least."""
    if p.splits == 1:
        return p
    without = {*(TURNS if p.uses_setmaxnreg else ()), *(("two_pass",) if p.dual else ())}
    methods = [m for m in COMPARED_METHODS if m not in without]
    method = min(methods, key=lambda m: _waiting_seconds(p, m, tiles, cost))
    return p if method == p.split_method else replace(p, split_method=method)


def lasting(estimate: Estimate, taken: float, target: Target, *, is_simt: bool) -> Estimate:
    """Return an estimate with enough tensor work that its total equals a kernel's predicted time.

    That time already includes memory and epilogue, which must not be counted twice.
    """
    others = together(estimate.parts(target))
    rest = max(0.0, taken**OVERLAP - others**OVERLAP) ** (1 / OVERLAP)
    if is_simt:
        multiplied = rest * target.flops / 2 * target.issue
        return replace(estimate, flops=estimate.flops + multiplied)
    return replace(
        estimate, tensor_flops=rest * target.half_flops * target.cost.matmul.sustained_reach
    )
