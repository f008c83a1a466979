"""The view of the topk template."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.sort import READ, Writing
from fusec.codegen.views import KernelView, head
from fusec.index.access import Facts
from fusec.index.instances import Lowering
from fusec.ir.dim import dim
from fusec.ir.expression import Var
from fusec.kernel.ctext import index_type, storage_type
from fusec.kernel.emit import Emitter
from fusec.kernel.names import parameter_names
from fusec.kernel.nest import Alias, Scope, named
from fusec.kernel.nodes import Expression, Statement, Type
from fusec.schedule.plan import Kernel, Plan
from fusec.schedule.sort_parts import Parts, key_bits
from fusec.schedule.sort_top import TopParameters, bind


@dataclass(frozen=True, kw_only=True)
class TopView(KernelView):
    """A block's part of a row, read once into registers.

    row: statements once per row; vector, lane: those that make `value`, the element at
    `column + v`; write: what follows at `position` from the element at `found`; entries, arrived:
    workspaces.
    """

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
    row: tuple[Statement, ...]
    vector: tuple[Statement, ...]
    lane: tuple[Statement, ...]
    value: Expression
    write: tuple[Statement, ...]


def view(plan: Plan[Parts, TopParameters], kernel: Kernel) -> TopView:
    """Return the view of a top-k kernel."""
    parts, p = plan.problem, plan.parameters
    names = parameter_names(kernel.argument_names)
    tensor = parts.node.inputs[0]
    row = Scope("row", frozenset({parts.row}), per_phase=False)
    outer = (Scope("kernel", frozenset(), per_phase=False), row)
    binding, (chunk, lane) = bind(parts, p.vector_width)
    symbols = named(kColumns=dim(parts.length), kKeep=dim(parts.keep))
    reading = Emitter(
        (*outer, Scope("vector", frozenset({chunk})), Scope("lane", frozenset({lane}))),
        names,
        Facts(parts.fusion.hints),
        lane=lane if p.vector_width > 1 else None,
        width=p.vector_width,
        aliases={chunk: Alias("column", p.vector_width)},
        wide=p.wide_index,
        symbols=symbols,
    )
    operand = Lowering(parts.before, parts.operand, binding).at_home(tensor)
    reading.count([operand])
    value = reading.ref(operand, READ)
    found = Var("found", tensor.shape[parts.axis])
    position = Var("position", parts.node.output.shape[parts.axis])
    place = Scope("element", frozenset({found, position}))
    storing = Emitter(
        (*outer, place),
        names,
        Facts(parts.fusion.hints),
        wide=p.wide_index,
        symbols=symbols,
    )
    writing = Writing(parts, storing, found, position)
    storing.count(writing.roots)
    write = writing.emit()
    spaces = [w.name for w in plan.workspaces] or ["", ""]
    outside = ("kernel", "row")
    attributes = parts.node.attributes
    return TopView(
        **head(plan, kernel),  # pyright: ignore[reportArgumentType]
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
        row=tuple(line for e in (reading, storing) for s in outside for line in e.take(0, s)),
        vector=reading.take(READ, "vector"),
        lane=reading.take(READ, "lane"),
        value=value,
        write=write,
    )


def _sentence(p: TopParameters) -> str:
    own = f"{p.items} x {p.vector_width} elements each"
    shared = f"; {p.splits} blocks share a row, the last one orders what they chose"
    return (
        f"Schedule: a block of {p.threads} threads reads a row once, {own} at a time"
        f"{shared if p.splits > 1 else ''}."
    )
