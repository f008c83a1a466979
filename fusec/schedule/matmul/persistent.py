"""Which field combinations the persistent tile scheduler, `wgmma` in files, does not support."""

from __future__ import annotations

from fusec.ir.dtype import F32
from fusec.schedule.matmul.choice import MOST_CTAS
from fusec.schedule.matmul.dual import no_columns_of_two
from fusec.schedule.matmul.hopper import HopperParameters, PersistentParameters
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.totals import COLUMNS
from fusec.segment.protocol import Refusal

TILE_ROWS = {False: (128, 192, 256), True: (64, 128)}
"""Rows of a `wgmma` tile, by whether each warpgroup has its own tile (ping-pong)."""
MOST_SUMS, MOST_STAGED_SUMS, MOST_FINISHED_SUMS = 192, 160, 128
"""Most accumulators per thread that fit in 232 registers together with the epilogue: if they are
stored unchanged, and if the epilogue computes, on staged pairs or with wider accesses."""
MOST_OF_THREE = 96
"""The same with three consumer warpgroups, with 160 registers per thread."""


def no_persistent(p: PersistentParameters, problem: Product) -> Refusal | None:
    """Return the rule that the fields violate together, or None."""
    rules = (
        _no_rows_of_eight, _no_cluster, _no_parts_of_k, _no_rows, _no_accumulators, _no_groups,
        no_shared_operand, _no_totals, _no_staging, _no_promotion_in_turn, no_promotion,
        _no_dual,
    )  # fmt: skip
    return next(filter(None, (rule(p, problem) for rule in rules)), None)


def _no_rows_of_eight(p: PersistentParameters, problem: Product) -> Refusal | None:
    del problem
    return Refusal("tile", "kernel `wgmma` does not support tile_m 8") if p.tile_m == 8 else None


def _no_cluster(p: PersistentParameters, problem: Product) -> Refusal | None:
    del problem
    if p.ctas <= MOST_CTAS:
        return None
    return Refusal("multicast", f"a cluster has at most {MOST_CTAS} CTAs, not {p.ctas}")


def _no_parts_of_k(p: PersistentParameters, problem: Product) -> Refusal | None:
    """Return why the last wave's tiles cannot be split along K, or None."""
    if p.splits == 1:
        return None
    if problem.cuts:
        return Refusal("splits", "stream-K of the last wave does not support groups")
    if not (problem.m.is_const and problem.n.is_const and problem.k.is_const):
        return Refusal("splits", "stream-K of the last wave needs static sizes")
    return None


def _no_rows(p: PersistentParameters, problem: Product) -> Refusal | None:
    """Return why a tile cannot have that many rows, or None."""
    if p.swap_ab:
        return _no_swap(p, problem)
    rows = TILE_ROWS[p.ping_pong]
    if p.tile_m in rows:
        return None
    how = "with" if p.ping_pong else "without"
    options = " or ".join(map(str, rows))
    because = f"{how} ping_pong, kernel `wgmma` needs tile_m {options}, not {p.tile_m}"
    return Refusal("tile", because)


def _no_swap(p: PersistentParameters, problem: Product) -> Refusal | None:
    """Return why a tile's operands cannot be swapped, or None."""
    if problem.cuts or problem.narrow is not None or problem.dtype == F32 or p.epilogue_smem:
        because = "swap-AB needs a single 16-bit GEMM without a staged epilogue"
        return Refusal("tile", because)
    by = 64 if p.ping_pong else 128
    if p.tile_n % by or p.tile_n // by > 2:
        because = f"with tile_m {p.tile_m}, tile_n must be {by} or {2 * by}, not {p.tile_n}"
        return Refusal("tile", because)
    return None


def _no_accumulators(p: PersistentParameters, problem: Product) -> Refusal | None:
    """Return why a thread cannot hold a tile's accumulators or swap them with lanes, or None."""
    is_dual = problem.dual is not None
    held, most = p.sums, most_sums(p, is_plain=problem.is_plain, is_dual=is_dual)
    if held > most:
        return Refusal(
            "tile", f"a thread would need {held} accumulators; {most} fit with the epilogue"
        )
    if p.vector_width == 8 and p.tile_n % 32:
        return Refusal(
            "access", f"a staged epilogue needs tile_n to be a multiple of 32, got {p.tile_n}"
        )
    return None


def _no_groups(p: PersistentParameters, problem: Product) -> Refusal | None:
    if problem.cuts and (p.ping_pong or p.is_multicast):
        because = "grouped GEMM tiles have different K extents and no common operand"
        return Refusal("groups", because)
    return None


def no_shared_operand(p: HopperParameters, problem: Product) -> Refusal | None:
    """Return why CTAs cannot each load a part of an operand, or None."""
    del problem
    for parts, shared in ((p.cluster_n, p.tile_m), (p.cluster_m, p.tile_n)):
        if shared % (8 * parts):
            because = f"{parts} parts of {shared} columns are not aligned to the swizzle"
            return Refusal("multicast", because)
    return None


def _no_totals(p: PersistentParameters, problem: Product) -> Refusal | None:
    """Return why a tile's results cannot be reduced as requested, or None."""
    if problem.totals and not p.epilogue_smem:
        return Refusal("epilogue_smem", "a fused reduction needs a staged epilogue")
    if problem.totals and p.columns % COLUMNS:
        because = f"a fused reduction needs tile_n to be a multiple of {COLUMNS}, got {p.columns}"
        return Refusal("tile", because)
    return None


def _no_staging(p: PersistentParameters, problem: Product) -> Refusal | None:
    """Return why the epilogue's tensors cannot go through shared memory, or None."""
    if not p.epilogue_smem:
        return None
    if not problem.slots.sizes and not problem.totals:
        return Refusal("epilogue_smem", "no epilogue tensor has rows along the result's")
    width = problem.staged_width
    if p.vector_width != width:
        because = f"a staged epilogue needs vector_width {width}, not {p.vector_width}"
        return Refusal("epilogue_smem", because)
    return None


def most_sums(p: PersistentParameters, *, is_plain: bool, is_dual: bool) -> int:
    """Return the most accumulators that a thread of `wgmma` can hold besides the epilogue.

    is_plain: whether the epilogue only rounds; is_dual: whether a tile holds those of two GEMMs.
    """
    if p.consumers == 3:
        return MOST_OF_THREE
    if is_plain:
        # Swapped accumulators are moved between lanes; with eight CTAs, five are notified of a free
        # stage.
        return MOST_STAGED_SUMS if p.swap_ab or p.ctas > 4 else MOST_SUMS
    # Accumulators of two GEMMs, and of partial tiles, have longer live ranges.
    has_more = is_dual or p.splits > 1
    return MOST_STAGED_SUMS if p.epilogue_smem and not has_more else MOST_FINISHED_SUMS


def _no_promotion_in_turn(p: PersistentParameters, problem: Product) -> Refusal | None:
    if problem.narrow is None or not p.ping_pong:
        return None
    because = (
        "8-bit floats do not support ping_pong: one warpgroup multiplies while the other promotes "
        "its accumulators"
    )
    return Refusal("kernel", because)


def no_promotion(p: HopperParameters, problem: Product) -> Refusal | None:
    """Return why an 8-bit float kernel cannot promote tensor core sums to f32, or None."""
    if problem.narrow is None:
        return None
    held = (p.row_blocks + 1) * p.across // 2
    most = MOST_OF_THREE if p.consumers == 3 else MOST_SUMS
    if held > most:
        because = f"a thread would need {held} accumulators, including promoted ones; {most} fit"
        return Refusal("tile", because)
    return None


def _no_dual(p: PersistentParameters, problem: Product) -> Refusal | None:
    """Return why a tile cannot hold the columns of two GEMMs, or None."""
    if problem.dual is not None and not p.epilogue_smem:
        return Refusal("epilogue_smem", "a dual GEMM needs a staged epilogue")
    return no_columns_of_two(p, problem)
