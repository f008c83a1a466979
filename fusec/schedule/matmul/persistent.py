"""What a product's kernel with one CTA per SM may not have together."""

from __future__ import annotations

from fusec.ir.dtype import F32
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.totals import COLUMNS
from fusec.segment.protocol import Refusal

PLAIN = (False, "none", False, 8)
"""Of other kernels ping_pong, multicast, staged and band."""
TILE_ROWS = {False: (128, 192, 256), True: (64, 128)}
"""Rows of a tile of `wgmma`, by whether each warpgroup has a tile of its own (ping-pong)."""
MOST_SUMS, MOST_STAGED_SUMS, MOST_FINISHED_SUMS = 192, 160, 128
"""Sums of a tile that a thread can hold beside what else it needs of 232 registers: where they are
stored as they are, and where an epilogue computes, on staged pairs or on wider accesses."""
MOST_OF_THREE = 96
"""The same with three warpgroups that multiply, of 160 registers."""


def no_persistent(p: MatmulParameters, problem: Product) -> Refusal | None:
    """Return why a kernel has not the fields of `wgmma`, or these not together, or None."""
    if p.kernel == "split_k" and p.multicast != "none":
        return _no_pairs(p, problem)
    if p.kernel != "wgmma":
        if (p.ping_pong, p.multicast, p.staged, p.band) != PLAIN:
            what = "ping_pong, multicast, staged and band"
            return Refusal(
                "kernel", f"{what} are parameters of kernel `wgmma`, not of `{p.kernel}`"
            )
        return None
    if p.splits > 1 and (problem.cuts or p.split_method != "slices"):
        because = "stream-K of the last wave does not support groups, and needs `slices`"
        return Refusal("splits", because)
    if p.splits > 1 and not (problem.m.is_const and problem.n.is_const and problem.k.is_const):
        return Refusal("splits", "stream-K of the last wave needs static sizes")
    rows = TILE_ROWS[p.ping_pong]
    if p.swapped:
        swapped = _no_swap(p, problem)
        if swapped is not None:
            return swapped
    elif p.tile_m not in rows:
        how = "with" if p.ping_pong else "without"
        options = " or ".join(map(str, rows))
        return Refusal(
            "tile", f"{how} ping_pong, kernel `wgmma` needs tile_m {options}, not {p.tile_m}"
        )
    is_joined = problem.joined is not None
    held, most = p.sums, most_sums(p, is_plain=problem.is_plain, is_joined=is_joined)
    if held > most:
        return Refusal(
            "tile", f"a thread would need {held} accumulators; {most} fit with the epilogue"
        )
    if p.vector_width == 8 and p.tile_n % 32:
        return Refusal(
            "access", f"a staged epilogue needs tile_n to be a multiple of 32, got {p.tile_n}"
        )
    if problem.cuts and (p.ping_pong or p.multicast != "none"):
        return Refusal(
            "groups", "grouped GEMM tiles have different K extents and no common operand"
        )
    apart = _no_halves(p)
    if apart is not None:
        return apart
    own = _no_totals(p, problem)
    if own is not None:
        return own
    if p.staged and not problem.slots.sizes and not problem.totals:
        return Refusal("staged", "no epilogue tensor has rows along the result's")
    width = problem.staged_width
    if p.staged and p.vector_width != width:
        because = f"a staged epilogue needs tile_n {width}, not {p.vector_width}"
        return Refusal("staged", because)
    return None


def _no_swap(p: MatmulParameters, problem: Product) -> Refusal | None:
    """Return why a tile's operands cannot be swapped, or None."""
    if problem.cuts or problem.narrow is not None or problem.dtype == F32 or p.staged:
        because = "swap-AB needs a single 16-bit GEMM without a staged epilogue"
        return Refusal("tile", because)
    by = 64 if p.ping_pong else 128
    if p.tile_n % by or p.tile_n // by > 2:
        because = f"with tile_m {p.tile_m}, tile_n must be {by} or {2 * by}, not {p.tile_n}"
        return Refusal("tile", because)
    return None


def _no_totals(p: MatmulParameters, problem: Product) -> Refusal | None:
    """Return why a tile's results are not reduced as they are to be, or None."""
    if problem.totals and not p.staged:
        return Refusal("staged", "a fused reduction needs a staged epilogue")
    if problem.totals and p.columns % COLUMNS:
        because = f"a fused reduction needs tile_n to be a multiple of {COLUMNS}, got {p.columns}"
        return Refusal("tile", because)
    return None


def _no_pairs(p: MatmulParameters, problem: Product) -> Refusal | None:
    """Return why two CTAs cannot share an operand of a split product, or None."""
    if (p.ping_pong, p.staged, p.band) != (False, False, 8):
        what = "ping_pong, staged and band"
        return Refusal("kernel", f"{what} are parameters of kernel `wgmma`, not of `split_k`")
    if p.cluster > 1:
        return Refusal(
            "multicast", "the CTAs of a cluster split K or multicast an operand, not both"
        )
    if p.ctas > 2:
        return Refusal("multicast", "split-K does not support clusters of four tiles")
    if problem.narrow is not None:
        return Refusal("multicast", "split-K of 8-bit floats does not support multicast")
    if p.converted and not (p.moves_registers and p.multicast == "a"):
        return Refusal(
            "multicast", "with converted weights, tiles of more than 128 rows can only multicast A"
        )
    return _no_halves(p)


def _no_halves(p: MatmulParameters) -> Refusal | None:
    """Return why CTAs cannot each load a part of an operand, or None."""
    for parts, shared in ((p.pair_columns, p.tile_m), (p.pair_rows, p.tile_n)):
        if shared % (8 * parts):
            because = f"{parts} parts of {shared} columns are not aligned to the swizzle"
            return Refusal("multicast", because)
    return None


def most_sums(p: MatmulParameters, *, is_plain: bool, is_joined: bool) -> int:
    """Return the sums of a tile that a thread of `wgmma` can hold beside the epilogue.

    is_plain: whether that only rounds; is_joined: whether a tile holds those of two products.
    """
    if p.consumers == 3:
        return MOST_OF_THREE
    if is_plain:
        # Swapped sums are exchanged; of eight CTAs five are told that a stage is free.
        return MOST_STAGED_SUMS if p.swapped or p.ctas > 4 else MOST_SUMS
    # The sums of two products, and those of parts of a tile, live side by side for longer.
    has_more = is_joined or p.splits > 1
    return MOST_STAGED_SUMS if p.staged and not has_more else MOST_FINISHED_SUMS


def no_promotion(p: MatmulParameters, problem: Product) -> Refusal | None:
    """Return why a kernel of 8-bit floats cannot add what tensor cores have summed, or None."""
    if problem.narrow is None or p.kernel not in ("wgmma", "split_k"):
        return None
    if p.ping_pong:
        because = (
            "8-bit floats need ping-pong: one warpgroup multiplies while the other promotes its "
            "accumulators"
        )
        return Refusal("kernel", because)
    columns = p.tile_m if p.swapped else p.tile_n
    held = (p.row_blocks + 1) * columns // 2
    most = MOST_OF_THREE if p.consumers == 3 else MOST_SUMS
    if held > most:
        because = f"a thread would need {held} accumulators, including promoted ones; {most} fit"
        return Refusal("tile", because)
    return None
