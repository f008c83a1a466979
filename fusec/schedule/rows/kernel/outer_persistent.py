"""The statements of kernels whose columns stay on chip."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.index.instances import Instance
from fusec.kernel.arrays import RegisterArray
from fusec.kernel.ctext import dim_text
from fusec.kernel.lowering.accumulators import Accumulator
from fusec.kernel.lowering.columns import column_values, emit_column_values
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import RESULTS, named
from fusec.kernel.lowering.phases import Phase, emit_outputs, phase_of
from fusec.kernel.lowering.stores import StorePlan
from fusec.kernel.names import parameter_names
from fusec.kernel.nodes import Expression, Statement, item
from fusec.schedule.plan import Kernel
from fusec.schedule.rows.kernel.nest import (
    Held,
    accumulators_of,
    fill,
    hold,
    nest_emitter,
    roots_of,
    stored_in,
    stores_of,
)
from fusec.schedule.rows.outer_persistent import OuterPersistentPlan


@dataclass(frozen=True)
class ColumnPhase:
    """A sweep over the rows, after the column values that it begins with.

    values: lines that compute them; results: stores of per-column values.
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
    rows, (row, _, _) = plan.problem.rows, plan.loops
    emitter = nest_emitter(
        plan,
        parameter_names(kernel.argument_names),
        inner=False,
        symbols=named(columns=rows.rows, kRows=rows.columns),
        counts=named(kRows=rows.columns),
        guard="is_column",
    )
    plans = stores_of(emitter, plan, lambda p: row in p.variables)
    values = column_values(roots_of(plan, plans), row)
    held = hold(emitter, plan.staged, "rows", lambda name: item(name, "r"))
    emitted = [
        _emit_phase(emitter, plan, plans, values, held, number)
        for number in range(plan.phases.count)
    ]
    made = tuple(
        ColumnPhase(
            column,
            phase_of(emitter, RESULTS + number, guarded=False),
            phase_of(emitter, number, fill, accumulators),
        )
        for number, (column, fill, accumulators) in enumerate(emitted)
    )
    return OuterPersistentNodes(
        columns=dim_text(rows.rows),
        held=tuple(each.array for each in held if isinstance(each.array, RegisterArray)),
        phases=made,
    )


def _emit_phase(
    emitter: Emitter,
    plan: OuterPersistentPlan,
    plans: tuple[StorePlan, ...],
    values: list[Instance],
    held: list[Held],
    number: int,
) -> tuple[tuple[Statement, ...], tuple[Statement, ...], tuple[Accumulator, ...]]:
    row, _, lane = plan.loops
    column = emit_column_values(emitter, values, number, lane)
    loads = fill(emitter, plan, held, number)
    accumulators = accumulators_of(emitter, plan, number, array=True)
    due = stored_in(plans, number)
    of_rows = tuple(s for s in due if row in s.variables)
    of_columns = tuple(s for s in due if row not in s.variables)
    everything = frozenset({row, lane}).union(*(s.variables for s in due))
    emit_outputs(emitter, of_rows, number, everything)
    emit_outputs(emitter, of_columns, RESULTS + number, everything)
    return column, loads, accumulators
