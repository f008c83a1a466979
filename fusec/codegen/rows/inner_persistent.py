"""The view of the inner_persistent template."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.kernel.ctext import index_type
from fusec.kernel.nodes import Type
from fusec.schedule.plan import Kernel
from fusec.schedule.rows.inner_persistent.choice import InnerPersistentParameters
from fusec.schedule.rows.inner_persistent.family import InnerPersistentPlan
from fusec.schedule.rows.kernel.inner_persistent import InnerPersistentNodes, nodes_of


@dataclass(frozen=True, kw_only=True)
class InnerPersistentView(KernelView, InnerPersistentNodes):
    """Rows of columns, in phases.

    registers: whether a thread's vectors of a row are held in registers, by chunks.
    """

    index_type: Type
    threads_x: int
    threads_y: int
    vector_width: int
    chunks: int
    columns: int
    registers: bool


def view(plan: InnerPersistentPlan, kernel: Kernel) -> InnerPersistentView:
    """Return the view of a row-persistent kernel."""
    parameters = plan.parameters
    return InnerPersistentView(
        **head(plan, kernel, nodes_of(plan, kernel)),  # pyright: ignore[reportArgumentType]
        schedule=_sentence(parameters),
        index_type=index_type(wide=parameters.wide_index),
        threads_x=parameters.threads_x,
        threads_y=parameters.threads_y,
        vector_width=parameters.vector_width,
        chunks=parameters.chunks,
        columns=plan.problem.rows.columns.value,
        registers=parameters.storage == "registers",
    )


def _sentence(p: InnerPersistentParameters) -> str:
    where = {
        "registers": "stays in registers",
        "shared": "stays in shared memory",
        "none": "is read again in each phase",
    }[p.storage]
    tile = f"{p.tile_rows} rows come into shared memory, {p.threads_y} at a time are taken; "
    rows = f"{p.threads_y} rows per block, "
    return (
        f"Schedule: {tile if p.tile_rows else ''}{p.threads_x} threads per row, "
        f"{'' if p.tile_rows else rows}"
        f"accesses of {p.vector_width} elements{' where aligned' if p.shifted else ''}; "
        f"the row {where}."
    )
