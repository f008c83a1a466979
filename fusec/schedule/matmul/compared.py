"""The schedule parameters of a GEMM that the cost model compares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import inf
from typing import Any, TypeVar

from fusec.dataclasses import fields, replace
from fusec.schedule.matmul.choice import (
    MOST_SWAP_AB_ROWS,
    STAGES,
    SWAP_AB_ROWS,
    MatmulParameters,
    Sizes,
)
from fusec.schedule.matmul.cost.estimate import best_method
from fusec.schedule.matmul.cost.occupancy import room
from fusec.schedule.matmul.gemv import (
    MOST_ROWS,
    MOST_WEIGHTED_ROWS,
    GemvParameters,
    across_shapes,
    vector_shapes,
)
from fusec.schedule.matmul.hopper import (
    MOST_DEEP_ROWS,
    MOST_PARTS,
    MULTIPLIERS,
    TILE_K,
    HopperParameters,
    PersistentParameters,
    SplitKParameters,
    StreamKParameters,
)
from fusec.schedule.matmul.limits import STREAM_K
from fusec.schedule.matmul.operands.computed import MOST_ROWS as MOST_COMPUTED
from fusec.schedule.matmul.portable import MmaParameters, SimtParameters
from fusec.schedule.matmul.records import RECORDS
from fusec.schedule.matmul.shared import bytes_of_stage, layout_of
from fusec.schedule.matmul.stream_k import PARTS
from fusec.schedule.matmul.tiles import persistent_tiles
from fusec.schedule.matmul.traits import Traits
from fusec.target import Target

R = TypeVar("R", bound=MatmulParameters)
H = TypeVar("H", bound=HopperParameters)
KEPT = 256
"""Most GEMMs whose compared parameters are cached; a model has fewer."""
WEIGHED_TILES = ((256, 128),)
"""Tiles of weights that are converted once for twice as many rows."""
SPLIT_TILES = ((128, 256), (128, 128), (128, 64), (64, 128), (32, 128), (16, 128))
"""Tile rows and columns of split-K GEMMs; tiles with other than 128 rows swap operands."""
WIDE_TILES = ((32, 256), (64, 256))
"""The same for 16-bit floats only, where more columns reuse the loaded rows of a small M."""
MOST_ROWS_OF_TWO = 64
"""Rows of swapped tiles that leave registers for two CTAs per SM."""
MOST_BLOCKS = {True: 8, False: 2}
"""Most blocks per SM of a gemv that splits K; for N-major weights no more were measured."""
LEAST_STEPS = 16
"""Least steps along K for which two CTAs pay."""


@lru_cache(KEPT)
def compared(
    problem: Traits, able: tuple[str, ...], target: Target, kernel: str = ""
) -> tuple[MatmulParameters, ...]:
    """Return the parameters to compare, of one kernel or of all that can run the GEMM.

    If tensor cores can run it, no other kernel is compared, nor mma if there is wgmma.
    """
    return tuple(_compared(problem, able, target, kernel))


def _compared(
    problem: Traits, able: tuple[str, ...], target: Target, kernel: str
) -> Iterator[MatmulParameters]:
    steps = -(-problem.sizes.k // HopperParameters.depth(problem, 0))
    if kernel:
        names, steps = {kernel} & {*able}, max(steps, LEAST_STEPS)
    else:
        worse = _worse(problem, able)
        names = [k for k in able if k not in worse]
    for name in names:
        yield from _OF_KERNEL[name](problem, steps, target)


def _worse(problem: Traits, able: tuple[str, ...]) -> frozenset[str]:
    """Return the kernels that are slower than another one that can run the GEMM."""
    has_tma = any(RECORDS[k].uses_tma for k in able)
    most = MOST_ROWS
    if problem.has_converted_weights:
        most = MOST_WEIGHTED_ROWS if has_tma else problem.sizes.m
    slower = (
        ("simt", len(able) > 1),
        ("mma", has_tma),
        ("gemv", len(able) > 1 and problem.sizes.m > most),
    )
    return frozenset(name for name, is_slower in slower if is_slower)


def _persistent(problem: Traits, steps: int, target: Target) -> Iterator[MatmulParameters]:
    own = PersistentParameters.tile_of(problem, 0)
    tiles = (replace(p, **own) for p in persistent_tiles(problem, problem.sizes, target))
    for tile in dict.fromkeys(tiles):
        width = problem.staged_width if tile.epilogue_smem else _width(problem, tile.widths)
        whole = _deepest(replace(tile, vector_width=width), problem, target.shared)
        yield whole
        if not problem.cuts:
            yield from _parts(whole, problem.sizes, steps, target)


def _split_k(problem: Traits, steps: int, target: Target) -> Iterator[MatmulParameters]:
    sizes = problem.sizes
    for rows, columns in _split_tiles(problem):
        plain = SplitKParameters(rows, columns, **SplitKParameters.tile_of(problem, rows), stages=2)
        whole = _deepest(_widest(plain, problem), problem, target.shared)
        number = sizes.tiles(whole)
        for tile in (whole, *_two_per_sm(whole, problem, target)):
            alone = tile.converted or tile.dual or problem.is_computed
            yield from _splits(tile, number, steps, target, alone=alone)
            if not problem.is_computed:
                yield from _pairs(tile, sizes, steps, target)
            if tile.converted:
                yield _in_ranges(tile)


def _split_tiles(problem: Traits) -> Iterable[tuple[int, int]]:
    """Return the tile rows and columns to compare for split-K GEMMs."""
    m = problem.sizes.m
    wide = () if SplitKParameters.depth(problem, 0) > TILE_K else WIDE_TILES
    if problem.has_converted_weights and m > MOST_DEEP_ROWS:
        wide = WEIGHED_TILES
    padded = next((r for r in (16, 32, 64) if r >= m), -(-m // 128) * 128)
    fitting = [(r, c) for r, c, whole in swap_ab_tiles(m) if whole <= padded]
    most = MOST_COMPUTED if problem.is_computed else inf
    return dict.fromkeys(t for t in (*SPLIT_TILES, *wide, *fitting) if t[0] <= most)


def _in_ranges(tile: SplitKParameters) -> StreamKParameters:
    """Return a tile with its steps divided evenly among the SMs (stream-K)."""
    own: dict[str, Any] = {f.name: getattr(tile, f.name) for f in fields(tile)}
    own |= {"splits": PARTS, "split_method": STREAM_K}
    return StreamKParameters(**own)


def _gemv(problem: Traits, steps: int, target: Target) -> Iterator[MatmulParameters]:
    del steps
    sizes, own = problem.sizes, GemvParameters.tile_of(problem, 0)
    if problem.is_b_k_major or not problem.has_converted_weights:
        shapes = vector_shapes(sizes.m, converted=problem.has_converted_weights)
    else:
        shapes = across_shapes(sizes.m)
    for rows, columns, stages in shapes:
        whole = _widest(GemvParameters(rows, columns, **own, stages=stages), problem)
        each = MOST_BLOCKS[problem.is_b_k_major or not whole.converted]
        most = min(-(-sizes.k // whole.tile_k), max(1, each * target.sms // sizes.tiles(whole)))
        yield from (replace(whole, splits=n) for n in range(1, most + 1))


def _mma(problem: Traits, steps: int, target: Target) -> Iterator[MatmulParameters]:
    del steps, target
    yield _widest(MmaParameters(), problem)


def _simt(problem: Traits, steps: int, target: Target) -> Iterator[MatmulParameters]:
    del steps, target
    yield _widest(SimtParameters(), problem)


_OF_KERNEL: Mapping[str, Callable[[Traits, int, Target], Iterator[MatmulParameters]]] = {
    "wgmma": _persistent, "split_k": _split_k, "gemv": _gemv, "mma": _mma, "simt": _simt,
}  # fmt: skip
"""The generator of each kernel's parameters, for a GEMM and its number of steps along K."""


def _two_per_sm(
    tile: SplitKParameters, problem: Traits, target: Target
) -> Iterator[SplitKParameters]:
    """Yield a tile with two CTAs per SM, which together keep as many loads in flight.

    Kernels that convert weights are bound by the conversion, not by memory: two CTAs were never
    faster (H200).
    """
    if tile.swap_ab and tile.tile_m <= MOST_ROWS_OF_TWO and not tile.converted:
        yield replace(tile, stages=most_stages(replace(tile, splits=2), problem, room(2)))


def swap_ab_tiles(m: int) -> Iterator[tuple[int, int, int]]:
    """Yield rows and columns of swapped tiles, up to three for m rows, and their total rows."""
    for tiles in (1, 2, 3):
        rows = -(-m // (16 * tiles)) * 16
        if rows in SWAP_AB_ROWS:
            yield rows, MULTIPLIERS // 2, rows * tiles
            if rows <= MOST_SWAP_AB_ROWS:
                yield rows, MULTIPLIERS, rows * tiles


def _splits(
    tile: SplitKParameters, tiles: int, steps: int, target: Target, *, alone: bool
) -> Iterator[SplitKParameters]:
    """Yield every split of K whose CTAs have work and run in at most two waves.

    alone: whether no other kernel can run the GEMM, even if K is short.
    """
    for cluster in (1, 2, 4, 8):
        most = min(2 * steps // LEAST_STEPS, max(1, 2 * target.sms // tiles)) // cluster
        if alone and cluster <= 2:
            most = max(1, most)
        for splits in _counts(most, _filling(tile, tiles, cluster, target)):
            if splits * cluster > 1 or tile.swap_ab or tile.dual:
                split = replace(tile, cluster_k=cluster, splits=splits)
                yield best_method(split, tiles, target.cost.matmul)


def _parts(
    tile: PersistentParameters, sizes: Sizes, steps: int, target: Target
) -> Iterator[PersistentParameters]:
    """Yield a tile with its last wave split along K, if that wave leaves half of the SMs idle."""
    left = sizes.clusters(tile) % tile.resident_clusters(target)
    if left:
        most = min(tile.resident_clusters(target) // left, steps // LEAST_STEPS, MOST_PARTS)
        yield from (replace(tile, splits=n) for n in sorted({min(most, 4), most}) if n > 1)


def _pairs(
    tile: SplitKParameters, sizes: Sizes, steps: int, target: Target
) -> Iterator[SplitKParameters]:
    """Yield splits of K for clusters of two neighbouring tiles, which share an operand."""
    if tile.tile_k > TILE_K or sizes.tiles(tile) > 2 * target.sms:
        return
    along_m, along_n = replace(tile, cluster_m=2), replace(tile, cluster_n=2)
    for pair, extent, by in ((along_m, sizes.m, tile.tile_m), (along_n, sizes.n, tile.tile_n)):
        few = tile.tile_m < MOST_ROWS_OF_TWO if pair is along_n else tile.converted
        if extent <= by or few:
            continue
        most = max(1, min(2 * steps // LEAST_STEPS, 2 * target.sms // sizes.tiles(tile)))
        for splits in _counts(most, _filling(pair, sizes.tiles(tile), 1, target)):
            split = replace(pair, splits=splits)
            yield best_method(split, sizes.tiles(tile), target.cost.matmul)


def _counts(most: int, others: Iterable[int]) -> Iterator[int]:
    """Yield split counts up to a limit: the given ones, and a series in steps of one eighth."""
    counts, count = {n for n in others if 0 < n <= most}, 1
    while count <= most:
        counts.add(count)
        count += max(1, count // 8)
    yield from sorted(counts)


def _filling(p: SplitKParameters, tiles: int, cluster: int, target: Target) -> Iterator[int]:
    """Yield the splits whose CTAs fill (nearly) all SMs once or twice."""
    fill = target.cost.matmul.cluster_fill
    room = int(target.sms * fill[cluster * p.cluster_m * p.cluster_n])
    for waves in (1, 2):
        yield waves * room // (tiles * cluster)


def most_stages(p: HopperParameters, problem: Traits, shared: int) -> int:
    """Return the most stages of a Hopper kernel that fit in an SM: more are always faster."""
    most = min(STAGES[-1], shared // bytes_of_stage(p, problem.kinds))
    slots = p.slots(problem.slots)
    fits = (
        s
        for s in range(most, STAGES[0] - 1, -1)
        if layout_of(replace(p, stages=s), problem.kinds, slots).bytes <= shared
    )
    return next(fits, 2)


def _deepest(p: H, problem: Traits, shared: int) -> H:
    """Return parameters with the most stages that fit."""
    return replace(p, stages=most_stages(p, problem, shared))


def _widest(p: R, problem: Traits) -> R:
    """Return parameters with the widest epilogue access."""
    return replace(p, vector_width=_width(problem, p.widths))


def _width(problem: Traits, widths: Iterable[int]) -> int:
    """Return the widest epilogue access whose columns divide N."""
    return next(w for w in widths if problem.columns % w == 0) if problem.columns else 1
