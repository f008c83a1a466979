"""The views of the sort templates."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.views import KernelView, head
from fusec.index.access import Facts
from fusec.index.instances import Instance
from fusec.ir.dim import dim
from fusec.ir.expression import Var
from fusec.kernel.ctext import compute_type, index_type, storage_type
from fusec.kernel.emit import Emitter, convert
from fusec.kernel.names import parameter_names
from fusec.kernel.nest import Scope, named
from fusec.kernel.nodes import I64, Expression, Let, Name, Statement, Type
from fusec.kernel.stores import emit_store, plan_stores
from fusec.schedule.plan import Kernel, StepKernel
from fusec.schedule.sort.family import PassParameters, SortParameters, SortPlan, shared_bytes
from fusec.schedule.sort_parts import Parts, read_results

READ, WRITE = 0, 1
"""Numbers of the loops that make keys, and that store what is in order."""

PLACE = convert(I64, Name("found"))
"""The place of an element, as a result."""


@dataclass(frozen=True)
class Buffers:
    """The workspaces of a pass by name; empty where the fusion's inputs or outputs take part."""

    keys: str = ""
    places: str = ""


@dataclass(frozen=True, kw_only=True)
class SortView(KernelView):
    """A block's rows or tiles, ordered by all digits or by one.

    key: type of the keys; descending: whether the largest come first; row: statements once per row;
    read: those that make `value`, of storage type `type`, the element at `column`; write: what
    follows at `position` from the element at `found`; shift: of the digit; pass_source,
    pass_target: buffers; counts, totals: workspaces.
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
    row: tuple[Statement, ...]
    read: tuple[Statement, ...]
    value: Expression | None
    write: tuple[Statement, ...]


def view(plan: SortPlan, kernel: StepKernel[PassParameters]) -> SortView:
    """Return the view of a kernel of a sort."""
    parts, sort, step = plan.problem, plan.parameters, kernel.step
    names = [w.name for w in plan.workspaces]
    counts, totals = names[-2:] or ("", "")
    reads = step.source is None and kernel.template != "sort_offsets"
    writes = step.target is None and kernel.template in ("sort_rows", "sort_scatter")
    row, read, value, write = _bodies(parts, kernel, sort, reads=reads, writes=writes)
    attributes = parts.node.attributes
    return SortView(
        **head(plan, kernel),  # pyright: ignore[reportArgumentType]
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
        row=row,
        read=read,
        value=value,
        write=write,
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
        "sort_scatter": "moves each tile's elements to their digit's place",
    }[kernel.template]
    return f"Schedule: digit {digit} of {p.passes}, tiles of {tile}: {step}."


def _bodies(
    parts: Parts, kernel: Kernel, sort: SortParameters, *, reads: bool, writes: bool
) -> tuple[tuple[Statement, ...], tuple[Statement, ...], Expression | None, tuple[Statement, ...]]:
    """Return the statements of a row, those that make a key and its value, and the stores."""
    tensor = parts.node.inputs[0]
    column, found = (Var(n, tensor.shape[parts.axis]) for n in ("column", "found"))
    position = Var("position", parts.node.output.shape[parts.axis])
    element = Scope("element", frozenset({column, found, position}))
    emitter = Emitter(
        (
            Scope("kernel", frozenset(), per_phase=False),
            Scope("row", frozenset({parts.row}), per_phase=False),
            element,
        ),
        parameter_names(kernel.argument_names),
        Facts(parts.fusion.hints),
        wide=sort.wide_index,
        symbols=named(kColumns=dim(parts.length), **({"kKeep": dim(parts.keep)} if writes else {})),
    )
    operand = parts.at(column).at_home(tensor)
    writing = Writing(parts, emitter, found, position) if writes else None
    emitter.count([*([operand] if reads else []), *(writing.roots if writing else [])])
    value = emitter.ref(operand, READ) if reads else None
    write = writing.emit() if writing else ()
    row = (*emitter.take(0, "kernel"), *emitter.take(0, "row"))
    return row, emitter.take(READ, element.name), value, write


class Writing:
    """What follows at `position` of a row from the element at `found`."""

    def __init__(self, parts: Parts, emitter: Emitter, found: Var, position: Var) -> None:
        """Find what is stored; the place is known to the emitter, the value is read again."""
        self.emitter = emitter
        self.gathered = parts.at(found).at_home(parts.node.inputs[0])
        self.after = parts.ordered(position)
        self.plans = plan_stores(self.after, parts.after.outputs, emitter.store_kind)
        results = parts.node.outputs
        used = read_results(parts)
        self.value = results[0] if len(results) > 1 and results[0] in used else None
        for result in used:
            if result is not self.value:
                emitter.given[self.after.at_home(result)] = PLACE

    @property
    def roots(self) -> list[Instance]:
        """Return what is computed."""
        stored = [s.instance for s in self.plans]
        return stored if self.value is None else [*stored, self.gathered]

    def emit(self) -> tuple[Statement, ...]:
        """Return the statements."""
        emitter, scope = self.emitter, self.emitter.scopes[-1].name
        if self.value is not None:
            name = emitter.names.fresh(self.value.name)
            found = emitter.value(self.gathered, WRITE)
            emitter.add(WRITE, scope, Let(compute_type(self.value.dtype), name, found))
            emitter.given[self.after.at_home(self.value)] = Name(name)
        for each in self.plans:
            emit_store(emitter, each, WRITE)
        return (*emitter.take(WRITE, scope), *emitter.take(WRITE, "after"))
