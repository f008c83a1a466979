"""The predicted time of a matrix product's kernel: its steps along K, and what follows them."""

from __future__ import annotations

from dataclasses import replace

from fusec.schedule.matmul_beside import RESIDENT, beside
from fusec.schedule.matmul_choice import COMPARED_METHODS, MULTIPLIERS, TURNS, MatmulParameters
from fusec.schedule.matmul_computed import WRITERS
from fusec.schedule.matmul_once import displaced_bytes
from fusec.schedule.matmul_ranges import ranges
from fusec.schedule.matmul_work import ProductWork, computing_seconds, line_cost, part_of_rate
from fusec.schedule.persistent_price import FP8_RATE, ROUNDED, TF32_RATE, persistent_seconds
from fusec.schedule.vector_price import vector_seconds
from fusec.segment.protocol import OVERLAP, Estimate, together
from fusec.target import Target

TURN_SECONDS = 5.4e-6
"""One hand-off between the turns of a tile: a bulk reduction completed, its flag seen (H200)."""

_ARRIVAL = 6.9e-6
"""A slice stored and counted, and the first of the others there (estimated)."""
_SLICE_RATE = 9e10
"""Bytes a second that a CTA reads of slices, from L2 (estimated: 50 bytes a clock)."""
_SECOND, _PARTS_RATE = 5.6e-6, 4.5e12
"""A second kernel, which starts beside the end of the first, and the bytes a second at which parts
are stored and read by all SMs (H200, 34 schedules of 7 products)."""

_BARRIER, _SLOT = 8, 16
"""Bytes of shared memory beside the stages: barriers of each, and what a CTA is told."""

# All of what follows is fitted to times on an H200, K from 512 to 524288.
# By columns of a tile of 128 rows, or rows of one of 128 columns: the inner loop's part of the
# tensor cores' rate.
_RATES = ((0, 0.0), (16, 0.14), (32, 0.28), (64, 0.6), (128, 1.0), (256, 1.1))
# Seconds a tile: first loads and the plain epilogue; and what each CTA of a cluster adds to that.
_TILE, _RANK = 3.2e-6, 0.4e-6
# The more of sums of 8-bit floats over a cluster (128 x 7168 x 2048, two CTAs: 13.4 and 15.1 us,
# with one CTA per SM over all tiles 11.8).
_NARROW_CLUSTER = 1.5e-6
# From asking for a stage to having it, where operands are found in L2, and the more of those that
# are read from memory; one stage is in the hands of the tensor cores.
_L2_STAGE, _MEMORY_STAGE = 0.8e-6, 1.5e-6
# Of the bandwidth, where operands are read once.
_MEMORY_RATE = 1.03
# Bytes a second that an SM takes of L2.
_INGEST = 1.08e11
# 128 bytes that do not begin at a line lie in two, of which others read the rest; right after,
# where they lie along M or N.
_LINES = ({16: 2.0, 32: 2.0, 64: 2.0}, {16: 1.75, 32: 1.75, 64: 1.75})
# Weights a second that an SM makes halves of (estimated).
_CONVERTED = 4.7e10
# Of the issue slots, those that the warps fill which compute rows of A (32 x 8192 x 8192); and from
# asking for what elements are made of to having written them, while others do the same.
_COMPUTING_ISSUE, _COMPUTING_LATENCY = 0.14, 0.8e-6
# mma.sync reaches less of the rate where wgmma exists.
_MMA_RATE, _MMA_RATE_HOPPER = 0.55, 0.25
# Of that, of 10 bits of f32: where both operands lie along K, one across it, and both (4096 cubed).
_MMA_TF32_RATE = (0.56, 0.34, 0.32)
# The part of that which is left where elements of one operand, or of both, are copied one by one.
_LOOSE = (1.0, 0.5, 0.32)
# Seconds of an SM for each result that is stored by itself (5404 x 8545 x 20).
_ELEMENT_STORE = 6e-10
# The part of that which an SM takes by itself: of the rest L2 is the cause, where all of them store
# (estimated).
_STORE_ALONE = 0.2
# Of the multiply-add rate, for 4 x 4 outputs per thread.
_SIMT_RATE = 0.35
# Of the issue slots that eight warps fill, whose products have ended: gelu on a tile, 5.5 us.
_EPILOGUE_ISSUE = 0.45
# Loads of an operand of the epilogue, for which a warp waits before it goes on to its next columns.
_EPILOGUE_LOAD = 0.8e-6


def seconds(p: MatmulParameters, needed: ProductWork, target: Target) -> float:
    """Return the predicted time without the launch: waves of tiles, then the hand-offs."""
    tiles = needed.sizes.tiles(p)
    if p.kernel == "wgmma":
        return persistent_seconds(p, needed, target)
    if p.kernel == "vector":
        return vector_seconds(p, needed, target)
    ctas = needed.sizes.clusters(p) * p.ctas * p.splits  # the last of a pair may be alone
    if p.kernel != "split_k":
        return _plain_seconds(p, needed, ctas, target)
    if p.in_ranges:
        return _range_seconds(p, needed, target)
    filled = target.sms * RESIDENT.get(p.ctas, 0.5) * beside(p, _ring_bytes(p, needed))
    resident = max(1, int(filled) // p.ctas * p.ctas)
    steps = -(-needed.sizes.k // p.tile_k)
    own = -(-steps // (p.cluster * p.splits))
    epilogue = _epilogue_seconds(p, needed, target)
    if p.has_second:  # all SMs share it
        epilogue /= p.splits
    tile = _TILE + _RANK * p.cluster + epilogue
    waves, rest = divmod(ctas, resident)
    taken = hand_off_seconds(p, tiles) + (
        _NARROW_CLUSTER if needed.is_narrow and p.cluster > 1 else 0
    )
    for count, running in ((waves, resident), (1, rest)):
        if count and running:
            step = _step_seconds(p, needed, running, tiles * steps, target)
            taken += count * (own * step + tile)
    return taken


def _range_seconds(p: MatmulParameters, needed: ProductWork, target: Target) -> float:
    """Return the time of CTAs that have as many steps each, of the end of a tile and further ones.

    At the end a CTA adds what another has left at its beginning.
    """
    tiles, steps = needed.sizes.tiles(p), -(-needed.sizes.k // p.tile_k)
    count = ranges(tiles, target)
    own = -(-tiles * steps // count)
    step = _step_seconds(p, needed, count, tiles * steps, target)
    tile = _TILE + _RANK + _epilogue_seconds(p, needed, target)
    met = 2 * 4 * p.tile_m * p.tile_n / _SLICE_RATE
    return own * step + (own / steps + 1) * tile + met


def _ring_bytes(p: MatmulParameters, needed: ProductWork) -> int:
    """Return the shared memory of a CTA of a split product."""
    a, b = needed.widths
    operands = int((p.tile_m * a + p.tile_n * b) * p.tile_k)
    return p.stages * (operands + 2 * _BARRIER) + _SLOT


def _plain_seconds(p: MatmulParameters, needed: ProductWork, ctas: int, target: Target) -> float:
    """Return the time of a kernel with a CTA for each tile, whose steps do not wait for memory."""
    rate, resident = target.flops * _SIMT_RATE / 4, target.sms * 4
    if p.kernel == "mma":
        part = _MMA_RATE_HOPPER if target.capability >= 90 else _MMA_RATE
        part *= _MMA_TF32_RATE[sum(b > 1 for b in needed.blocks)] if needed.is_tf32 else 1.0
        rate, resident = target.half_flops * part * _LOOSE[needed.loose], target.sms
    per_tile = 2.0 * p.tile_m * p.tile_n * max(1, needed.sizes.k) / (rate / target.sms) + 1e-6
    if p.kernel == "mma" and p.vector_width == 1:
        stored = min(p.tile_m, needed.sizes.m) * min(p.tile_n, needed.sizes.n)
        per_tile += stored * _ELEMENT_STORE * max(_STORE_ALONE, min(1.0, ctas / resident))
    # About half of the SMs saturate the memory.
    filled = min(1.0, 2 * max(1, min(ctas, resident)) / target.sms)
    moved = needed.bytes / (target.bandwidth * filled) + 1e-6
    return max(-(-ctas // resident) * per_tile, moved)


def _step_seconds(
    p: MatmulParameters, needed: ProductWork, running: int, steps: int, target: Target
) -> float:
    """Return the time of a stage: of its products, its loads, or what all CTAs load together.

    running: CTAs at a time; steps: of all tiles.
    """
    sizes = needed.sizes
    rows, columns = min(p.tile_m, sizes.m), p.products * min(p.columns, sizes.n)
    (a, b), depth = needed.widths, p.tile_k
    # What a pair shares is asked for once.
    asked = (rows * a * depth / p.pair_columns, columns * b * depth / p.pair_rows)
    loaded = sum(asked)
    taken = sum(part * line_cost(needed, operand, _LINES) for operand, part in enumerate(asked))
    from_memory = min(1.0, needed.bytes / max(1, loaded * steps))
    displaced = 1 + displaced_bytes(p, needed, target) / max(1, needed.bytes)
    # What one CTA of an SM leaves of the rate, others have.
    count = -(-running // target.sms)
    part = part_of_rate(_RATES, p.tile_m if p.swapped else p.tile_n)
    part = min(part, _RATES[-1][1] / count)
    rate = target.half_flops * part / target.sms
    rate *= FP8_RATE if needed.is_narrow else TF32_RATE if needed.is_tf32 else 1.0
    parts = (
        2.0 * p.tile_m * p.tile_n * depth / rate,
        count * p.tile_n * depth / _CONVERTED if p.converted else 0.0,
        (_L2_STAGE + _MEMORY_STAGE * from_memory) / max(1, p.stages - 1),
        count * taken / _INGEST,
        count * loaded / ROUNDED if needed.is_tf32 else 0.0,
        running * loaded * from_memory * displaced / (target.bandwidth * _MEMORY_RATE),
    )
    if needed.computing[0]:
        elements = running * p.tile_m * depth
        computing = computing_seconds(needed, elements, _COMPUTING_ISSUE, target)
        parts = (*parts, computing, _COMPUTING_LATENCY / WRITERS)
    return sum(part**OVERLAP for part in parts) ** (1 / OVERLAP)


def _epilogue_seconds(p: MatmulParameters, needed: ProductWork, target: Target) -> float:
    """Return the time of a CTA's epilogue of a tile beyond a plain one's: nothing hides it."""
    sizes, epilogue = needed.sizes, needed.epilogue
    count = min(p.tile_m, sizes.m) * min(p.columns, sizes.n) / p.cluster
    issued = epilogue.flops / (target.flops / 2 * _EPILOGUE_ISSUE)
    special = epilogue.sfu / target.special
    turns = -(-count // (MULTIPLIERS * p.vector_width)) if epilogue.reads else 0
    return count * max(issued, special) * target.sms + turns * _EPILOGUE_LOAD


def hand_off_seconds(p: MatmulParameters, tiles: int) -> float:
    """Return the time that the clusters of each of so many tiles spend on each other's sums."""
    return 0.0 if p.splits == 1 else _waiting_seconds(p, p.split_method, tiles)


def _waiting_seconds(p: MatmulParameters, method: str, tiles: int) -> float:
    each = 2 if p.leaves_halves else 4
    if method == "two_kernel":
        return _SECOND + tiles * p.splits * p.tile_m * p.tile_n * each / _PARTS_RATE
    if method in TURNS:
        return (p.splits - 1) * TURN_SECONDS
    slices = (1 if method == "parallel" else p.splits) * p.tile_m * p.tile_n * each / p.cluster
    return _ARRIVAL + slices / _SLICE_RATE


def best_method(p: MatmulParameters, tiles: int) -> MatmulParameters:
    """Return a split with the method by which its clusters wait the least."""
    if p.splits == 1:
        return p
    without = {*(TURNS if p.moves_registers else ()), *(("two_kernel",) if p.joined else ())}
    methods = [m for m in COMPARED_METHODS if m not in without]
    method = min(methods, key=lambda m: _waiting_seconds(p, m, tiles))
    return p if method == p.split_method else replace(p, split_method=method)


def lasting(estimate: Estimate, taken: float, target: Target, *, is_simt: bool) -> Estimate:
    """Return an estimate with as many products as make it last as long as a kernel does.

    The predicted time of a kernel knows of its memory and its epilogue, which are not to slow it
    down once more.
    """
    others = together(estimate.parts(target))
    rest = max(0.0, taken**OVERLAP - others**OVERLAP) ** (1 / OVERLAP)
    if is_simt:
        return replace(estimate, flops=estimate.flops + rest * target.flops / 2)
    return replace(estimate, tensor_flops=rest * target.half_flops * 0.8)
