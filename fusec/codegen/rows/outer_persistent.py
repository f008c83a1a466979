"""The view of the outer_persistent template."""

from __future__ import annotations

from fusec.codegen.views import NestView, view_of
from fusec.dataclasses import dataclass
from fusec.schedule.plan import Kernel
from fusec.schedule.rows.kernel.outer_persistent import OuterPersistentNodes, nodes_of
from fusec.schedule.rows.outer_persistent import OuterPersistentPlan


@dataclass(frozen=True, kw_only=True)
class OuterPersistentView(NestView, OuterPersistentNodes):
    """Columns of rows, in phases; chunks: a thread's rows, if they stay in registers."""

    chunks: int
    rows: int
    stays_in_registers: bool


def view(plan: OuterPersistentPlan, kernel: Kernel) -> OuterPersistentView:
    """Return the view of a column-persistent kernel."""
    p, rows = plan.parameters, plan.problem.rows.columns.value
    where = "stay in registers" if p.stays_in_registers else "are read again in each phase"
    text = (
        f"{p.threads_x} vectors of {p.vector_width} columns by {p.threads_y} rows at a time; "
        f"the columns {where}"
    )
    return view_of(OuterPersistentView, plan, kernel, nodes_of(plan, kernel), text, rows=rows)
