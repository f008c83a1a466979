"""Which field combinations the split-K and stream-K schedulers (`split_k` in files) support."""

from __future__ import annotations

from fusec.schedule.matmul.choice import HALVED, MOST_SWAP_AB_ROWS, SPLIT_METHODS
from fusec.schedule.matmul.dual import no_columns_of_two
from fusec.schedule.matmul.hopper import MULTIPLIERS, SplitKParameters, StreamKParameters
from fusec.schedule.matmul.operands.computed import MOST_ROWS, WRITERS
from fusec.schedule.matmul.persistent import no_promotion, no_shared_operand
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.stream_k import PARTS
from fusec.segment.protocol import Refusal


def no_split_k(p: SplitKParameters, problem: Product) -> Refusal | None:
    """Return the rule that the fields violate together, or None."""
    rules = (
        _no_method, _no_half_partials, _no_rows, _no_swap, _no_shares, _no_pairs,
        no_promotion, _no_dual, _no_computed_rows,
    )  # fmt: skip
    return next(filter(None, (rule(p, problem) for rule in rules)), None)


def no_stream_k(p: StreamKParameters, problem: Product) -> Refusal | None:
    """Return why the steps of all tiles cannot be divided among the SMs, or None."""
    return no_split_k(p, problem) or _no_ranges(p, problem)


def _no_ranges(p: StreamKParameters, problem: Product) -> Refusal | None:
    if not p.converted:
        because = "`stream_k` needs 8-bit or 4-bit weights"
        return Refusal("splits", because)
    if p.splits != PARTS or p.ctas > 1 or p.leaves_halves:
        because = f"`stream_k` needs no clusters, splits of {PARTS}, and f32 partial sums"
        return Refusal("splits", because)
    if problem.cuts or problem.batches != 1:
        return Refusal("splits", "`stream_k` does not support groups or batches")
    if not (problem.m.is_const and problem.n.is_const and problem.k.is_const):
        return Refusal("splits", "`stream_k` needs static sizes")
    return None


def _no_method(p: SplitKParameters, problem: Product) -> Refusal | None:
    del problem
    if p.splits == 1 and p.split_method != SPLIT_METHODS[0]:
        return Refusal("splits", "split-K with one cluster has nothing to combine")
    return None


def _no_half_partials(p: SplitKParameters, problem: Product) -> Refusal | None:
    """Return why clusters cannot store 16-bit partial sums, or None."""
    output = problem.node.output
    if not p.leaves_halves:
        return None
    if p.splits == 1:
        return Refusal("workspace_dtype", "one cluster has no partial sums")
    if p.split_method not in HALVED:
        others = ", ".join(f"`{method}`" for method in HALVED)
        because = f"`{p.split_method}` has f32 partial sums; {others} support 16-bit ones"
        return Refusal("workspace_dtype", because)
    if not (output.dtype.is_half and output.dtype.bits == 16):
        return Refusal("workspace_dtype", f"`{output.name}` is {output.dtype}, not a 16-bit float")
    return None


def _no_rows(p: SplitKParameters, problem: Product) -> Refusal | None:
    del problem
    if p.tile_m % 16:
        because = f"kernel `split_k` needs tile_m to be a multiple of 16, not {p.tile_m}"
        return Refusal("tile", because)
    return None


def _no_swap(p: SplitKParameters, problem: Product) -> Refusal | None:
    """Return why a tile cannot have so small a tile_m with swapped operands, or None."""
    if not p.swap_ab:
        return None
    if p.uses_setmaxnreg and p.is_serial:
        because = (
            f"with tile_m {p.tile_m}, a thread cannot hold a second set of accumulators; `slices` "
            "does not need one"
        )
        return Refusal("tile", because)
    wide = 0 if p.converted or problem.narrow is not None else MOST_SWAP_AB_ROWS
    columns = (128, 256) if p.tile_m <= wide else (128,)
    if p.tile_n not in columns:
        found = " or ".join(map(str, columns))
        because = f"with tile_m {p.tile_m}, two warpgroups need tile_n {found}, not {p.tile_n}"
        return Refusal("tile", because)
    if p.tile_m % 64 and not problem.a.k_major:
        because = f"`{problem.a.buffer.name}` is stored in blocks of 64 rows, not {p.tile_m}"
        return Refusal("tile", because)
    return None


def _no_shares(p: SplitKParameters, problem: Product) -> Refusal | None:
    """Return why the accumulators cannot be divided evenly among a cluster's threads, or None."""
    del problem
    if p.tile_m * p.tile_n % (4 * p.products * MULTIPLIERS * p.cluster_k) == 0:
        return None
    what = "pairs of quads of a dual GEMM" if p.dual else "quads"
    because = (
        f"{p.cluster_k} CTAs per cluster need as many {what} of accumulators, for {p.tile_m} rows"
    )
    return Refusal("tile", because)


def _no_pairs(p: SplitKParameters, problem: Product) -> Refusal | None:
    """Return why two CTAs cannot share an operand of a split-K GEMM, or None."""
    if not p.is_multicast:
        return None
    if p.cluster_k > 1:
        because = "the CTAs of a cluster split K or multicast an operand, not both"
        return Refusal("multicast", because)
    if p.ctas > 2:
        return Refusal("multicast", "split-K does not support clusters of four tiles")
    if problem.narrow is not None:
        return Refusal("multicast", "split-K of 8-bit floats does not support multicast")
    if p.converted and not (p.uses_setmaxnreg and p.cluster_n > 1):
        because = "with converted weights, tiles of more than 128 rows can only multicast A"
        return Refusal("multicast", because)
    return no_shared_operand(p, problem)


def _no_dual(p: SplitKParameters, problem: Product) -> Refusal | None:
    """Return why a tile cannot hold the columns of two GEMMs, or None."""
    if problem.dual is not None and p.has_second:
        return Refusal("splits", "two-kernel split-K does not support a dual GEMM")
    return no_columns_of_two(p, problem)


def _no_computed_rows(p: SplitKParameters, problem: Product) -> Refusal | None:
    """Return why rows of A cannot be computed for a tile, or None."""
    if problem.computed is None:
        return None
    if p.is_multicast:
        return Refusal("multicast", "a multicast operand must be copied, not computed")
    if p.tile_m > MOST_ROWS:
        because = f"{WRITERS} warps compute {MOST_ROWS} rows per stage, not {p.tile_m}"
        return Refusal("tile", because)
    if p.stages < WRITERS:
        because = f"{WRITERS} producer warps need a stage each, but there are {p.stages}"
        return Refusal("stages", because)
    return None
