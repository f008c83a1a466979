"""The view of the top-k template with rows shared by lanes of a warp."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.kernel.ctext import index_type, storage_type
from fusec.kernel.nodes import Type
from fusec.schedule.plan import Kernel, Plan
from fusec.schedule.sort.kernel.lanes import LanesNodes, nodes_of
from fusec.schedule.sort.parts import Parts, key_bits
from fusec.schedule.sort.top import TopParameters


@dataclass(frozen=True, kw_only=True)
class LanesView(KernelView, LanesNodes):
    """Rows that adjacent threads hold in registers, including fused producers and consumers."""

    index_type: Type
    type: Type
    key: Type
    vector_width: int
    threads: int
    lanes: int
    items: int
    columns: int
    keep: int
    largest: bool


def view(plan: Plan[Parts, TopParameters], kernel: Kernel) -> LanesView:
    """Return the view of a top-k kernel."""
    parts, p = plan.problem, plan.parameters
    tensor, attributes = parts.node.inputs[0], parts.node.attributes
    return LanesView(
        **head(plan, kernel, nodes_of(plan, kernel)),  # pyright: ignore[reportArgumentType]
        schedule=f"Schedule: {p.lanes} threads share a row, {p.items} x {p.vector_width} elements "
        "each.",
        index_type=index_type(wide=p.wide_index),
        type=storage_type(tensor.dtype),
        key=Type(f"fusec::u{key_bits(tensor.dtype)}"),
        vector_width=p.vector_width,
        threads=p.threads,
        lanes=p.lanes,
        items=p.items,
        columns=parts.length,
        keep=parts.keep,
        largest=bool(attributes.get("descending", attributes.get("largest"))),
    )
