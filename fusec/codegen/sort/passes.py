"""The view of the sort templates."""

from __future__ import annotations

from fusec.codegen.views import KernelView, head
from fusec.dataclasses import dataclass
from fusec.kernel.ctext import index_type, storage_type
from fusec.kernel.nodes import Type
from fusec.schedule.plan import Kernel, StepKernel
from fusec.schedule.sort.family import PassParameters, SortParameters, SortPlan, shared_bytes
from fusec.schedule.sort.kernel.passes import SortNodes, nodes_of


@dataclass(frozen=True)
class Buffers:
    """The workspaces of a pass by name; empty if the fusion's inputs or outputs are used."""

    keys: str = ""
    places: str = ""


@dataclass(frozen=True, kw_only=True)
class SortView(KernelView, SortNodes):
    """A block's rows or tiles, ordered by all digits or by one.

    type: of the sorted elements in memory; key: type of the keys; descending: whether the largest
    come first; shift: of the digit; pass_source, pass_target: buffers; counts, totals: workspaces.
    """

    index_type: Type
    type: Type
    key: Type
    threads: int
    items: int
    tiles: int
    columns: int
    keep: int
    descending: bool
    shift: int
    shared_bytes: int
    pass_source: Buffers
    pass_target: Buffers
    counts: str
    totals: str


def view(plan: SortPlan, kernel: StepKernel[PassParameters]) -> SortView:
    """Return the view of a kernel of a sort."""
    parts, sort, step = plan.problem, plan.parameters, kernel.step
    names = [w.name for w in plan.workspaces]
    counts, totals = names[-2:] or ("", "")
    attributes = parts.node.attributes
    return SortView(
        **head(plan, kernel, nodes_of(plan, kernel)),  # pyright: ignore[reportArgumentType]
        schedule=_sentence(kernel, sort, step.digit),
        index_type=index_type(wide=sort.wide_index),
        type=storage_type(parts.node.inputs[0].dtype),
        key=Type(f"fusec::u{sort.key_bits}"),
        threads=sort.threads,
        items=sort.items,
        tiles=sort.tiles,
        columns=parts.length,
        keep=parts.keep,
        descending=bool(attributes.get("descending", attributes.get("largest"))),
        shift=8 * step.digit,
        shared_bytes=shared_bytes(sort),
        pass_source=_buffers(names, step.source),
        pass_target=_buffers(names, step.target),
        counts=counts,
        totals=totals,
    )


def _buffers(names: list[str], number: int | None) -> Buffers:
    return Buffers() if number is None else Buffers(names[2 * number], names[2 * number + 1])


def _sentence(kernel: Kernel, p: SortParameters, digit: int) -> str:
    tile = f"{p.threads} threads of {p.items} elements"
    if kernel.template == "sort_rows":
        return f"Schedule: a block of {tile} orders a row, {p.passes} digits of 8 bits, stable."
    step = {
        "sort_count": "counts the digits of each tile",
        "sort_offsets": "finds where each tile's digits go",
        "sort_scatter": "moves each tile's elements to the range of their digit",
    }[kernel.template]
    return f"Schedule: digit {digit} of {p.passes}, tiles of {tile}: {step}."
