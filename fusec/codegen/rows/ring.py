"""The view of the inner_persistent_ring template."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.kernel.ctext import index_type
from fusec.kernel.nodes import Type
from fusec.schedule.plan import Kernel
from fusec.schedule.rows.inner_persistent.choice import InnerPersistentParameters
from fusec.schedule.rows.inner_persistent.family import InnerPersistentPlan
from fusec.schedule.rows.kernel.ring import InnerPersistentRingNodes, nodes_of


@dataclass(frozen=True, kw_only=True)
class InnerPersistentRingView(KernelView, InnerPersistentRingNodes):
    """Rows in a ring, in phases; warps: of a group."""

    index_type: Type
    vector_width: int
    warps: int
    groups: int
    cluster: int
    slots: int
    columns: int


def view(plan: InnerPersistentPlan, kernel: Kernel) -> InnerPersistentRingView:
    """Return the view of a row-persistent kernel with a ring."""
    p = plan.parameters
    return InnerPersistentRingView(
        **head(plan, kernel, nodes_of(plan, kernel)),  # pyright: ignore[reportArgumentType]
        schedule=_sentence(p),
        index_type=index_type(wide=p.wide_index),
        vector_width=p.vector_width,
        warps=p.threads_x // 32,
        groups=p.groups,
        cluster=p.cluster,
        slots=p.slots,
        columns=plan.problem.rows.columns.value,
    )


def _sentence(p: InnerPersistentParameters) -> str:
    shared = f", divided among {p.cluster} blocks" if p.cluster > 1 else ""
    return (
        f"Schedule: {p.groups} groups of {p.threads_x} threads take a row each{shared}, from "
        f"{p.slots} in shared memory, filled by bulk copies; accesses of {p.vector_width} elements."
    )
