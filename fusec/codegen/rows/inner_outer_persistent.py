"""The view of the inner_outer_persistent template."""

from __future__ import annotations

from fusec.codegen.views import NestView, view_of
from fusec.dataclasses import dataclass
from fusec.schedule.plan import Kernel
from fusec.schedule.rows.inner_outer_persistent.choice import InnerOuterParameters
from fusec.schedule.rows.inner_outer_persistent.family import InnerOuterPlan
from fusec.schedule.rows.kernel.inner_outer_persistent import InnerOuterNodes, nodes_of


@dataclass(frozen=True, kw_only=True)
class InnerOuterView(NestView, InnerOuterNodes):
    """Rows in ranges, each range with its column accumulators."""

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
    bands = plan.problem.bands
    return view_of(
        InnerOuterView,
        plan,
        kernel,
        nodes_of(plan, kernel),
        _sentence(plan.parameters, bands.groups.value),
        columns=bands.columns.value,
        height=bands.height.value,
        groups=bands.groups.value,
        turns=bool(plan.problem.row_sums),
    )


def _sentence(p: InnerOuterParameters, groups: int) -> str:
    each = " in each group" if groups > 1 else ""
    flight = f", {p.stages - 1} rows in flight" if p.stages else ""
    return (
        f"{p.ranges} ranges of rows{each}, {p.threads_x} threads per row, "
        f"{p.threads_y} at a time{flight}; column sums stay in registers"
    )
