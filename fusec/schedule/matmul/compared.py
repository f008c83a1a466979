"""The parameters of a matrix product that are compared by price."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from fusec.dataclasses import replace
from fusec.ir.dtype import F32
from fusec.schedule.matmul.choice import (
    HOPPER,
    MOST_PARTS,
    MOST_SWAPPED_ROWS,
    MULTIPLIERS,
    STAGES,
    SWAPPED_ROWS,
    TILES,
    MatmulParameters,
    Sizes,
)
from fusec.schedule.matmul.cost.occupancy import clusters, room
from fusec.schedule.matmul.cost.price import best_method
from fusec.schedule.matmul.limits import ACROSS_PART, RANGES, WARPS, WEIGHT_PART
from fusec.schedule.matmul.operands.computed import MOST_ROWS as MOST_COMPUTED
from fusec.schedule.matmul.ranges import PARTS
from fusec.schedule.matmul.shared import bytes_of_stage, layout_of
from fusec.schedule.matmul.staged import StagedSlots
from fusec.schedule.matmul.tiles import persistent_tiles
from fusec.schedule.matmul.traits import Traits
from fusec.schedule.matmul.vector import MOST_ROWS, MOST_WEIGHTED_ROWS, across_shapes, vector_shapes
from fusec.target import Target

KEPT = 256
"""Products of which the parameters are kept; those of a model are fewer."""
TILE_K_BYTES = 128
"""Elements of K of a stage of 8 bits and of fewer; then sums of 8-bit floats are promoted. Of f32
there are as many bytes."""
MOST_DEEP_ROWS = 128
"""Rows of A beside which a stage of weights is as deep: of more, two would fill an SM."""
WEIGHED_TILES = ((256, 128),)
"""Tiles of weights that are converted once for twice as many rows."""
SPLIT_TILES = ((128, 256), (128, 128), (128, 64), (64, 128), (32, 128), (16, 128))
"""Rows and columns of the tiles of split products; those of other rows than 128 swap operands."""
WIDE_TILES = ((32, 256), (64, 256))
"""The same, of halves alone, where more columns share what is loaded of few rows."""
MOST_BESIDE = 64
"""Rows of swapped tiles that leave registers for two CTAs of an SM."""
MOST_BLOCKS = {True: 8, False: 2}
"""Blocks of an SM of a stream that splits K; of weights along N no more were measured."""
LEAST_STEPS = 16
"""Steps along K that are worth two CTAs."""


@lru_cache(KEPT)
def compared(
    problem: Traits, able: tuple[str, ...], target: Target, kernel: str = ""
) -> tuple[MatmulParameters, ...]:
    """Return the parameters to compare, of one kernel or of those that can run the product.

    Where tensor cores can, nothing else is worth a comparison, nor mma where there is wgmma.
    """
    return tuple(_compared(problem, able, target, kernel))


def _compared(
    problem: Traits, able: tuple[str, ...], target: Target, kernel: str
) -> Iterator[MatmulParameters]:
    sizes = problem.sizes
    steps = -(-sizes.k // _tile_k("wgmma", problem))
    if kernel:
        steps = max(steps, LEAST_STEPS)
    worse = {"simt"} if len(able) > 1 else set[str]()
    if {*HOPPER} & {*able}:
        worse.add("mma")
    if problem.has_converted_weights:
        most = MOST_WEIGHTED_ROWS if {*HOPPER} & {*able} else sizes.m
    else:
        most = MOST_ROWS
    if sizes.m > most and len(able) > 1:
        worse.add("vector")
    for name in (k for k in able if k not in worse) if not kernel else {kernel} & {*able}:
        for shape in _shapes(name, sizes, problem, target):
            if problem.is_computed and shape.tile_m > MOST_COMPUTED:
                continue
            width = problem.staged_width if shape.staged else _width(problem, shape.widths)
            whole = replace(shape, vector_width=width)
            if name in HOPPER:
                whole = replace(whole, stages=most_stages(whole, problem, target.shared))
            number = sizes.tiles(whole)
            if name == "split_k":
                for tile in (whole, *_beside(whole, problem, target)):
                    alone = tile.converted or tile.joined or problem.is_computed
                    yield from _splits(tile, number, steps, target, alone=alone)
                    if not problem.is_computed:
                        yield from _pairs(tile, sizes, steps, target)
                    if tile.converted:
                        yield replace(tile, splits=PARTS, split_method=RANGES)
            elif name == "vector":
                each = MOST_BLOCKS[problem.is_b_k_major or not whole.converted]
                most = min(-(-sizes.k // whole.tile_k), max(1, each * target.sms // number))
                yield from (replace(whole, splits=n) for n in range(1, most + 1))
            else:
                yield whole
                if name == "wgmma" and not problem.cuts:
                    yield from _parts(whole, sizes, steps, target)


def _beside(tile: MatmulParameters, problem: Traits, target: Target) -> Iterator[MatmulParameters]:
    """Yield a tile of which an SM has two CTAs: together they have as much in flight.

    What converts weights is bound by that, not by the memory: two were never quicker (H200).
    """
    if tile.swapped and tile.tile_m <= MOST_BESIDE and not tile.converted:
        yield replace(tile, stages=most_stages(replace(tile, splits=2), problem, room(2)))


def _tile_k(kernel: str, problem: Traits, rows: int = 0) -> int:
    """Return the elements of K of a step of a kernel, of a tile of so many rows."""
    if kernel in HOPPER and problem.has_converted_weights and rows > MOST_DEEP_ROWS:
        return TILES[kernel]["tile_k"]
    if kernel in HOPPER and (problem.is_narrow or problem.has_converted_weights):
        return TILE_K_BYTES
    if kernel in HOPPER and problem.dtype == F32:
        return TILE_K_BYTES // F32.size
    if kernel == "vector" and problem.has_converted_weights:
        return WARPS * (WEIGHT_PART if problem.is_b_k_major else ACROSS_PART)
    return TILES[kernel]["tile_k"]


def tile_of(kernel: str, problem: Traits, rows: int) -> dict[str, int]:
    """Return the fields that follow from the kernel, from what it multiplies and a tile's rows."""
    return {
        **TILES[kernel],
        "tile_k": _tile_k(kernel, problem, rows),
        "joined": problem.is_joined,
        "converted": kernel in ("split_k", "vector") and problem.has_converted_weights,
    }


def _shapes(
    kernel: str, sizes: Sizes, problem: Traits, target: Target
) -> Iterator[MatmulParameters]:
    """Yield the tiles of a kernel, whose K nobody shares yet."""
    given = tile_of(kernel, problem, 0)
    if kernel == "wgmma":
        tiles = persistent_tiles(problem, sizes, target)
        yield from dict.fromkeys(replace(p, **given) for p in tiles)
    elif kernel == "split_k":
        wide = () if given["tile_k"] > TILES["split_k"]["tile_k"] else WIDE_TILES
        if problem.has_converted_weights and sizes.m > MOST_DEEP_ROWS:
            wide = WEIGHED_TILES
        padded = next((r for r in (16, 32, 64) if r >= sizes.m), -(-sizes.m // 128) * 128)
        fitting = [(r, c) for r, c, whole in swapped_tiles(sizes.m) if whole <= padded]
        for rows, columns in dict.fromkeys((*SPLIT_TILES, *wide, *fitting)):
            own = tile_of(kernel, problem, rows)
            yield replace(MatmulParameters("split_k", rows, columns, 64, 2), **own)
    elif kernel == "vector":
        converted = problem.has_converted_weights
        if problem.is_b_k_major or not converted:
            shapes = vector_shapes(sizes.m, converted=converted)
        else:
            shapes = across_shapes(sizes.m)
        for rows, columns, stages in shapes:
            yield replace(MatmulParameters("vector", rows, columns, 64, stages), **given)
    elif kernel == "mma":
        yield MatmulParameters("mma", 128, 128, 32, 3)
    else:
        yield MatmulParameters("simt", 64, 64, 16, 1)


def swapped_tiles(m: int) -> Iterator[tuple[int, int, int]]:
    """Yield rows and columns of swapped tiles of which up to three hold m rows, and rows of all."""
    for tiles in (1, 2, 3):
        rows = -(-m // (16 * tiles)) * 16
        if rows in SWAPPED_ROWS:
            yield rows, MULTIPLIERS // 2, rows * tiles
            if rows <= MOST_SWAPPED_ROWS:
                yield rows, MULTIPLIERS, rows * tiles


def _splits(
    tile: MatmulParameters, tiles: int, steps: int, target: Target, *, alone: bool
) -> Iterator[MatmulParameters]:
    """Yield every split of K whose CTAs have work and come in two waves at most.

    alone: whether no other kernel is to be had, however short K is.
    """
    for cluster in (1, 2, 4, 8):
        most = min(2 * steps // LEAST_STEPS, max(1, 2 * target.sms // tiles)) // cluster
        if alone and cluster <= 2:
            most = max(1, most)
        for splits in _counts(most, _filling(tile, tiles, cluster, target)):
            if splits * cluster > 1 or tile.swapped or tile.joined:
                split = replace(tile, cluster=cluster, splits=splits)
                yield best_method(split, tiles, target.cost.matmul)


def _parts(
    tile: MatmulParameters, sizes: Sizes, steps: int, target: Target
) -> Iterator[MatmulParameters]:
    """Yield a tile whose last wave is divided along K, where it leaves half of the SMs idle."""
    left = sizes.clusters(tile) % clusters(tile, target)
    if left:
        most = min(clusters(tile, target) // left, steps // LEAST_STEPS, MOST_PARTS)
        yield from (replace(tile, splits=n) for n in sorted({min(most, 4), most}) if n > 1)


def _pairs(
    tile: MatmulParameters, sizes: Sizes, steps: int, target: Target
) -> Iterator[MatmulParameters]:
    """Yield splits of K of two neighbouring tiles at a time, which share an operand."""
    if tile.tile_k > TILES["split_k"]["tile_k"] or sizes.tiles(tile) > 2 * target.sms:
        return
    for multicast, extent, by in (("b", sizes.m, tile.tile_m), ("a", sizes.n, tile.tile_n)):
        pair = replace(tile, multicast=multicast)
        few = tile.tile_m < MOST_BESIDE if multicast == "a" else tile.converted
        if extent <= by or few:
            continue
        most = max(1, min(2 * steps // LEAST_STEPS, 2 * target.sms // sizes.tiles(tile)))
        for splits in _counts(most, _filling(pair, sizes.tiles(tile), 1, target)):
            split = replace(pair, splits=splits)
            yield best_method(split, sizes.tiles(tile), target.cost.matmul)


def _counts(most: int, others: Iterable[int]) -> Iterator[int]:
    """Yield numbers of splits up to one: others, and ones that are an eighth apart."""
    counts, count = {n for n in others if 0 < n <= most}, 1
    while count <= most:
        counts.add(count)
        count += max(1, count // 8)
    yield from sorted(counts)


def _filling(p: MatmulParameters, tiles: int, cluster: int, target: Target) -> Iterator[int]:
    """Yield the splits whose CTAs fill all SMs, or nearly, once or twice."""
    fill = target.cost.matmul.cluster_fill
    room = int(target.sms * fill[cluster * p.pair_rows * p.pair_columns])
    for waves in (1, 2):
        yield waves * room // (tiles * cluster)


def most_stages(p: MatmulParameters, problem: Traits, shared: int) -> int:
    """Return the most stages of a Hopper kernel that fit in an SM: more always are faster."""
    most = min(STAGES[-1], shared // bytes_of_stage(p, problem.kinds))
    slots = problem.slots if p.staged else StagedSlots()
    fits = (
        s
        for s in range(most, STAGES[0] - 1, -1)
        if layout_of(replace(p, stages=s), problem.kinds, slots).bytes <= shared
    )
    return next(fits, 2)


def _width(problem: Traits, widths: Iterable[int]) -> int:
    """Return the widest access of the epilogue whose columns divide N."""
    return next(w for w in widths if problem.columns % w == 0) if problem.columns else 1
