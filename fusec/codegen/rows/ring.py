"""The view of the inner_persistent_ring template."""

from __future__ import annotations

from fusec.codegen.views import NestView, view_of
from fusec.dataclasses import dataclass
from fusec.schedule.plan import Kernel
from fusec.schedule.rows.inner_persistent.choice import InnerPersistentParameters
from fusec.schedule.rows.inner_persistent.family import InnerPersistentPlan
from fusec.schedule.rows.kernel.ring import InnerPersistentRingNodes, nodes_of


@dataclass(frozen=True, kw_only=True)
class InnerPersistentRingView(NestView, InnerPersistentRingNodes):
    """Rows in a ring, in phases; warps: of a group."""

    warps: int
    groups: int
    cluster: int
    slots: int
    columns: int


def view(plan: InnerPersistentPlan, kernel: Kernel) -> InnerPersistentRingView:
    """Return the view of a row-persistent kernel with a ring."""
    p, columns = plan.parameters, plan.problem.rows.columns.value
    about = plan, kernel, nodes_of(plan, kernel), _sentence(p)
    return view_of(InnerPersistentRingView, *about, columns=columns, warps=p.threads_x // 32)


def _sentence(p: InnerPersistentParameters) -> str:
    shared = f", divided among {p.cluster} blocks" if p.cluster > 1 else ""
    return (
        f"{p.groups} groups of {p.threads_x} threads take a row each{shared}, from "
        f"{p.slots} in shared memory, filled by bulk copies; accesses of {p.vector_width} elements"
    )
