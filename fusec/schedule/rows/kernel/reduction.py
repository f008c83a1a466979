"""The statements of reductions."""

from __future__ import annotations

from fusec.dataclasses import dataclass, replace
from fusec.index.instances import reading_order
from fusec.kernel.arrays import SharedArray
from fusec.kernel.ctext import dim_text, identifier, storage_type
from fusec.kernel.lowering.accumulators import Accumulator
from fusec.kernel.lowering.across import RIGHT, load_across, place_of
from fusec.kernel.lowering.edges import emit_edges, load_edges
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
from fusec.schedule.rows.kernel.nest import (
    accumulators_of,
    nest_emitter,
    roots_of,
    shifted_column,
    stored_in,
    stores_of,
)
from fusec.schedule.rows.kernel.partials import SPLIT, Partial
from fusec.schedule.rows.kernel.tiles import RowTile, slot_of, tile_of
from fusec.schedule.rows.reduction.choice import FLIGHT, ReductionParameters
from fusec.schedule.rows.reduction.family import ReductionPlan, loaded_once
from fusec.schedule.rows.reduction.rows import UNROLLED

AHEAD = (2 * UNROLLED, UNROLLED, UNROLLED // 2)
MOST_AHEAD = 32
"""Most words that a thread prefetches: more would leave too few threads per SM."""


@dataclass(frozen=True, kw_only=True)
class ReductionNodes:
    """One sweep over the reduced axes, then the results.

    rows, columns: extents, of the loop and of the vectors (inner: results x reduced, outer: reduced
    x results); sweep: the accumulation; named: the declarations of its results; results: what is
    computed and stored from them; block_results: results per block; split: the block's index among
    those that share a result; first_row: of a thread that reduces columns; arrived: the counters of
    the blocks that have stored their partial results; shifted: the first vector of a row, if
    vectors are peeled; ends: the declarations of a thread's elements outside the vectors; tile: the
    rows that a block stages together, if it does; shared: their arrays. across: whether vectors of
    columns are read at any alignment; ahead: how many vectors of a row that blocks share are
    prefetched before the first of them is used.
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
    p, rows = plan.parameters, plan.problem.rows.along(inner=plan.parameters.inner)
    elements = frozenset(plan.loops[1:] if p.inner else plan.loops)
    emitter = _emitter(plan, kernel)
    first = shifted_column(emitter, plan)
    stores = stores_of(
        emitter, plan, lambda s: s.instance.depth == 0 and bool(s.variables & elements)
    )
    tile, stores = tile_of(emitter, plan, stores)
    if emitter.part:
        _load_across(emitter, plan)
    arrays = _load_ahead(emitter, plan) if _ahead(plan) > 1 else ()
    accumulators = accumulators_of(emitter, plan, 0, array=not p.inner)
    ends = () if first is None else _ends(emitter, plan, accumulators)
    for number in (0, 1):
        emit_outputs(emitter, stored_in(stores, number), number, elements)
    sweep, results = phase_of(emitter, 0, (), accumulators), phase_of(emitter, 1, guarded=False)
    if p.inner and p.splits > 1:
        sweep = replace(sweep, statements=_turns(emitter, plan, arrays, sweep.statements))
    split = SPLIT if p.turns else BLOCK_Y
    return ReductionNodes(
        block_results=Name("kThreadsY") if p.inner else Name("kThreadsX") * "kVec",
        split=split,
        first_row=_first_row(p, split),
        rows=dim_text(rows.rows),
        columns=dim_text(rows.columns),
        sweep=sweep,
        named=tuple(line for a in accumulators for line in a.named(Name(a.part))),
        results=results,
        partials=_partials(plan, accumulators, emitter.names),
        arrived=identifier(plan.workspaces[-1].name) if plan.workspaces else "",
        shifted=first,
        ends=ends,
        tile=None if tile is None else tile.read_by((sweep, results)),
        shared=() if tile is None else tile.shared,
        across=p.shifted and not p.inner,
        ahead=_ahead(plan),
    )


def _emitter(plan: ReductionPlan, kernel: Kernel) -> Emitter:
    """Return the emitter: results belong to rows, or to the lanes of kept columns."""
    p, rows = plan.parameters, plan.problem.rows.along(inner=plan.parameters.inner)
    sizes, bound = named(columns=rows.columns), p.threads_y > 1 or p.splits == 1
    return nest_emitter(
        plan,
        parameter_names(kernel.argument_names),
        inner=p.inner,
        start=plan.problem.start(p.vector_width) if p.shifted and p.inner else None,
        of_row=(slot_of(p.tile_rows),),
        part=(ZERO, RIGHT) if p.shifted and not p.inner else (),
        streamed=loaded_once(plan) if p.streaming else frozenset(),
        symbols=sizes,
        counts=sizes if p.inner else named(rows=rows.rows),
        guard="is_column" if not p.inner else "is_row" if bound else "",
        stored_under="is_row" if p.inner else "is_column",
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
    """Return how many vectors of a shared row a thread prefetches before it uses them.

    A thread with fewer vectors than that would only wait for all of them at once.
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
    """Return the first row of a thread that reduces columns, a constant if all have the same."""
    if p.splits > 1:
        return split * "kThreadsY" + THREAD_Y
    return THREAD_Y if p.threads_y > 1 else ZERO


def _load_across(emitter: Emitter, plan: ReductionPlan) -> None:
    """Emit the vector loads of a row's columns, for rows of any alignment."""
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
    """Emit the loads of the vectors that a thread uses next, and return their arrays."""
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
    """Return the loop that loads a thread's next vectors, then the one that accumulates them."""
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
    emitter: Emitter, plan: ReductionPlan, accumulators: tuple[Accumulator, ...]
) -> tuple[Statement, ...]:
    """Emit the reduction of the elements outside the vectors, and return their declarations."""
    whole = (i for i in plan.phases.loads[0] if emitter.is_whole(i))
    loads = [(0, i) for i in sorted(whole, key=reading_order)]
    held = load_edges(emitter, loads, roots_of(plan))
    summed = zip(plan.phases.reductions[0], accumulators, strict=True)
    emit_edges(emitter, plan.lowering, summed, (), 0)
    return held
