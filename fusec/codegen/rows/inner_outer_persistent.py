"""The view of the inner_outer_persistent template."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.kernel.ctext import index_type
from fusec.kernel.nodes import Type
from fusec.schedule.plan import Kernel
from fusec.schedule.rows.inner_outer_persistent.choice import InnerOuterParameters
from fusec.schedule.rows.inner_outer_persistent.family import InnerOuterPlan
from fusec.schedule.rows.kernel.inner_outer_persistent import InnerOuterNodes, nodes_of


@dataclass(frozen=True, kw_only=True)
class InnerOuterView(KernelView, InnerOuterNodes):
    """Rows in ranges, each range with its column accumulators."""

    index_type: Type
    vector_width: int
    threads_x: int
    threads_y: int
    chunks: int
    tiles: int
    stages: int
    columns: int
    height: int
    groups: int
    ranges: int
    range_rows: int
    turns: bool


def view(plan: InnerOuterPlan, kernel: Kernel) -> InnerOuterView:
    """Return the view of a row kernel."""
    p, bands = plan.parameters, plan.problem.bands
    return InnerOuterView(
        **head(plan, kernel, nodes_of(plan, kernel)),  # pyright: ignore[reportArgumentType]
        schedule=_sentence(p, bands.groups.value),
        index_type=index_type(wide=p.wide_index),
        vector_width=p.vector_width,
        threads_x=p.threads_x,
        threads_y=p.threads_y,
        chunks=p.chunks,
        tiles=p.tiles,
        stages=p.stages,
        columns=bands.columns.value,
        height=bands.height.value,
        groups=bands.groups.value,
        ranges=p.ranges,
        range_rows=p.range_rows,
        turns=bool(plan.problem.row_sums),
    )


def _sentence(p: InnerOuterParameters, groups: int) -> str:
    each = " in each group" if groups > 1 else ""
    flight = f", {p.stages - 1} rows in flight" if p.stages else ""
    return (
        f"Schedule: {p.ranges} ranges of rows{each}, {p.threads_x} threads per row, "
        f"{p.threads_y} at a time{flight}; column sums stay in registers."
    )
