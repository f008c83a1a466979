"""The view of the inner_persistent template."""

from __future__ import annotations

from fusec.codegen.views import NestView, view_of
from fusec.dataclasses import dataclass
from fusec.schedule.plan import Kernel
from fusec.schedule.rows.inner_persistent.choice import InnerPersistentParameters
from fusec.schedule.rows.inner_persistent.family import InnerPersistentPlan
from fusec.schedule.rows.kernel.inner_persistent import InnerPersistentNodes, nodes_of


@dataclass(frozen=True, kw_only=True)
class InnerPersistentView(NestView, InnerPersistentNodes):
    """Rows of columns, in phases; chunks: vectors of a row that a thread keeps in registers."""

    chunks: int
    columns: int
    stays_in_registers: bool


def view(plan: InnerPersistentPlan, kernel: Kernel) -> InnerPersistentView:
    """Return the view of a row-persistent kernel."""
    nodes, columns = nodes_of(plan, kernel), plan.problem.rows.columns.value
    text = _sentence(plan.parameters)
    return view_of(InnerPersistentView, plan, kernel, nodes, text, columns=columns)


def _sentence(p: InnerPersistentParameters) -> str:
    where = {
        "registers": "stays in registers",
        "shared": "stays in shared memory",
        "none": "is read again in each phase",
    }[p.storage]
    tile = f"{p.tile_rows} rows come into shared memory, {p.threads_y} at a time are taken; "
    rows = f"{p.threads_y} rows per block, "
    return (
        f"{tile if p.tile_rows else ''}{p.threads_x} threads per row, "
        f"{'' if p.tile_rows else rows}"
        f"accesses of {p.vector_width} elements{' where aligned' if p.shifted else ''}; "
        f"the row {where}"
    )
