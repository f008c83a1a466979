"""The view of the topk template."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.kernel.ctext import index_type, storage_type
from fusec.kernel.nodes import Type
from fusec.schedule.plan import Kernel, Plan
from fusec.schedule.sort.kernel.top import TopNodes, nodes_of
from fusec.schedule.sort.parts import Parts, key_bits
from fusec.schedule.sort.top import TopParameters


@dataclass(frozen=True, kw_only=True)
class TopView(KernelView, TopNodes):
    """A block's part of a row, read once into registers; entries, arrived: workspaces."""

    index_type: Type
    type: Type
    key: Type
    vector_width: int
    threads: int
    items: int
    buffer: int
    splits: int
    columns: int
    keep: int
    largest: bool
    entries: str
    arrived: str


def view(plan: Plan[Parts, TopParameters], kernel: Kernel) -> TopView:
    """Return the view of a top-k kernel."""
    parts, p = plan.problem, plan.parameters
    tensor, attributes = parts.node.inputs[0], parts.node.attributes
    spaces = [w.name for w in plan.workspaces] or ["", ""]
    return TopView(
        **head(plan, kernel, nodes_of(plan, kernel)),  # pyright: ignore[reportArgumentType]
        schedule=_sentence(p),
        index_type=index_type(wide=p.wide_index),
        type=storage_type(tensor.dtype),
        key=Type(f"fusec::u{key_bits(tensor.dtype)}"),
        vector_width=p.vector_width,
        threads=p.threads,
        items=p.items,
        buffer=p.buffer,
        splits=p.splits,
        columns=parts.length,
        keep=parts.keep,
        largest=bool(attributes.get("descending", attributes.get("largest"))),
        entries=spaces[0],
        arrived=spaces[1],
    )


def _sentence(p: TopParameters) -> str:
    own = f"{p.items} x {p.vector_width} elements each"
    shared = f"; {p.splits} blocks share a row, the last one orders what they chose"
    return (
        f"Schedule: a block of {p.threads} threads reads a row once, {own} at a time"
        f"{shared if p.splits > 1 else ''}."
    )
