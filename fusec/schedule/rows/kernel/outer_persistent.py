"""The statements of kernels whose columns stay on chip."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.instances import Instance, Lowering
from fusec.ir.expression import Var
from fusec.kernel.arrays import RegisterArray
from fusec.kernel.ctext import dim_text, storage_type
from fusec.kernel.lowering.accumulators import Accumulator, accumulate
from fusec.kernel.lowering.columns import column_values, emit_column_values
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import FILL, RESULTS, Alias, Scope, named
from fusec.kernel.lowering.phases import Phase, emit_outputs, phase_of, reduction_roots
from fusec.kernel.lowering.stores import StorePlan, plan_stores
from fusec.kernel.names import parameter_names
from fusec.kernel.nodes import Assign, Expression, Statement, item
from fusec.schedule.plan import Kernel, Staged
from fusec.schedule.rows.domain import Phases
from fusec.schedule.rows.outer_persistent import OuterPersistentPlan


@dataclass(frozen=True)
class ColumnPhase:
    """A sweep over the rows, after the column values that it begins with.

    values: lines that compute them; results: stores of values that belong to columns.
    """

    values: tuple[Statement, ...]
    results: Phase
    sweep: Phase


@dataclass(frozen=True, kw_only=True)
class OuterPersistentNodes:
    """Columns of rows, in phases; held: the rows in registers."""

    columns: Expression
    held: tuple[RegisterArray, ...]
    phases: tuple[ColumnPhase, ...]


def nodes_of(plan: OuterPersistentPlan, kernel: Kernel) -> OuterPersistentNodes:
    """Return the statements of a column-persistent kernel."""
    held, phases = _phases(plan, kernel)
    columns = dim_text(plan.problem.rows.rows)
    return OuterPersistentNodes(columns=columns, held=held, phases=phases)


def _phases(
    plan: OuterPersistentPlan, kernel: Kernel
) -> tuple[tuple[RegisterArray, ...], tuple[ColumnPhase, ...]]:
    """Return what stays in registers, and the phases."""
    fusion, p = plan.fusion, plan.parameters
    width = p.vector_width
    lowering, phases, (row, chunk, lane) = plan.lowering, plan.phases, plan.loops
    emitter = Emitter(
        (
            Scope("kernel", frozenset(), per_phase=False),
            Scope("column", frozenset({chunk}), per_phase=False),
            Scope("row", frozenset({row})),
            Scope("lane", frozenset({lane})),
        ),
        parameter_names(kernel.argument_names),
        Facts(fusion.hints),
        lane=lane if width > 1 else None,
        width=width,
        aliases={chunk: Alias("column", width)},
        written=fusion.effects.overwritten,
        wide=p.wide_index,
        symbols=named(columns=plan.problem.rows.rows, kRows=plan.problem.rows.columns),
        counts=named(kRows=plan.problem.rows.columns),
        guard="is_column",
    )
    plans = plan_stores(lowering, fusion.outputs, emitter.store_kind, lambda p: row in p.variables)
    nodes = tuple(n for group in phases.reductions for n in group)
    roots = [*(s.instance for s in plans), *reduction_roots(lowering, nodes)]
    emitter.count(roots)
    values = column_values(roots, row)
    held = _held(emitter, plan.staged)
    emitted = [
        _emit_phase(emitter, lowering, phases, plans, values, held, number, (row, lane))
        for number in range(phases.count)
    ]
    made = tuple(
        ColumnPhase(
            column,
            phase_of(emitter, RESULTS + number, guarded=False),
            phase_of(emitter, number, fill, accumulators),
        )
        for number, (column, fill, accumulators) in enumerate(emitted)
    )
    return tuple(array for array, _ in held), made


Kept = tuple[RegisterArray, Instance]


def _held(emitter: Emitter, staged: Iterable[Staged]) -> list[Kept]:
    held: list[Kept] = []
    for instance in (each.instance for each in staged):
        name = emitter.names.fresh(f"{instance.name}_rows", "rows")
        held.append((RegisterArray(name, storage_type(instance.dtype)), instance))
        emitter.cached[instance] = item(name, "r", emitter.element_of_vector)
    return held


def _emit_phase(
    emitter: Emitter,
    lowering: Lowering,
    phases: Phases,
    plans: tuple[StorePlan, ...],
    values: list[Instance],
    held: list[Kept],
    number: int,
    variables: tuple[Var, Var],
) -> tuple[tuple[Statement, ...], tuple[Statement, ...], tuple[Accumulator, ...]]:
    row, lane = variables
    column = emit_column_values(emitter, values, number, lane)
    for array, instance in held:
        if number == next(n for n, phase in enumerate(phases.loads) if instance in phase):
            vector = emitter.load_vector(instance, FILL + number)
            emitter.add(FILL + number, "row", Assign(item(array.name, "r"), vector))
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
