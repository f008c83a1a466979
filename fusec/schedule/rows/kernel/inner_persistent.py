"""The statements of kernels whose rows stay on chip."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.instances import Instance
from fusec.kernel.arrays import RegisterArray, SharedArray, shared_array
from fusec.kernel.ctext import compute_type, dim_text, storage_type
from fusec.kernel.lowering.accumulators import Accumulator, accumulate
from fusec.kernel.lowering.edges import emit_edges, first_column, load_edges
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import FILL, Alias, Scope, named
from fusec.kernel.lowering.phases import (
    COLUMN,
    C,
    Phase,
    emit_outputs,
    once_per_row,
    phase_of,
    reduction_roots,
    vector_of_thread,
)
from fusec.kernel.lowering.stores import StorePlan, plan_stores
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
from fusec.schedule.rows.kernel.tiles import RowTile, slot_of, tile_of
from fusec.schedule.rows.tiles import tiled_in
from fusec.segment.protocol import Refusal


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
    fusion, parameters = plan.fusion, plan.parameters
    width = parameters.vector_width
    lowering, phases, (row, chunk, lane) = plan.lowering, plan.phases, plan.loops
    start = plan.problem.start(width) if parameters.shifted else None
    emitter = Emitter(
        (
            Scope("kernel", frozenset(), per_phase=False),
            Scope("row", frozenset({row, slot_of(parameters.tile_rows)}), per_phase=False),
            Scope("vector", frozenset({chunk})),
            Scope("lane", frozenset({lane})),
        ),
        parameter_names(kernel.argument_names),
        Facts(fusion.hints, start),
        lane=lane if width > 1 else None,
        width=width,
        aliases={chunk: Alias("column", 1 if parameters.shifted else width)},
        written=fusion.effects.overwritten | pushed,
        wide=parameters.wide_index,
        symbols=named(kColumns=plan.problem.rows.columns),
        counts=named(kColumns=plan.problem.rows.columns),
        guard="is_row" if _is_bound(parameters) else "",
    )
    elements = frozenset({chunk, lane})
    plans = plan_stores(
        lowering, fusion.outputs, emitter.store_kind, lambda p: bool(p.variables & elements)
    )
    tile = None
    if parameters.tile_rows:
        tiles = tiled_in(plan.problem, lowering, phases, plan.loops)
        assert not isinstance(tiles, Refusal), tiles
        tile, plans = tile_of(emitter, tiles, parameters.tile_rows, plans, plan.loops)
    nodes = tuple(n for group in phases.reductions for n in group)
    emitter.count([*(p.instance for p in plans), *reduction_roots(lowering, nodes)])
    held = _held(emitter, plan)
    first = None if start is None else first_column(emitter, start, chunk)
    ends = _load_edges(emitter, plan, plans) if first else ()
    loads: list[tuple[Statement, ...]] = []
    kept: list[RegisterArray] = []
    accumulators: list[tuple[Accumulator, ...]] = []
    for number in range(phases.count):
        loads.append(_fill(emitter, phases.loads, held, number, parameters))
        accumulators.append(
            tuple(accumulate(emitter, lowering, node, number) for node in phases.reductions[number])
        )
        kept += _keep(emitter, phases, number)
        due = tuple(p for p in plans if p.instance.depth == number)
        emit_outputs(emitter, due, number, frozenset({chunk, lane}))
        if first:
            summed = zip(phases.reductions[number], accumulators[number], strict=True)
            stored = (p for p in due if p.variables & {chunk, lane})
            emit_edges(emitter, lowering, summed, stored, number)
    once = once_per_row(emitter, THREAD_X)
    # Only now: a later phase may have asked for a row's value that an earlier one computes.
    made = tuple(
        phase_of(emitter, number, loads[number], accumulators[number], once=once)
        for number in range(phases.count)
    )
    return tuple(array for array, _ in held), tuple(kept), made, (first, ends), tile


def _is_bound(p: InnerPersistentParameters) -> bool:
    """Return whether a block may have fewer rows than it takes."""
    return p.threads_y > 1 or p.tile_rows > 0


def _load_edges(
    emitter: Emitter, plan: InnerPersistentPlan, stores: tuple[StorePlan, ...]
) -> tuple[Statement, ...]:
    """Emit what loads the elements beside the vectors, and return what holds them."""
    phases = plan.phases
    loads = [
        (_first_phase(phases.loads, staged.instance), staged.instance) for staged in plan.staged
    ]
    nodes = tuple(n for group in phases.reductions for n in group)
    roots = [*(p.instance for p in stores), *reduction_roots(plan.lowering, nodes)]
    return load_edges(emitter, loads, roots)


def _first_phase(loads: tuple[frozenset[Instance], ...], instance: Instance) -> int:
    """Return the first phase that reads a load."""
    return next(n for n, phase in enumerate(loads) if instance in phase)


Kept = tuple[RegisterArray | SharedArray, Instance]


def _held(emitter: Emitter, plan: InnerPersistentPlan) -> list[Kept]:
    """Return the rows that stay on chip and tell the emitter where their elements are."""
    held: list[Kept] = []
    for staged in plan.staged:
        instance = staged.instance
        name = emitter.names.fresh(f"{instance.name}_row", "row")
        in_registers = plan.parameters.storage == "registers"
        array = (
            RegisterArray(name, storage_type(instance.dtype))
            if in_registers
            else shared_array(emitter.names, name, instance.dtype, staged.offset)
        )
        held.append((array, instance))
        vector = _vector(name, plan.parameters)
        emitter.cached[instance] = item(vector, emitter.element_of_vector)
    return held


def _vector(array: str, p: InnerPersistentParameters) -> Expression:
    """Return a vector of a row that stays on chip."""
    if p.storage == "registers":
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


def _fill(
    emitter: Emitter,
    loads: tuple[frozenset[Instance], ...],
    held: list[Kept],
    number: int,
    parameters: InnerPersistentParameters,
) -> tuple[Statement, ...]:
    """Return the lines that load what stays on chip, in the first phase that reads it."""
    sweep = FILL + number
    for array, instance in held:
        if _first_phase(loads, instance) == number:
            text = emitter.load_vector(instance, sweep)
            line = Assign(_vector(array.name, parameters), text)
            emitter.add(sweep, emitter.scopes[-2].name, line)
    return emitter.take(sweep, emitter.scopes[-2].name)
