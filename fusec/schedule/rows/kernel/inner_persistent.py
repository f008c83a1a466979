"""The statements of kernels whose rows stay on chip."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.kernel.arrays import RegisterArray, SharedArray
from fusec.kernel.ctext import compute_type, dim_text
from fusec.kernel.lowering.accumulators import Accumulator
from fusec.kernel.lowering.edges import emit_edges, load_edges
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import named
from fusec.kernel.lowering.phases import (
    COLUMN,
    C,
    Phase,
    emit_outputs,
    once_per_row,
    phase_of,
    vector_of_thread,
)
from fusec.kernel.lowering.stores import StorePlan
from fusec.kernel.names import parameter_names
from fusec.kernel.nodes import (
    THREAD_X,
    ZERO,
    Assign,
    Element,
    Expression,
    Name,
    Statement,
    item,
)
from fusec.schedule.plan import Kernel
from fusec.schedule.rows.domain import Phases
from fusec.schedule.rows.inner_persistent.family import (
    InnerPersistentParameters,
    InnerPersistentPlan,
)
from fusec.schedule.rows.kernel.nest import (
    accumulators_of,
    fill,
    first_phase,
    hold,
    nest_emitter,
    roots_of,
    shifted_column,
    stored_in,
    stores_of,
)
from fusec.schedule.rows.kernel.tiles import RowTile, slot_of, tile_of


@dataclass(frozen=True, kw_only=True)
class InnerPersistentNodes:
    """Rows of columns, in phases.

    rows: extent; exact: whether the threads' vectors cover exactly the row; held: the rows in
    registers; shared: those in shared memory; column: a vector's first column; row_bound: whether
    rows may run out; tile: the rows that a block stages together, if it does; shifted: the first
    vector of a row, if vectors are peeled; ends: the declarations of a thread's elements outside
    the vectors.
    """

    rows: Expression
    exact: bool
    row_bound: bool
    tile: RowTile | None
    column: Expression
    held: tuple[RegisterArray, ...]
    shared: tuple[SharedArray, ...]
    phases: tuple[Phase, ...]
    shifted: Expression | None
    ends: tuple[Statement, ...]


def nodes_of(
    plan: InnerPersistentPlan, kernel: Kernel, pushed: frozenset[str] = frozenset()
) -> InnerPersistentNodes:
    """Return the statements of a row-persistent kernel.

    pushed: inputs that are written while the kernel runs.
    """
    p, phases, rows, elements = plan.parameters, plan.phases, plan.problem.rows, plan.loops[1:]
    sizes = named(kColumns=rows.columns)
    emitter = nest_emitter(
        plan,
        parameter_names(kernel.argument_names),
        start=plan.problem.start(p.vector_width) if p.shifted else None,
        of_row=(slot_of(p.tile_rows),),
        written=plan.fusion.effects.overwritten | pushed,
        symbols=sizes,
        counts=sizes,
        guard="is_row" if _is_bound(p) else "",
    )
    stores = stores_of(emitter, plan, lambda s: not s.variables.isdisjoint(elements))
    tile, stores = tile_of(emitter, plan, stores)
    shared = not p.stays_in_registers
    held = hold(emitter, plan.staged, "row", lambda name: _vector(p, name), shared=shared)
    first = shifted_column(emitter, plan)
    ends = () if first is None else _load_edges(emitter, plan, stores)
    loads, accumulators = list[tuple[Statement, ...]](), list[tuple[Accumulator, ...]]()
    kept = list[RegisterArray]()
    for number in range(phases.count):
        loads.append(fill(emitter, plan, held, number))
        accumulators.append(accumulators_of(emitter, plan, number))
        kept += _keep(emitter, phases, number)
        due = stored_in(stores, number)
        emit_outputs(emitter, due, number, frozenset(elements))
        if first is not None:
            summed = zip(phases.reductions[number], accumulators[number], strict=True)
            stored = (s for s in due if not s.variables.isdisjoint(elements))
            emit_edges(emitter, plan.lowering, summed, stored, number)
    once = once_per_row(emitter, THREAD_X)
    # Only now: a later phase may have requested a row's value that an earlier one computes.
    made = tuple(
        phase_of(emitter, number, loads[number], accumulators[number], once=once)
        for number in range(phases.count)
    )
    own, width = vector_of_thread(), p.chunks * p.threads_x * p.vector_width
    arrays = [each.array for each in held]
    return InnerPersistentNodes(
        rows=dim_text(rows.rows),
        exact=first is None and rows.columns.value == width,
        row_bound=_is_bound(p),
        tile=None if tile is None else tile.read_by(made),
        column=own if first is None else Name("first_column") + own,
        held=(*(a for a in arrays if isinstance(a, RegisterArray)), *kept),
        shared=(*(a for a in arrays if isinstance(a, SharedArray)), *(tile.shared if tile else ())),
        phases=made,
        shifted=first,
        ends=ends,
    )


def _is_bound(p: InnerPersistentParameters) -> bool:
    """Return whether a block may have fewer rows than it can process."""
    return p.threads_y > 1 or p.tile_rows > 0


def _load_edges(
    emitter: Emitter, plan: InnerPersistentPlan, stores: tuple[StorePlan, ...]
) -> tuple[Statement, ...]:
    """Emit the loads of the elements outside the vectors, and return their declarations."""
    staged = [s.instance for s in plan.staged]
    loads = [(first_phase(plan.phases.loads, load), load) for load in staged]
    return load_edges(emitter, loads, roots_of(plan, stores))


def _vector(p: InnerPersistentParameters, array: str) -> Expression:
    """Return a vector of a row that stays on chip."""
    if p.stays_in_registers:
        return item(array, C)
    place = COLUMN - "first_column" if p.shifted else COLUMN
    return Element(Name(array), place / "kVec")


def _keep(emitter: Emitter, phases: Phases, number: int) -> list[RegisterArray]:
    """Emit the copies of the values that stay in registers for later phases."""
    kept: list[RegisterArray] = []
    for instance, first in phases.kept:
        if first == number:
            # Values shared by all elements of a vector are also read outside the loop over them.
            lane = emitter.element_of_vector if emitter.lane in instance.variables else ZERO
            name = emitter.names.fresh(f"{instance.name}_kept", "kept")
            element = item(name, C, lane)
            emitter.add(number, "lane", Assign(element, emitter.ref(instance, number)))
            emitter.precomputed_after[instance] = (number, element)
            kept.append(RegisterArray(name, compute_type(instance.dtype)))
    return kept
