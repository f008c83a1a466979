"""The view of the reduction templates."""

from __future__ import annotations

from fusec.codegen.views import NestView, view_of
from fusec.dataclasses import dataclass
from fusec.schedule.plan import Kernel
from fusec.schedule.rows.kernel.reduction import ReductionNodes, nodes_of
from fusec.schedule.rows.reduction.family import ReductionPlan, unrolled_vectors


@dataclass(frozen=True, kw_only=True)
class ReductionView(NestView, ReductionNodes):
    """One sweep over the reduced axes, then the results.

    fan: blocks whose partial results one block combines; in_bulk: whether by bulk copies in
    memory; turns: whether blocks combine serially; unrolled_vectors: whether all vectors of a
    thread are loaded together.
    """

    unrolled_vectors: bool
    unrolled: int
    splits: int
    fan: int
    in_bulk: bool
    turns: bool


def view(plan: ReductionPlan, kernel: Kernel) -> ReductionView:
    """Return the view of a reduction kernel."""
    about = plan, kernel, nodes_of(plan, kernel), _sentence(plan)
    return view_of(ReductionView, *about, unrolled_vectors=unrolled_vectors(plan) > 0)


def _sharing(plan: ReductionPlan) -> str:
    """Return how blocks that share a result combine their partial results."""
    p = plan.parameters
    if p.in_bulk or p.turns:
        by = "reducing bulk copies" if p.in_bulk else "loads and stores"
        halves = ", in 16 bits" if p.workspace_dtype == "half" else ""
        blocks = f"; {p.splits} blocks combine their parts of a result by {by}{halves}"
        if p.turns:
            return f"{blocks}, serially"
        if any(order.arrives for order in plan.orders.values()):
            return f"{blocks} in arrival order, so that its bits may vary from run to run"
        return f"{blocks} in arrival order, on which its bits do not depend"
    last = f"the last of {p.fan} combines theirs" if p.fan < p.splits else "the last one combines"
    return f"; {p.splits} blocks share a result, {last}"


def _sentence(plan: ReductionPlan) -> str:
    p = plan.parameters
    shared = _sharing(plan) if p.splits > 1 else ""
    if p.tile_rows:
        return (
            f"{p.tile_rows} rows come into shared memory, {p.threads_y} at a time are "
            f"taken; {p.threads_x} threads along each, accesses of {p.vector_width} elements"
        )
    if p.inner:
        return (
            f"{p.threads_x} threads along each row, {p.threads_y} rows per block, "
            f"accesses of {p.vector_width} elements{' where aligned' if p.shifted else ''}{shared}"
        )
    return (
        f"{p.threads_x} vectors of {p.vector_width} columns by {p.threads_y} rows at a time{shared}"
    )
