"""The statements of reductions."""

from __future__ import annotations

from fusec.dataclasses import dataclass, replace
from fusec.index.instances import reading_order
from fusec.ir.expression import Var
from fusec.ir.graph import Node
from fusec.kernel.arrays import SharedArray
from fusec.kernel.ctext import dim_text, identifier, storage_type
from fusec.kernel.lowering.accumulators import Accumulator, accumulate
from fusec.kernel.lowering.across import RIGHT, load_across, place_of
from fusec.kernel.lowering.edges import emit_edges, first_column, load_edges
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import FILL, block, named, unrolled
from fusec.kernel.lowering.phases import COLUMN, Phase, emit_outputs, phase_of
from fusec.kernel.names import Names, camel, parameter_names
from fusec.kernel.nodes import (
    AUTO,
    BLOCK_Y,
    THREAD_Y,
    ZERO,
    Assign,
    Binary,
    Declare,
    Expression,
    If,
    Item,
    Leave,
    Let,
    Name,
    Statement,
    item,
    vector_of,
)
from fusec.schedule.plan import Kernel
from fusec.schedule.registers import words
from fusec.schedule.rows.kernel.nest import nest_emitter, roots_of, stores_of
from fusec.schedule.rows.kernel.partials import SPLIT, Partial
from fusec.schedule.rows.kernel.tiles import RowTile, slot_of, tile_of
from fusec.schedule.rows.reduction.choice import FLIGHT, ReductionParameters
from fusec.schedule.rows.reduction.family import ReductionPlan, loaded_once
from fusec.schedule.rows.reduction.rows import UNROLLED

AHEAD = (2 * UNROLLED, UNROLLED, UNROLLED // 2)
MOST_AHEAD = 32
"""Words that a thread loads ahead at most: of more it would have too few neighbours."""


@dataclass(frozen=True, kw_only=True)
class ReductionNodes:
    """One sweep over the reduced axes, then the results.

    rows, columns: extents, of the loop and of the vectors (inner: results x reduced,
    outer: reduced x results); sweep: the accumulation; named: the declarations of what it
    comes to; results: what is computed and stored from that; block_results: how many a block has;
    split: the block's number among those that share a result; first_row: of a thread that takes
    columns; arrived: the counters of the blocks that have left their partial results; shifted:
    where the first vector of a row begins, if they are; ends: the declarations of a thread's
    elements beside them; tile: the rows that a block takes in turns, if it does; shared: their
    arrays. across: whether vectors of columns are read wherever they begin; ahead: how many vectors
    of a row that blocks share are loaded before the first of them is used.
    """

    block_results: Expression
    split: Expression
    first_row: Expression
    rows: Expression
    columns: Expression
    sweep: Phase
    named: tuple[Statement, ...]
    results: Phase
    partials: tuple[Partial, ...]
    arrived: str
    shifted: Expression | None
    ends: tuple[Statement, ...]
    tile: RowTile | None
    shared: tuple[SharedArray, ...]
    across: bool
    ahead: int


def nodes_of(plan: ReductionPlan, kernel: Kernel) -> ReductionNodes:
    """Return the statements of a reduction kernel."""
    parameters = plan.parameters
    sweep, results, accumulators, names, ends, tile = _parts(plan, kernel)
    along = plan.problem.rows.along(inner=parameters.inner)
    split = SPLIT if parameters.turns else BLOCK_Y
    return ReductionNodes(
        block_results=Name("kThreadsY") if parameters.inner else Name("kThreadsX") * "kVec",
        split=split,
        first_row=_first_row(parameters, split),
        rows=dim_text(along.rows),
        columns=dim_text(along.columns),
        sweep=sweep,
        named=tuple(line for a in accumulators for line in a.named(Name(a.part))),
        results=results,
        partials=_partials(plan, accumulators, names),
        arrived=identifier(plan.workspaces[-1].name) if plan.workspaces else "",
        shifted=ends[0],
        ends=ends[1],
        tile=None if tile is None else tile.read_by((sweep, results)),
        shared=() if tile is None else tile.shared,
        across=parameters.shifted and not parameters.inner,
        ahead=_ahead(plan),
    )


def _partials(
    plan: ReductionPlan, accumulators: tuple[Accumulator, ...], names: Names
) -> tuple[Partial, ...]:
    """Return the reductions whose partial results pass through a workspace."""
    in_bulk = plan.parameters.in_bulk
    return tuple(
        Partial(
            a,
            identifier(w.name),
            names.fresh(f"{a.name}_parts", "parts"),
            storage_type(w.dtype) if in_bulk else a.type,
            names.fresh(f"{camel(a.name)}Layout", "Layout") if in_bulk else "",
        )
        for w, a in zip(plan.workspaces, accumulators, strict=False)
    )


def _ahead(plan: ReductionPlan) -> int:
    """Return how many vectors of a shared row a thread loads before it uses them.

    A thread with fewer vectors than these would only wait for all of them at once.
    """
    p, loads = plan.parameters, plan.phases.loads[0]
    if not p.inner or p.splits == 1 or any(i.gathered for i in loads):
        return 1
    held = max(1, sum(words(i.dtype, p.vector_width) for i in loads))
    columns = plan.problem.rows.columns.evaluate(plan.fusion.hints)
    most = columns // (p.splits * p.threads_x * p.vector_width)
    for ahead in AHEAD:
        words_ahead = FLIGHT // 4 if ahead > UNROLLED else MOST_AHEAD
        if ahead <= most and ahead * held <= words_ahead:
            return ahead
    return 1


def _first_row(p: ReductionParameters, split: Expression) -> Expression:
    """Return the first of the rows of which a thread takes columns, a constant if all take all."""
    if p.splits > 1:
        return split * "kThreadsY" + THREAD_Y
    return THREAD_Y if p.threads_y > 1 else ZERO


Parts = tuple[
    Phase,
    Phase,
    tuple[Accumulator, ...],
    Names,
    tuple[Expression | None, tuple[Statement, ...]],
    RowTile | None,
]


def _parts(plan: ReductionPlan, kernel: Kernel) -> Parts:
    """Return the phases: results belong to rows, or to the lanes of kept columns."""
    p, (row, chunk, lane) = plan.parameters, plan.loops
    along = plan.problem.rows.along(inner=p.inner)
    sizes = named(columns=along.columns)
    start = plan.problem.start(p.vector_width) if p.shifted and p.inner else None
    bound = p.threads_y > 1 or p.splits == 1
    emitter = nest_emitter(
        plan,
        parameter_names(kernel.argument_names),
        inner=p.inner,
        start=start,
        of_row=(slot_of(p.tile_rows),),
        part=(ZERO, RIGHT) if p.shifted and not p.inner else (),
        streamed=loaded_once(plan) if p.streaming else frozenset(),
        symbols=sizes,
        counts=sizes if p.inner else named(rows=along.rows),
        guard="is_column" if not p.inner else "is_row" if bound else "",
        stored_under="is_row" if p.inner else "is_column",
    )
    elements = frozenset({chunk, lane} if p.inner else {row, chunk, lane})
    first = None if start is None else first_column(emitter, start, chunk)
    return _emit(emitter, plan, elements, first)


def _emit(
    emitter: Emitter,
    plan: ReductionPlan,
    elements: frozenset[Var],
    first: Expression | None,
) -> Parts:
    lowering, nodes = plan.lowering, plan.phases.reductions[0]
    plans = stores_of(
        emitter, plan, lambda p: p.instance.depth == 0 and bool(p.variables & elements)
    )
    tile, plans = tile_of(emitter, plan, plans)
    if emitter.part:
        _load_across(emitter, plan)
    arrays = _load_ahead(emitter, plan) if _ahead(plan) > 1 else ()
    accumulators = tuple(
        accumulate(emitter, lowering, n, 0, array=not plan.parameters.inner) for n in nodes
    )
    ends = _ends(emitter, plan, nodes, accumulators) if first else ()
    for number in (0, 1):
        due = tuple(p for p in plans if p.instance.depth == number)
        emit_outputs(emitter, due, number, elements)
    sweep = phase_of(emitter, 0, (), accumulators)
    if plan.parameters.inner and plan.parameters.splits > 1:
        sweep = replace(sweep, statements=_turns(emitter, plan, arrays, sweep.statements))
    results = phase_of(emitter, 1, guarded=False)
    return sweep, results, accumulators, emitter.names, (first, ends), tile


def _load_across(emitter: Emitter, plan: ReductionPlan) -> None:
    """Emit what loads the vectors of a row's columns, wherever the row begins."""
    lane = emitter.lane
    assert lane is not None
    for load in sorted(plan.phases.loads[0], key=reading_order):
        if lane in load.variables:
            name = emitter.fresh(f"{load.name}_vec", "vec", 0, len(emitter.scopes) - 2)
            about = place_of(emitter, plan.fusion, load, 0)
            found = load_across(about, streams=load in emitter.streamed)
            emitter.add(0, "row", Let(AUTO, name, found))
            emitter.cached[load] = Item(Name(name), Name(lane.name))


def _load_ahead(emitter: Emitter, plan: ReductionPlan) -> tuple[Statement, ...]:
    """Emit what loads the vectors that a thread uses next, and return the arrays of them."""
    arrays: list[Statement] = []
    whole = (i for i in plan.phases.loads[0] if emitter.is_whole(i))
    for load in sorted(whole, key=reading_order):
        name = emitter.fresh(f"{load.name}_ahead", "ahead", FILL, len(emitter.scopes) - 2)
        kind = vector_of(storage_type(load.dtype))
        arrays.append(Declare(kind, name, (Name("kAhead"),)))
        line = Assign(item(name, "u"), emitter.load_vector(load, FILL))
        emitter.add(FILL, emitter.scopes[-2].name, line)
        emitter.cached[load] = item(name, "u", emitter.element_of_vector)
    return tuple(arrays)


def _turns(
    emitter: Emitter,
    plan: ReductionPlan,
    arrays: tuple[Statement, ...],
    statements: tuple[Statement, ...],
) -> tuple[Statement, ...]:
    """Return the loop that loads a thread's next vectors, then the one that takes them."""
    end = "end" if plan.parameters.shifted else "columns"
    column = Let(emitter.index_type, COLUMN.name, Name("first") + Name("u") * "kStep")
    test = Binary("<", COLUMN, Name(end))
    loads = block(test, emitter.take(FILL, emitter.scopes[-2].name))
    past = If(Binary(">=", COLUMN, Name(end)), (Leave("break"),), braces=False)
    return (
        *arrays,
        *unrolled("u", "kAhead", (column, *loads) if loads else ()),
        *unrolled("u", "kAhead", (column, past, *statements)),
    )


def _ends(
    emitter: Emitter,
    plan: ReductionPlan,
    nodes: tuple[Node, ...],
    accumulators: tuple[Accumulator, ...],
) -> tuple[Statement, ...]:
    """Emit what is done with the elements beside the vectors, and return what holds them."""
    whole = (i for i in plan.phases.loads[0] if emitter.is_whole(i))
    loads = [(0, i) for i in sorted(whole, key=reading_order)]
    held = load_edges(emitter, loads, roots_of(plan))
    emit_edges(emitter, plan.lowering, zip(nodes, accumulators, strict=True), (), 0)
    return held
