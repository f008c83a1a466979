"""The tiles of persistent GEMM kernels that the cost model compares."""

from __future__ import annotations

from collections.abc import Iterator

from fusec.dataclasses import replace
from fusec.schedule.matmul.choice import CLUSTERS, TRANSPOSED_ROWS, Sizes
from fusec.schedule.matmul.dual import join_multiple
from fusec.schedule.matmul.hopper import PersistentParameters
from fusec.schedule.matmul.persistent import most_sums
from fusec.schedule.matmul.traits import Traits
from fusec.target import Target

PERSISTENT = (
    (128, 256, False), (256, 128, False), (128, 192, False), (128, 128, True), (128, 160, True),
    (128, 192, True), (64, 256, True), (128, 128, False), (128, 64, False),
)  # fmt: skip
"""Rows and columns of the tiles, and whether with ping-pong."""
PERSISTENT_FP8 = ((256, 128, False), (128, 192, False), (128, 128, False), (128, 64, False))
"""The same for 8-bit floats: while a warpgroup promotes its sums, the other one multiplies."""
FITTED = ((128, False), (192, False), (256, False), (128, True), (64, True))
"""Rows of tiles whose columns are fitted to a GEMM's N, and whether with ping-pong."""
SWAP_AB = ((256, False), (128, True), (128, False))
"""Columns of tiles with swapped operands, whose rows are fitted to a GEMM's M."""
MOST_SWAP_AB = 2048
"""Largest M for which small changes of the rows per tile make a difference."""
LEAST_RESULTS, LEAST_COLUMNS = 96 * 128, 64
"""Least results and columns of a tile with fitted columns: stages of smaller ones take no less time
(256 x 72, 128 x 96 and 64 x 192 are the smallest that were measured)."""
_STAGE_COLUMNS = 32
"""Extra columns per stage that account for its time beyond wgmma."""


def persistent_tiles(
    problem: Traits, sizes: Sizes, target: Target
) -> Iterator[PersistentParameters]:
    """Yield the tiles, with the supported multicast and staging of each.

    Tiles that fill whole waves of the SMs are among them. Rows are staged wherever they can be;
    only some tiles are also compared without staging.
    """
    narrow = problem.is_narrow
    can_stage = bool(problem.slots.sizes) or problem.has_totals
    for m, n in CLUSTERS:
        stagings = (True, False) if narrow or (m, n) == CLUSTERS[0] else (can_stage,)
        tiles = [*(PERSISTENT_FP8 if narrow else PERSISTENT)]
        if not narrow:
            for rows, ping_pong in FITTED:
                tile = PersistentParameters(rows, 8, 64, 2, ping_pong=ping_pong, epilogue_smem=True)
                pair = replace(tile, cluster_m=m, cluster_n=n)
                for in_parts in (False, True):
                    columns = _fitted(pair, problem, sizes, target, in_parts=in_parts)
                    tiles.append((rows, columns, ping_pong))
        for rows, columns, ping_pong in dict.fromkeys(tiles):
            for staged in stagings if can_stage else (False,):
                yield PersistentParameters(
                    rows, columns, 64, 2,
                    cluster_m=m, cluster_n=n, ping_pong=ping_pong, epilogue_smem=staged,
                )  # fmt: skip
        if sizes.m <= MOST_SWAP_AB:
            for columns, ping_pong in SWAP_AB:
                tile = PersistentParameters(80, columns, 64, 2, ping_pong=ping_pong)
                pair = replace(tile, cluster_m=m, cluster_n=n)
                yield replace(pair, tile_m=_fitted_rows(pair, problem, sizes, target))


def _fitted(
    tile: PersistentParameters, problem: Traits, sizes: Sizes, target: Target, *, in_parts: bool
) -> int:
    """Return the columns that fill all waves of tiles best.

    in_parts: whether tiles are split along K if they are fewer than the SMs.
    """
    by, products = 8 * tile.cluster_m, 1
    if problem.is_dual:
        by, products = join_multiple(tile.cluster_m, is_k_major=problem.is_b_k_major), 2
    most = (
        min(
            256,
            2
            * most_sums(tile, is_plain=problem.is_plain, is_dual=problem.is_dual)
            // tile.row_blocks,
        )
        // by
        * by
    )
    rows = sizes.batches * -(-sizes.m // (tile.tile_m * tile.cluster_m))
    places = tile.resident_clusters(target)

    def seconds(columns: int) -> float:
        tiles = rows * -(-sizes.n // (columns // products * tile.cluster_n))
        parts = max(1, places // tiles) if in_parts else 1
        return -(-tiles // places) * (columns + _STAGE_COLUMNS) / parts

    least = min(most, max(LEAST_COLUMNS, LEAST_RESULTS // tile.tile_m))
    return min(range(most, least - 1, -by), key=seconds)


def _fitted_rows(tile: PersistentParameters, problem: Traits, sizes: Sizes, target: Target) -> int:
    """Return the rows, with swapped operands, that fill all waves best."""
    most = (
        2 * most_sums(tile, is_plain=problem.is_plain, is_dual=problem.is_dual) // tile.row_blocks
    )
    by = 8 * tile.cluster_n
    found = [r for r in TRANSPOSED_ROWS if LEAST_COLUMNS <= r <= most and r % by == 0]
    columns = sizes.batches * -(-sizes.n // (tile.tile_n * tile.cluster_n))
    places = tile.resident_clusters(target)

    def seconds(rows: int) -> int:
        tiles = -(-sizes.m // (rows * tile.cluster_m))
        return -(-columns * tiles // places) * (rows + _STAGE_COLUMNS)

    return min(reversed(found), key=seconds)
