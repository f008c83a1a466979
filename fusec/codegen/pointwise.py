"""The view of the pointwise template."""

from __future__ import annotations

from fusec.codegen.views import NestView, view_of
from fusec.dataclasses import dataclass
from fusec.schedule.plan import Kernel
from fusec.schedule.pointwise.choice import PointwiseParameters
from fusec.schedule.pointwise.family import PointwisePlan
from fusec.schedule.pointwise.kernel import PointwiseNodes, nodes_of, without_second


@dataclass(frozen=True, kw_only=True)
class PointwiseView(NestView, PointwiseNodes):
    """A loop nest, its vectors and its threads; unroll: rows, or vectors, per thread and trip."""

    unroll: int


def view(plan: PointwisePlan, kernel: Kernel) -> PointwiseView:
    """Return the view of a pointwise kernel."""
    kernel = without_second(plan.fusion, kernel)
    nodes, text = nodes_of(plan, kernel), _sentence(plan.parameters)
    return view_of(PointwiseView, plan, kernel, nodes, text)


def _sentence(p: PointwiseParameters) -> str:
    access = f"accesses of {p.vector_width} elements" if p.vector_width > 1 else "single elements"
    if p.break_point:
        shape = f"{p.threads_y} x {p.threads_x} threads (rows x vectors)"
        each = f"{p.unroll} rows per thread"
        return f"rows by vectors of columns, {shape}, {each}, {access}"
    each = f"{p.unroll} vectors per thread"
    return f"one flat loop, {p.threads_x} threads, {each}, {access}"
