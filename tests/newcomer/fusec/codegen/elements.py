"""The view of the elements template."""

from __future__ import annotations

from fusec.schedule.elements.family import ElementsPlan
from fusec.schedule.elements.kernel import ElementsNodes, nodes_of

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.kernel.ctext import index_type
from fusec.kernel.nodes import Type
from fusec.schedule.plan import Kernel


@dataclass(frozen=True, kw_only=True)
class ElementsView(KernelView, ElementsNodes):
    """A flat loop; per_thread: elements of a thread."""

    index_type: Type
    threads: int
    per_thread: int


def view(plan: ElementsPlan, kernel: Kernel) -> ElementsView:
    """Return the view of an elements kernel."""
    p = plan.parameters
    return ElementsView(
        **head(plan, kernel, nodes_of(plan, kernel)),  # pyright: ignore[reportArgumentType]
        schedule=f"Schedule: one flat loop, {p.per_thread} elements per thread.",
        index_type=index_type(wide=p.wide_index),
        threads=kernel.block[0],
        per_thread=p.per_thread,
    )
