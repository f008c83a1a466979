"""Which fields of the persistent tile scheduler, `wgmma` in files, no kernel has together."""

from __future__ import annotations

from fusec.ir.dtype import F32
from fusec.schedule.matmul.choice import MOST_CTAS
from fusec.schedule.matmul.dual import no_columns_of_two
from fusec.schedule.matmul.hopper import HopperParameters, PersistentParameters
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.totals import COLUMNS
from fusec.segment.protocol import Refusal

TILE_ROWS = {False: (128, 192, 256), True: (64, 128)}
"""Rows of a tile of `wgmma`, by whether each warpgroup has a tile of its own (ping-pong)."""
MOST_SUMS, MOST_STAGED_SUMS, MOST_FINISHED_SUMS = 192, 160, 128
"""Sums of a tile that a thread can hold beside what else it needs of 232 registers: where they are
stored as they are, and where an epilogue computes, on staged pairs or on wider accesses."""
MOST_OF_THREE = 96
"""The same with three warpgroups that multiply, of 160 registers."""


def no_persistent(p: PersistentParameters, problem: Product) -> Refusal | None:
    """Return which fields the kernel cannot have together, or None."""
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
    """Return why the last wave's tiles cannot have parts along K, or None."""
    if p.splits == 1:
        return None
    if problem.cuts:
        return Refusal("splits", "stream-K of the last wave does not support groups")
    if not (problem.m.is_const and problem.n.is_const and problem.k.is_const):
        return Refusal("splits", "stream-K of the last wave needs static sizes")
    return None


def _no_rows(p: PersistentParameters, problem: Product) -> Refusal | None:
    """Return why a tile cannot have so many rows, or None."""
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
    """Return why a thread cannot hold a tile's sums, or exchange them, or None."""
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
    """Return why a tile's results are not reduced as they are to be, or None."""
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
    """Return the sums of a tile that a thread of `wgmma` can hold beside the epilogue.

    is_plain: whether that only rounds; is_dual: whether a tile holds those of two products.
    """
    if p.consumers == 3:
        return MOST_OF_THREE
    if is_plain:
        # Swapped sums are exchanged; of eight CTAs five are told that a stage is free.
        return MOST_STAGED_SUMS if p.swap_ab or p.ctas > 4 else MOST_SUMS
    # The sums of two products, and those of parts of a tile, live side by side for longer.
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
    """Return why a kernel of 8-bit floats cannot add what tensor cores have summed, or None."""
    if problem.narrow is None:
        return None
    held = (p.row_blocks + 1) * p.across // 2
    most = MOST_OF_THREE if p.consumers == 3 else MOST_SUMS
    if held > most:
        because = f"a thread would need {held} accumulators, including promoted ones; {most} fit"
        return Refusal("tile", because)
    return None


def _no_dual(p: PersistentParameters, problem: Product) -> Refusal | None:
    """Return why a tile has not the columns of two products, or None."""
    if problem.dual is not None and not p.epilogue_smem:
        return Refusal("epilogue_smem", "a dual GEMM needs a staged epilogue")
    return no_columns_of_two(p, problem)
