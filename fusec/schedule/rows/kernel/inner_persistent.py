"""The statements of kernels whose rows stay on chip."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.kernel.arrays import RegisterArray, SharedArray
from fusec.kernel.ctext import compute_type, dim_text
from fusec.kernel.lowering.accumulators import Accumulator, accumulate
from fusec.kernel.lowering.edges import emit_edges, first_column, load_edges
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
    fill,
    first_phase,
    hold,
    nest_emitter,
    roots_of,
    stores_of,
)
from fusec.schedule.rows.kernel.tiles import RowTile, slot_of, tile_of


@dataclass(frozen=True, kw_only=True)
class InnerPersistentNodes:
    """Rows of columns, in phases.

    rows: extent; exact: whether the threads' vectors are just the row; held: the rows in registers;
    shared: those in shared memory; column: a vector's first column; row_bound: whether rows may run
    out; tile: the rows that a block takes in turns, if it does; shifted: where the first vector of
    a row begins, if they are; ends: the declarations of a thread's elements beside them.
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
    p, rows = plan.parameters, plan.problem.rows
    held, kept, phases, (first, ends), tile = _phases(plan, kernel, pushed)
    own, width = vector_of_thread(), p.chunks * p.threads_x * p.vector_width
    return InnerPersistentNodes(
        rows=dim_text(rows.rows),
        exact=first is None and rows.columns.value == width,
        row_bound=_is_bound(p),
        tile=None if tile is None else tile.read_by(phases),
        column=own if first is None else Name("first_column") + own,
        held=(*(s for s in held if isinstance(s, RegisterArray)), *kept),
        shared=(*(s for s in held if isinstance(s, SharedArray)), *(tile.shared if tile else ())),
        phases=phases,
        shifted=first,
        ends=ends,
    )


def _phases(
    plan: InnerPersistentPlan, kernel: Kernel, pushed: frozenset[str]
) -> tuple[
    tuple[RegisterArray | SharedArray, ...],
    tuple[RegisterArray, ...],
    tuple[Phase, ...],
    tuple[Expression | None, tuple[Statement, ...]],
    RowTile | None,
]:
    p, phases, (_, chunk, lane) = plan.parameters, plan.phases, plan.loops
    lowering, start = plan.lowering, plan.problem.start(p.vector_width) if p.shifted else None
    sizes = named(kColumns=plan.problem.rows.columns)
    emitter = nest_emitter(
        plan,
        parameter_names(kernel.argument_names),
        start=start,
        of_row=(slot_of(p.tile_rows),),
        written=plan.fusion.effects.overwritten | pushed,
        symbols=sizes,
        counts=sizes,
        guard="is_row" if _is_bound(p) else "",
    )
    elements = frozenset({chunk, lane})
    plans = stores_of(emitter, plan, lambda p: bool(p.variables & elements))
    tile, plans = tile_of(emitter, plan, plans)
    shared = not p.stays_in_registers
    held = hold(emitter, plan.staged, "row", lambda name: _vector(p, name), shared=shared)
    first = None if start is None else first_column(emitter, start, chunk)
    ends = _load_edges(emitter, plan, plans) if first else ()
    loads: list[tuple[Statement, ...]] = []
    kept: list[RegisterArray] = []
    accumulators: list[tuple[Accumulator, ...]] = []
    for number in range(phases.count):
        loads.append(fill(emitter, plan, held, number))
        accumulators.append(
            tuple(accumulate(emitter, lowering, node, number) for node in phases.reductions[number])
        )
        kept += _keep(emitter, phases, number)
        due = tuple(p for p in plans if p.instance.depth == number)
        emit_outputs(emitter, due, number, elements)
        if first:
            summed = zip(phases.reductions[number], accumulators[number], strict=True)
            stored = (p for p in due if p.variables & elements)
            emit_edges(emitter, lowering, summed, stored, number)
    once = once_per_row(emitter, THREAD_X)
    # Only now: a later phase may have asked for a row's value that an earlier one computes.
    made = tuple(
        phase_of(emitter, number, loads[number], accumulators[number], once=once)
        for number in range(phases.count)
    )
    return tuple(each.array for each in held), tuple(kept), made, (first, ends), tile


def _is_bound(p: InnerPersistentParameters) -> bool:
    """Return whether a block may have fewer rows than it takes."""
    return p.threads_y > 1 or p.tile_rows > 0


def _load_edges(
    emitter: Emitter, plan: InnerPersistentPlan, stores: tuple[StorePlan, ...]
) -> tuple[Statement, ...]:
    """Emit what loads the elements beside the vectors, and return what holds them."""
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
    """Emit the copies of the values that stay in registers for the phases after this one."""
    kept: list[RegisterArray] = []
    for instance, first in phases.kept:
        if first == number:
            # What all elements of a vector share is also read outside the loop over them.
            lane = emitter.element_of_vector if emitter.lane in instance.variables else ZERO
            name = emitter.names.fresh(f"{instance.name}_kept", "kept")
            element = item(name, C, lane)
            emitter.add(number, "lane", Assign(element, emitter.ref(instance, number)))
            emitter.precomputed_after[instance] = (number, element)
            kept.append(RegisterArray(name, compute_type(instance.dtype)))
    return kept
