"""The view of the outer_persistent template."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.kernel.ctext import index_type
from fusec.kernel.nodes import Type
from fusec.schedule.plan import Kernel
from fusec.schedule.rows.kernel.outer_persistent import OuterPersistentNodes, nodes_of
from fusec.schedule.rows.outer_persistent import OuterPersistentPlan


@dataclass(frozen=True, kw_only=True)
class OuterPersistentView(KernelView, OuterPersistentNodes):
    """Columns of rows, in phases."""

    index_type: Type
    threads_x: int
    threads_y: int
    vector_width: int
    rows_per_thread: int
    rows: int
    registers: bool


def view(plan: OuterPersistentPlan, kernel: Kernel) -> OuterPersistentView:
    """Return the view of a column-persistent kernel."""
    p = plan.parameters
    registers = p.storage == "registers"
    where = "stay in registers" if registers else "are read again in each phase"
    return OuterPersistentView(
        **head(plan, kernel, nodes_of(plan, kernel)),  # pyright: ignore[reportArgumentType]
        schedule=(
            f"Schedule: {p.threads_x} vectors of {p.vector_width} columns by {p.threads_y} rows "
            f"at a time; the columns {where}."
        ),
        index_type=index_type(wide=p.wide_index),
        threads_x=p.threads_x,
        threads_y=p.threads_y,
        vector_width=p.vector_width,
        rows_per_thread=p.rows_per_thread,
        rows=plan.problem.rows.columns.value,
        registers=registers,
    )
