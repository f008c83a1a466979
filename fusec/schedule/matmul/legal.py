"""The rules that the parameters of a GEMM must meet: those of its kernel, then the common ones."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.schedule.matmul.choice import MatmulParameters, divides, sizes_of
from fusec.schedule.matmul.gemv import GemvParameters, no_gemv
from fusec.schedule.matmul.hopper import PersistentParameters, SplitKParameters, StreamKParameters
from fusec.schedule.matmul.persistent import no_persistent
from fusec.schedule.matmul.problem import Product
from fusec.schedule.matmul.shared import shared_layout
from fusec.schedule.matmul.split_k import no_split_k, no_stream_k
from fusec.segment.protocol import Refusal
from fusec.target import Target


def why_illegal(
    p: MatmulParameters,
    problem: Product,
    target: Target,
    hints: Mapping[str, int],
    reasons: Mapping[str, str],
) -> Refusal | None:
    """Return the rule that the parameters violate, or None if they are legal.

    reasons: for each kernel why it cannot run the GEMM, empty if it can.
    """
    if reasons[p.kernel]:
        return Refusal("kernel", reasons[p.kernel])
    if p.tile_n not in p.tile_columns:
        options = ", ".join(map(str, p.tile_columns))
        return Refusal(
            "tile", f"kernel `{p.kernel}` does not support tile_n {p.tile_n}; it supports {options}"
        )
    own = _own_rules(p, problem) or _no_splits(p, problem, hints)
    return own or _no_access(p, problem) or _no_memory(p, problem, target)


def _own_rules(p: MatmulParameters, problem: Product) -> Refusal | None:
    """Return the rule of its kernel that a record violates, or None."""
    match p:
        case PersistentParameters():
            return no_persistent(p, problem)
        case StreamKParameters():
            return no_stream_k(p, problem)
        case SplitKParameters():
            return no_split_k(p, problem)
        case GemvParameters():
            return no_gemv(p, problem)
        case _:
            return None


def _no_splits(p: MatmulParameters, problem: Product, hints: Mapping[str, int]) -> Refusal | None:
    """Return why K cannot be split that often, or None."""
    if p.splits > p.most_splits:
        return Refusal("splits", f"kernel `{p.kernel}` does not support so many splits of K")
    steps = -(-sizes_of(problem, hints).k // p.tile_k)
    if p.cluster_k * p.splits > max(1, steps):
        because = f"{p.cluster_k * p.splits} CTAs share {steps} steps along K"
        return Refusal("splits", because)
    return None


def _no_access(p: MatmulParameters, problem: Product) -> Refusal | None:
    """Return why the epilogue cannot access that many columns at once, or None."""
    if p.vector_width not in p.widths:
        because = f"kernel `{p.kernel}` does not support vector_width {p.vector_width}"
        return Refusal("access", because)
    if not divides(problem.n, p.vector_width):
        return Refusal("access", f"{problem.n} columns are not divisible by {p.vector_width}")
    return None


def _no_memory(p: MatmulParameters, problem: Product, target: Target) -> Refusal | None:
    """Return why an SM cannot hold the stages, or None."""
    if not p.has_stages:
        return Refusal("stages", f"kernel `{p.kernel}` does not support {p.stages} stages")
    bytes_ = shared_layout(p, problem).bytes
    if bytes_ > target.shared:
        because = f"{bytes_} bytes of shared memory needed; an SM has {target.shared}"
        return Refusal("shared memory", because)
    return None
