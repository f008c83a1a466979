"""The statements of pointwise kernels."""

from __future__ import annotations

from fusec.dataclasses import dataclass, replace
from fusec.index.access import Facts
from fusec.index.instances import Instance
from fusec.ir.dim import dim, floordiv
from fusec.ir.expression import Index
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import dim_text, storage_type
from fusec.kernel.facts import calls
from fusec.kernel.lowering.across import LOAD_ACROSS, RIGHT, ask_inside, load_across, place_of
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Alias, Scope, named
from fusec.kernel.lowering.parts import emit_stores, parts_of, second_parts
from fusec.kernel.lowering.stores import plan_stores
from fusec.kernel.names import parameter_names
from fusec.kernel.nodes import (
    ZERO,
    Assign,
    Binary,
    Braced,
    Declare,
    Expression,
    Grouped,
    If,
    Let,
    Name,
    Pointer,
    Select,
    Statement,
    Type,
    Unary,
    call,
    item,
    negated,
    vector_of,
    walk,
)
from fusec.schedule.plan import Kernel
from fusec.schedule.pointwise.family import PointwisePlan
from fusec.schedule.pointwise.loads import Loads
from fusec.schedule.pointwise.nest import FlatNest
from fusec.schedule.pointwise.windows import load_windows

LOADS = "loads"
"""The lines of phase AHEAD that load, after those of their addresses."""
AHEAD, ONCE = 1, 2
"""The phases that load the operands of phase 0: per row, and once for all rows of a thread."""
_AT = Name("column") + "v"
_IN_ROW = Binary("&&", Binary(">=", _AT, ZERO), Binary("<", _AT, Name("columns")))
INSIDE = Binary("||", negated(Name("kPart")), Grouped(_IN_ROW))
"""The test whether an element of a peeled vector is in the row."""


@dataclass(frozen=True)
class Body:
    """The statements of a loop nest: once per kernel, for all rows of a column, for each vector.

    arrays, places, loads: if vectors are prefetched before the first one is used, their arrays, the
    statements before their addresses, and the loads; once: the loads for all rows of a column;
    inside: the tests whether vectors are within their tensors.
    """

    kernel: tuple[Statement, ...]
    column: tuple[Statement, ...]
    statements: tuple[Statement, ...]
    arrays: tuple[Statement, ...] = ()
    places: tuple[Statement, ...] = ()
    loads: tuple[Statement, ...] = ()
    once: tuple[Statement, ...] = ()
    inside: tuple[Statement, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PointwiseNodes:
    """A loop nest over rows and vectors of columns (or vectors alone).

    rows, columns: extents (rows is None for a flat loop); chunks: vectors of a row; tail: the
    elements after the last whole vector of a flat loop, one per thread, or None; shift: offset of a
    thread's rows from the previous aligned position, if their vectors begin there; across: whether
    vectors that are loaded whole include neighbours, which must be in the row, too; inside: if
    vectors next to a row may be loaded whole, the tests whether they are within their tensors;
    last_rows_first, last_columns_first: whether the blocks on a column, and adjacent blocks on a
    row, begin at the end.
    """

    rows: Expression | None
    chunks: Expression
    columns: Expression
    shift: Expression | None
    across: bool
    inside: tuple[Statement, ...]
    last_rows_first: bool
    last_columns_first: bool
    body: Body
    tail: Body | None


def without_second(fusion: Fusion, kernel: Kernel) -> Kernel:
    """Return a kernel that accesses each complex tensor through the pointer to its first part."""
    seconds = second_parts(fusion)
    return replace(kernel, arguments=tuple(a for a in kernel.arguments if a.name not in seconds))


def nodes_of(plan: PointwisePlan, kernel: Kernel) -> PointwiseNodes:
    """Return the statements of a kernel that accesses complex tensors through their first parts."""
    p, rows = plan.parameters, plan.problem.nest_with(plan.parameters).rows
    columns, width = rows.columns, p.vector_width
    # No guard holds for a flat loop: a size that is not provably a multiple has a tail.
    whole = p.break_point > 0 or Facts.proven(columns, width)
    body = _body(plan, kernel, width)
    tail = None if whole else _body(plan, kernel, 1, tail=True)
    if tail is not None and tail.kernel == body.kernel:
        tail = replace(tail, kernel=())  # declared by the loop, with the same names
    return PointwiseNodes(
        rows=dim_text(rows.rows) if p.break_point else None,
        chunks=dim_text(floordiv(columns, width)),
        columns=dim_text(columns),
        shift=_shift(plan),
        across=calls(body.loads, LOAD_ACROSS),
        inside=() if INSIDE in walk(body.loads + body.once) else body.inside,
        last_rows_first=_takes_last_rows_first(plan),
        last_columns_first=_takes_last_columns_first(plan),
        body=body,
        tail=tail,
    )


def _takes_last_columns_first(plan: PointwisePlan) -> bool:
    """Return whether blocks begin at the ends of rows.

    Per-row values are mostly computed by a kernel that has read these rows to their ends, so L2
    still holds the ends.
    """
    row, chunk, lane = plan.problem.nest_with(plan.parameters).loops
    return any(row in i.variables and not {chunk, lane} & i.variables for i in _loads(plan))


def _takes_last_rows_first(plan: PointwisePlan) -> bool:
    """Return whether blocks begin at the ends of columns.

    They do if per-column values are wider than the stored type, like sums of 16-bit floats: a
    kernel has read all rows to compute them, and L2 still holds the last.
    """
    row, chunk, lane = plan.problem.nest_with(plan.parameters).loops
    size = max(o.value.dtype.size for o in plan.fusion.outputs)
    of_columns = any(
        row not in i.variables and {chunk, lane} & i.variables and i.dtype.size > size
        for i in _loads(plan)
    )
    return of_columns and not _takes_last_columns_first(plan)


def _loads(plan: PointwisePlan) -> list[Instance]:
    """Return the loads, none for a flat loop."""
    nest = plan.problem.nest_with(plan.parameters)
    return [a.load for a in nest.accesses if a.load is not None] if nest.break_point else []


def _shift(plan: PointwisePlan) -> Expression | None:
    """Return the offset of a thread's rows from an aligned position, the same for all of them."""
    nest = plan.problem.nest_with(plan.parameters)
    if not nest.shifted:
        return None
    assert nest.start is not None
    pitch = nest.start.coefficient(nest.loops[0])
    assert pitch is not None
    return Name("first_row") * dim_text(pitch) % "kVec"


def _body(plan: PointwisePlan, kernel: Kernel, width: int, *, tail: bool = False) -> Body:
    fusion, p = plan.fusion, plan.parameters
    nest = plan.problem.nest(p.break_point, width, p.shifted)
    _, chunk, lane = nest.loops
    emitter = Emitter(
        _scopes(nest),
        parameter_names(kernel.argument_names),
        Facts(fusion.hints, nest.start),
        lane=lane if width > 1 else None,
        width=width,
        aliases={chunk: Alias("column", 1 if p.shifted else width)},
        part=(Unary("-", Name("column")), RIGHT) if p.shifted else (),
        written=fusion.effects.overwritten,
        wide=p.wide_index,
        symbols=named(columns=nest.rows.columns) if p.break_point else {},
        parts=parts_of(fusion),
    )
    plans = plan_stores(nest.lowering, fusion.outputs, emitter.store_kind)
    emitter.count(p.instance for p in plans)
    arrays = ()
    if width > 1 or not tail:
        ahead = p.unroll > 1 or p.shifted
        arrays = _load_ahead(emitter, fusion, nest.loads) if ahead else ()
        arrays += load_windows(emitter, nest.loads, AHEAD if ahead else 0)
        if p.shifted:
            _load_once(emitter, nest.loads)
    emit_stores(emitter, plans, 0)
    return Body(
        emitter.take(0, "kernel"),
        emitter.take(0, "column"),
        emitter.statements(0),
        arrays,
        emitter.take(AHEAD, emitter.scopes[-2].name),
        (*emitter.take(AHEAD, LOADS), *emitter.lanes(emitter.take(AHEAD, "lane"))),
        emitter.statements(ONCE),
        emitter.take(AHEAD, "inside"),
    )


def _scopes(nest: FlatNest) -> tuple[Scope, ...]:
    """Return the scopes: a thread's rows inside a column of vectors, or only vectors."""
    row, chunk, lane = (frozenset({v}) for v in nest.loops)
    kernel, elements = Scope("kernel", frozenset(), per_phase=False), Scope("lane", lane)
    if not nest.break_point:
        return kernel, Scope("vector", row | chunk), elements
    column = Scope("column", chunk, per_phase=False)
    return kernel, column, Scope("vector", row, hoists=True), elements


def _load_ahead(emitter: Emitter, fusion: Fusion, loads: Loads) -> tuple[Statement, ...]:
    """Emit the prefetches of all iterations of the loop over vectors, and return their arrays."""
    arrays: list[Statement] = []
    lane = loads.lane.name

    def held(load: Instance, kind: Type, *extents: Expression) -> Expression:
        name = emitter.fresh(f"{load.name}_ahead", "ahead", AHEAD, 0)
        arrays.append(Declare(kind, name, (Name("kUnroll"), *extents)))
        return item(name, "u")

    for together in loads.vectors:
        first = together[0]
        vector = held(first, vector_of(storage_type(first.dtype)))
        found = emitter.load_vector(first, AHEAD)
        if len(together) > 1:
            found = _load_either(emitter, *together)
        emitter.add(AHEAD, LOADS, Assign(vector, found))
        if emitter.part:
            _, *place = place_of(emitter, fusion, first, AHEAD)
            whole = call("fusec::is_whole", *place, about=["kVec"])
            emitter.add(AHEAD, "inside", Assign(Name("inside"), whole, "&="))
        emitter.cached.update(dict.fromkeys(together, item(vector, lane)))
    for load in loads.across:
        vector = held(load, vector_of(storage_type(load.dtype)))
        about = place_of(emitter, fusion, load, AHEAD)
        emitter.add(AHEAD, "inside", ask_inside(about))
        emitter.add(AHEAD, LOADS, Assign(vector, load_across(about)))
        emitter.cached[load] = item(vector, lane)
    for load in loads.elements:
        by_lane = loads.lane in load.variables
        at = held(load, storage_type(load.dtype), *([Name("kVec")] if by_lane else []))
        at = item(at, lane) if by_lane else at
        scope = emitter.scopes[emitter.scope_of(load.variables)].name
        line: Statement = Assign(at, emitter.element(load, AHEAD))
        if emitter.part and by_lane:
            line = If(INSIDE, (line,), braces=False)
        emitter.add(AHEAD, "lane" if scope == "lane" else LOADS, line)
        emitter.cached[load] = at
    return tuple(arrays)


def _load_once(emitter: Emitter, loads: Loads) -> None:
    """Emit elementwise loads of vectors that are the same for all rows of a thread."""
    for load in (i for i in loads.once if loads.lane in i.variables):
        name = emitter.fresh(f"{load.name}_once", "once", ONCE, 0)
        held = Declare(storage_type(load.dtype), name, (Name("kVec"),), Braced(None))
        emitter.add(0, "column", held)
        at = item(name, loads.lane.name)
        line = Assign(at, emitter.element(load, ONCE))
        emitter.add(ONCE, "lane", If(INSIDE, (line,), braces=False))
        emitter.cached[load] = at


def _load_either(emitter: Emitter, first: Instance, second: Instance) -> Expression:
    """Return the expression that loads whichever of two vectors is needed."""
    one, other = (_first_address(emitter, load) for load in (first, second))
    alike = Index(tuple(t for t in one.terms if t in other.terms), dim(0))
    test = emitter.condition(emitter.at_lane_zero(first.conditions), AHEAD)
    places = [emitter.index(a - alike, AHEAD) for a in (one, other)]
    function = "load" if first.name in emitter.written else "load_readonly"
    start = emitter.pointer(first.name, alike, AHEAD)
    name = emitter.fresh(f"{first.name}_half", "half", AHEAD, len(emitter.scopes) - 2)
    line = Let(emitter.index_type, name, Select(test, *places))
    emitter.add(AHEAD, emitter.scopes[-2].name, line)
    return call(f"fusec::{function}", Pointer(start, Name(name)), about=["kVec"])


def _first_address(emitter: Emitter, load: Instance) -> Index:
    assert load.address is not None
    base = emitter.vector_base(load.address, load.conditions)
    assert base is not None
    return base
