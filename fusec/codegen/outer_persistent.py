"""The view of the outer_persistent template."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.accumulators import Accumulator, accumulate
from fusec.codegen.columns import ColumnValues, column_values, emit_column_values
from fusec.codegen.ctext import dim_text, storage_type
from fusec.codegen.emit import Emitter
from fusec.codegen.inner_persistent import FILL
from fusec.codegen.nest import Alias, Scope
from fusec.codegen.phases import Phase, emit_outputs, phase_of, reduction_roots
from fusec.codegen.views import KernelView, StorePlan, head, parameter_names, store_plans
from fusec.index.access import Facts
from fusec.index.instances import Instance, Lowering
from fusec.ir.expression import Var
from fusec.schedule.outer_persistent import OuterPersistentParameters, held, prepare
from fusec.schedule.plan import Kernel, KernelPlan
from fusec.schedule.reduction import Orientation, bind_outer
from fusec.schedule.registers import least_blocks
from fusec.schedule.rows import Phases, phases_of


@dataclass(frozen=True)
class Stay:
    """Columns that stay in registers: the array's name and element type."""

    name: str
    type: str


@dataclass(frozen=True)
class ColumnPhase:
    """A sweep over the rows, after the column values that it begins with.

    results: stores of values that belong to columns, as a loop over lanes; their vectors are
    declared in `values`.
    """

    values: ColumnValues
    results: Phase
    sweep: Phase


@dataclass(frozen=True, kw_only=True)
class OuterPersistentView(KernelView):
    """Columns of rows, in phases; extents as C text."""

    index_type: str
    threads_x: int
    threads_y: int
    vector_width: int
    rows_per_thread: int
    rows: int
    columns: str
    registers: bool
    stays: tuple[Stay, ...]
    phases: tuple[ColumnPhase, ...]


RESULTS = 3000
"""Number of the loop that stores the column results of phase 0; each phase has its own."""


def view(plan: KernelPlan, kernel: Kernel) -> OuterPersistentView:
    """Return the view of a column-persistent kernel."""
    p = kernel.parameters
    assert isinstance(p, OuterPersistentParameters)
    oriented = prepare(plan.fusion)
    assert isinstance(oriented, Orientation)
    stays, phases = _phases(plan, kernel, oriented)
    registers = p.storage == "registers"
    where = "stay in registers" if registers else "are read again in each phase"
    words = held(oriented, p.vector_width)
    return OuterPersistentView(
        **head(plan, kernel),  # pyright: ignore[reportArgumentType]
        schedule=(
            f"Schedule: {p.threads_x} vectors of {p.vector_width} columns by {p.threads_y} rows "
            f"at a time; the columns {where}."
        ),
        index_type="fusec::i64" if p.wide_index else "int",
        threads_x=p.threads_x,
        threads_y=p.threads_y,
        vector_width=p.vector_width,
        rows_per_thread=p.rows_per_thread,
        rows=oriented.rows.columns.value,
        columns=dim_text(oriented.rows.rows).text,
        registers=registers,
        stays=stays,
        phases=phases,
        least_blocks=least_blocks(
            p.threads_x * p.threads_y, words.of_rows(p), words.doubles, words.columns
        ),
    )


def _phases(
    plan: KernelPlan, kernel: Kernel, oriented: Orientation
) -> tuple[tuple[Stay, ...], tuple[ColumnPhase, ...]]:
    """Return what stays in registers, and the phases."""
    fusion, p = plan.fusion, kernel.parameters
    width: int = p.vector_width
    binding, (row, chunk, lane) = bind_outer(oriented.rows, width)
    lowering = Lowering(fusion, oriented.domain, binding)
    phases = phases_of(fusion, lowering, (row, chunk, lane))
    emitter = Emitter(
        (
            Scope("kernel", frozenset(), per_phase=False),
            Scope("column", frozenset({chunk}), per_phase=False),
            Scope("row", frozenset({row})),
            Scope("lane", frozenset({lane})),
        ),
        parameter_names(kernel),
        Facts(fusion.hints),
        lane=lane if width > 1 else None,
        width=width,
        aliases={chunk: Alias("column", width)},
        written=frozenset(o.alias for o in fusion.outputs if o.alias is not None),
        wide=p.wide_index,
        guard="is_column",
    )
    plans = store_plans(lowering, fusion.outputs)
    nodes = tuple(n for group in phases.reductions for n in group)
    roots = [*(s.instance for s in plans), *reduction_roots(lowering, nodes)]
    emitter.count(roots)
    values = column_values(roots, row)
    stays = _stays(emitter, phases, row) if p.storage == "registers" else []
    emitted = [
        _emit_phase(emitter, lowering, phases, plans, values, stays, number, (row, lane))
        for number in range(phases.count)
    ]
    made = tuple(
        ColumnPhase(
            column,
            phase_of(emitter, RESULTS + number, (), ()),
            phase_of(emitter, number, fill, accumulators),
        )
        for number, (column, fill, accumulators) in enumerate(emitted)
    )
    return tuple(stay for stay, _ in stays), made


Kept = tuple[Stay, Instance]


def _stays(emitter: Emitter, phases: Phases, row: Var) -> list[Kept]:
    stays: list[Kept] = []
    lane = "v" if emitter.lane is not None else "0"
    for instance in phases.cached:
        if row in instance.variables and emitter.is_whole(instance):
            name = emitter.names.fresh(f"{instance.name}_rows", "rows")
            stays.append((Stay(name, storage_type(instance.dtype)), instance))
            emitter.cached[instance] = f"{name}[r][{lane}]"
    return stays


def _emit_phase(
    emitter: Emitter,
    lowering: Lowering,
    phases: Phases,
    plans: tuple[StorePlan, ...],
    values: list[Instance],
    stays: list[Kept],
    number: int,
    variables: tuple[Var, Var],
) -> tuple[ColumnValues, tuple[str, ...], tuple[Accumulator, ...]]:
    row, lane = variables
    column = emit_column_values(emitter, values, number, lane)
    for stay, instance in stays:
        if number == next(n for n, phase in enumerate(phases.loads) if instance in phase):
            text = emitter.load_vector(instance, FILL + number)
            emitter.add(FILL + number, "row", f"{stay.name}[r] = {text};")
    accumulators = tuple(
        accumulate(emitter, lowering, node, number, array=True)
        for node in phases.reductions[number]
    )
    due = [s for s in plans if s.instance.depth == number]
    of_rows = tuple(s for s in due if row in s.variables)
    of_columns = tuple(s for s in due if row not in s.variables)
    everything = frozenset({row, lane}).union(*(s.variables for s in due))
    emit_outputs(emitter, of_rows, number, everything)
    emit_outputs(emitter, of_columns, RESULTS + number, everything)
    return column, emitter.take(FILL + number, "row"), accumulators
