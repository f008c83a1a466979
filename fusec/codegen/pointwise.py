"""The view of the pointwise template."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.kernel.ctext import index_type
from fusec.kernel.nodes import Type
from fusec.schedule.plan import Kernel
from fusec.schedule.pointwise.choice import PointwiseParameters
from fusec.schedule.pointwise.family import PointwisePlan
from fusec.schedule.pointwise.kernel import PointwiseNodes, nodes_of, without_second


@dataclass(frozen=True, kw_only=True)
class PointwiseView(KernelView, PointwiseNodes):
    """A loop nest, its vectors and its threads; unroll: rows, or vectors, of a thread at a time."""

    index_type: Type
    threads_x: int
    threads_y: int
    vector_width: int
    unroll: int


def view(plan: PointwisePlan, kernel: Kernel) -> PointwiseView:
    """Return the view of a pointwise kernel."""
    p, kernel = plan.parameters, without_second(plan.fusion, kernel)
    return PointwiseView(
        **head(plan, kernel, nodes_of(plan, kernel)),  # pyright: ignore[reportArgumentType]
        schedule=_sentence(p, p.break_point > 0),
        index_type=index_type(wide=p.wide_index),
        threads_x=p.threads_x,
        threads_y=p.threads_y,
        vector_width=p.vector_width,
        unroll=p.unroll,
    )


def _sentence(parameters: PointwiseParameters, rows: bool) -> str:
    access = (
        f"accesses of {parameters.vector_width} elements"
        if parameters.vector_width > 1
        else "single elements"
    )
    if rows:
        shape = f"{parameters.threads_y} x {parameters.threads_x} threads (rows x vectors)"
        each = f"{parameters.unroll} rows per thread"
        return f"Schedule: rows by vectors of columns, {shape}, {each}, {access}."
    each = f"{parameters.unroll} vectors per thread"
    return f"Schedule: one flat loop, {parameters.threads_x} threads, {each}, {access}."
