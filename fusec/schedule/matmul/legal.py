"""The rules that the parameters of a matrix product must meet, those of its kernel among them."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.schedule.matmul.choice import (
    HALVED,
    MOST_PARTS,
    MOST_SWAPPED_ROWS,
    MULTIPLIERS,
    SPLIT_METHODS,
    TILE_COLUMNS,
    MatmulParameters,
    divides,
    sizes_of,
)
from fusec.schedule.matmul.joined import no_join
from fusec.schedule.matmul.operands.computed import MOST_ROWS, WRITERS
from fusec.schedule.matmul.persistent import no_persistent, no_promotion
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.ranges import check_ranges
from fusec.schedule.matmul.shared import shared_layout
from fusec.schedule.matmul.vector import check_vector
from fusec.segment.protocol import Refusal
from fusec.target import Target


def why_illegal(
    p: MatmulParameters,
    problem: Product,
    target: Target,
    hints: Mapping[str, int],
    reasons: Mapping[str, str],
) -> Refusal | None:
    """Return the rule by which no kernel has some parameters, or None.

    reasons: for each kernel why it cannot run the product, if it cannot.
    """
    if reasons[p.kernel]:
        return Refusal("kernel", reasons[p.kernel])
    columns = TILE_COLUMNS[p.kernel]
    if p.tile_n not in columns:
        options = ", ".join(map(str, columns))
        return Refusal(
            "tile", f"kernel `{p.kernel}` does not support tile_n {p.tile_n}; it supports {options}"
        )
    if p.splits == 1 and p.split_method != SPLIT_METHODS[0]:
        return Refusal("splits", "split-K with one cluster has nothing to combine")
    halves = _no_half_partials(p, problem) if p.leaves_halves else ""
    if halves:
        return Refusal("partials", halves)
    swapped = _no_swap(p, problem) or _no_shares(p)
    if swapped or (p.tile_m == 8) > (p.kernel == "vector"):
        return Refusal("tile", swapped or f"kernel `{p.kernel}` does not support tile_m 8")
    own = no_persistent(p, problem) or no_promotion(p, problem) or no_join(p, problem)
    own = own or _no_computed_rows(p, problem)
    own = own or check_ranges(p, problem)
    if own is not None:
        return own
    streamed = check_vector(p, problem) if p.kernel == "vector" else None
    if streamed is not None:
        return streamed
    most = MOST_PARTS if p.kernel == "wgmma" else 1
    if p.kernel not in ("split_k", "vector") and (p.cluster > 1 or p.splits > most):
        return Refusal("splits", f"kernel `{p.kernel}` does not support so many splits of K")
    steps = -(-sizes_of(problem, hints).k // p.tile_k)
    if p.cluster * p.splits > max(1, steps):
        because = f"{p.cluster * p.splits} CTAs share {steps} steps along K"
        return Refusal("splits", because)
    if p.vector_width not in p.widths:
        because = f"kernel `{p.kernel}` does not support vector_width {p.vector_width}"
        return Refusal("access", because)
    if not divides(problem.n, p.vector_width):
        return Refusal("access", f"{problem.n} columns are not divisible by {p.vector_width}")
    if p.kernel != "vector" and (p.stages == 1) != (p.kernel == "simt"):
        return Refusal("stages", f"kernel `{p.kernel}` does not support {p.stages} stages")
    if shared_bytes(p, problem) > target.shared:
        because = (
            f"{shared_bytes(p, problem)} bytes of shared memory needed; an SM has {target.shared}"
        )
        return Refusal("shared memory", because)
    return None


def _no_computed_rows(p: MatmulParameters, problem: Product) -> Refusal | None:
    """Return why rows of A cannot be computed for a tile, or None."""
    if problem.computed is None or p.kernel != "split_k":
        return None
    if p.multicast != "none":
        return Refusal("multicast", "a multicast operand must be copied, not computed")
    if p.tile_m > MOST_ROWS:
        because = f"{WRITERS} warps compute {MOST_ROWS} rows per stage, not {p.tile_m}"
        return Refusal("tile", because)
    if p.stages < WRITERS:
        because = f"{WRITERS} producer warps need a stage each, but there are {p.stages}"
        return Refusal("stages", because)
    return None


def _no_half_partials(p: MatmulParameters, problem: Product) -> str:
    """Return why clusters cannot leave halves of their sums, empty where they can."""
    dtype = problem.node.output.dtype
    if p.kernel != "split_k":
        return f"kernel `{p.kernel}` has f32 partial sums; `split_k` supports 16-bit ones"
    if p.splits == 1:
        return "one cluster has no partial sums"
    if p.split_method not in HALVED:
        others = ", ".join(f"`{method}`" for method in HALVED)
        return f"`{p.split_method}` has f32 partial sums; {others} support 16-bit ones"
    if not (dtype.is_half and dtype.bits == 16):
        return f"`{problem.node.output.name}` is {dtype}, not a 16-bit float"
    return ""


def _no_swap(p: MatmulParameters, problem: Product) -> str:
    """Return why a tile cannot have so few rows, empty where it can."""
    if p.kernel == "split_k" and p.tile_m % 16:
        return f"kernel `split_k` needs tile_m to be a multiple of 16, not {p.tile_m}"
    if not p.swapped or p.kernel == "wgmma":
        return ""
    if p.moves_registers and p.takes_turns:
        return (
            f"with tile_m {p.tile_m}, a thread cannot hold a second set of accumulators; `slices` "
            "does not need one"
        )
    wide = 0 if p.converted or problem.narrow is not None else MOST_SWAPPED_ROWS
    columns = (128, 256) if p.tile_m <= wide else (128,)
    if p.tile_n not in columns:
        found = " or ".join(map(str, columns))
        return f"with tile_m {p.tile_m}, two warpgroups need tile_n {found}, not {p.tile_n}"
    if p.tile_m % 64 and not problem.a.k_major:
        return f"`{problem.a.buffer.name}` is stored in blocks of 64 rows, not {p.tile_m}"
    return ""


def _no_shares(p: MatmulParameters) -> str:
    """Return why the threads of a cluster cannot have as many sums each, empty where they can."""
    if (
        p.kernel != "split_k"
        or p.tile_m * p.tile_n % (4 * p.products * MULTIPLIERS * p.cluster) == 0
    ):
        return ""
    what = "pairs of quads of a dual GEMM" if p.joined else "quads"
    return f"{p.cluster} CTAs per cluster need as many {what} of accumulators, for {p.tile_m} rows"


def shared_bytes(p: MatmulParameters, problem: Product) -> int:
    """Return the dynamic shared memory of a CTA."""
    return shared_layout(p, problem).bytes
