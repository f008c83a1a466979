"""The view of the pointwise template."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusec.codegen.across import place_of
from fusec.codegen.parts import emit_stores, parts_of, without_second
from fusec.codegen.views import Body, KernelView, head, parameter_names, plan_stores
from fusec.codegen.windows import load_windows
from fusec.index.access import Facts
from fusec.index.instances import Instance, instances_under
from fusec.ir.dim import Dim, dim, floordiv, product
from fusec.ir.expression import Index, Var
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import dim_text, storage_type
from fusec.kernel.emit import Emitter
from fusec.kernel.nest import Alias, Scope, named
from fusec.kernel.nodes import Statement
from fusec.schedule.plan import Kernel
from fusec.schedule.pointwise import PointwisePlan
from fusec.schedule.pointwise_choice import PointwiseParameters, bind, lowered_flat, start_of
from fusec.schedule.pointwise_loads import Loads, loads_of

LOADS = "loads"
"""The lines of phase AHEAD that load, behind those of their addresses."""
AHEAD, ONCE = 1, 2
"""The phases that load what phase 0 computes with, of each row and once for all of a thread."""
INSIDE = "if (!kPart || (column + v >= 0 && column + v < columns)) "
"""Which elements of a vector that is shifted lie in the row."""


@dataclass(frozen=True, kw_only=True)
class PointwiseView(KernelView):
    """A loop nest over rows and vectors of columns (or vectors alone).

    rows, columns: extents as C text (rows is empty for a flat loop); chunks: vectors of a row;
    tail: the elements after the last whole vector of a flat loop, one per thread, or None; shift:
    how far a thread's rows begin behind an aligned place, where their vectors begin there, or
    empty; margin: of vectors that may be read whole, how far they are from the ends of a row;
    inside: where those beside a row may be, too, what asks whether they are in their tensors;
    row_block, column_block: which of the blocks on a column, and side by side on a row, takes a
    thread's rows and columns.
    """

    index_type: str
    threads_x: int
    threads_y: int
    vector_width: int
    unroll: int
    rows: str
    chunks: str
    columns: str
    shift: str
    margin: str
    inside: tuple[Statement, ...]
    row_block: str
    column_block: str
    body: Body
    tail: Body | None


def view(plan: PointwisePlan, kernel: Kernel) -> PointwiseView:
    """Return the view of a pointwise kernel."""
    kernel = without_second(plan.fusion, kernel)
    parameters, domain = plan.parameters, plan.problem.domain
    outer = domain.axes[: parameters.break_point]
    columns = _columns(plan)
    width = parameters.vector_width
    # Of a flat loop no guard keeps the size: what is no multiple at any size has a tail.
    whole = bool(outer) or Facts.proven(columns, width)
    body = _body(plan, kernel, width)
    tail = None if whole else _body(plan, kernel, 1, tail=True)
    if tail is not None and tail.kernel == body.kernel:
        tail = replace(tail, kernel=())  # what the loop has, by the same names
    chunks = floordiv(columns, width)
    return PointwiseView(
        **head(plan, kernel),  # pyright: ignore[reportArgumentType]
        schedule=_sentence(parameters, bool(outer)),
        index_type="fusec::i64" if parameters.wide_index else "int",
        threads_x=parameters.threads_x,
        threads_y=parameters.threads_y,
        vector_width=width,
        unroll=parameters.unroll,
        rows=dim_text(product(a.extent for a in outer)).text if outer else "",
        chunks=dim_text(chunks).text,
        columns=dim_text(columns).text,
        shift=_shift(plan),
        margin="kVec" if any("load_across" in str(line) for line in body.loads) else "0",
        inside=() if any(INSIDE in str(line) for line in body.loads + body.once) else body.inside,
        row_block=_row_block(plan),
        column_block="(gridDim.y - 1 - blockIdx.y)" if _descends(plan) else "blockIdx.y",
        body=body,
        tail=tail,
    )


def _columns(plan: PointwisePlan) -> Dim:
    return product(a.extent for a in plan.problem.domain.axes[plan.parameters.break_point :])


def _descends(plan: PointwisePlan) -> bool:
    """Return whether blocks begin at the ends of rows.

    Values of rows alone are mostly made by a kernel that has read these rows to their ends, so that
    the ends are what L2 still holds.
    """
    row, chunk, lane = _loops(plan)
    return any(row in i.variables and not {chunk, lane} & i.variables for i in _loads(plan))


def _row_block(plan: PointwisePlan) -> str:
    """Return the block on a column that takes a thread's rows.

    The last ones begin where values of columns alone are wider than what is stored, as sums of
    halves are: a kernel has read all rows to make them, and L2 still holds the last.
    """
    wide = plan.parameters.wide_index
    row, chunk, lane = _loops(plan)
    size = max(o.value.dtype.size for o in plan.fusion.outputs)
    of_columns = any(
        row not in i.variables and {chunk, lane} & i.variables and i.dtype.size > size
        for i in _loads(plan)
    )
    if _descends(plan) or not of_columns:
        return "static_cast<fusec::i64>(blockIdx.x)" if wide else "blockIdx.x"
    last = "gridDim.x - 1 - blockIdx.x"
    return f"static_cast<fusec::i64>({last})" if wide else f"({last})"


def _loops(plan: PointwisePlan) -> tuple[Var, Var, Var]:
    p = plan.parameters
    return bind(plan.problem.domain, p.break_point, p.vector_width, p.shifted)[1]


def _loads(plan: PointwisePlan) -> list[Instance]:
    """Return what is loaded, nothing for a flat loop."""
    p = plan.parameters
    if not p.break_point:
        return []
    about = plan.problem.domain, p.break_point, p.vector_width, p.shifted
    lowering = lowered_flat(plan.fusion, *about)
    found = instances_under([lowering.at_home(o.value) for o in plan.fusion.outputs])
    return [i for i in found if i.kind == "load"]


def _shift(plan: PointwisePlan) -> str:
    """Return how far behind an aligned place a thread's rows begin, all of them alike."""
    p = plan.parameters
    if not p.shifted:
        return ""
    about = plan.problem.domain, p.break_point, p.vector_width
    start = start_of(plan.fusion, *about)
    assert start is not None
    pitch = start.coefficient(bind(*about, True)[1][0])
    assert pitch is not None
    return f"first_row * {dim_text(pitch).at_least(14)} % kVec"


def _sentence(parameters: PointwiseParameters, rows: bool) -> str:
    access = (
        f"accesses of {parameters.vector_width} elements"
        if parameters.vector_width > 1
        else "single elements"
    )
    if rows:
        shape = f"{parameters.threads_y} x {parameters.threads_x} threads (rows x vectors)"
        each = f"{parameters.unroll} rows per thread"
        return f"Schedule: rows by vectors of columns, {shape}, {each}, {access}."
    each = f"{parameters.unroll} vectors per thread"
    return f"Schedule: one flat loop, {parameters.threads_x} threads, {each}, {access}."


def _body(plan: PointwisePlan, kernel: Kernel, width: int, *, tail: bool = False) -> Body:
    fusion, parameters, domain = plan.fusion, plan.parameters, plan.problem.domain
    about = domain, parameters.break_point, width
    _, loops = bind(*about, parameters.shifted)
    lowering = lowered_flat(fusion, *about, parameters.shifted)
    start = start_of(fusion, *about) if parameters.shifted else None
    _, chunk, lane = loops
    emitter = Emitter(
        _scopes(parameters.break_point, loops),
        parameter_names(kernel),
        Facts(fusion.hints, start),
        lane=lane if width > 1 else None,
        width=width,
        aliases={chunk: Alias("column", 1 if parameters.shifted else width)},
        part="-column, columns - column" if parameters.shifted else "",
        written=fusion.effects.overwritten,
        wide=parameters.wide_index,
        symbols=named(columns=_columns(plan)) if parameters.break_point else {},
        parts=parts_of(fusion),
    )
    plans = plan_stores(lowering, fusion.outputs, emitter.store_kind)
    emitter.count(p.instance for p in plans)
    arrays = ()
    if width > 1 or not tail:
        loads = loads_of(lowering, loops, parameters.break_point, start)
        ahead = parameters.unroll > 1 or parameters.shifted
        arrays = _load_ahead(emitter, fusion, loads) if ahead else ()
        arrays += load_windows(emitter, loads, AHEAD if ahead else 0)
        if parameters.shifted:
            _load_once(emitter, loads)
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


def _scopes(break_point: int, loops: tuple[Var, Var, Var]) -> tuple[Scope, ...]:
    """Return the scopes of rows of vectors, a thread's columns around its rows, or of vectors."""
    row, chunk, lane = (frozenset({v}) for v in loops)
    kernel, elements = Scope("kernel", frozenset(), per_phase=False), Scope("lane", lane)
    if not break_point:
        return kernel, Scope("vector", row | chunk), elements
    column = Scope("column", chunk, per_phase=False)
    return kernel, column, Scope("vector", row, hoists=True), elements


def _load_ahead(emitter: Emitter, fusion: Fusion, loads: Loads) -> tuple[Statement, ...]:
    """Emit what loads what each turn of the loop over vectors reads, and return its arrays."""
    arrays: list[str] = []
    lane = loads.lane
    for together in loads.vectors:
        name = emitter.fresh(f"{together[0].name}_ahead", "ahead", AHEAD, 0)
        arrays.append(f"fusec::Vec<{storage_type(together[0].dtype)}, kVec> {name}[kUnroll];")
        one = emitter.load_vector(together[0], AHEAD)
        text = one if len(together) == 1 else _load_either(emitter, *together)
        emitter.add(AHEAD, LOADS, f"{name}[u] = {text};")
        if emitter.part:
            _, place = place_of(emitter, fusion, together[0], AHEAD).split(", ", 1)
            emitter.add(AHEAD, "inside", f"inside &= fusec::is_whole<kVec>({place});")
        emitter.cached.update(dict.fromkeys(together, f"{name}[u][{lane.name}]"))
    for load in loads.across:
        name = emitter.fresh(f"{load.name}_ahead", "ahead", AHEAD, 0)
        arrays.append(f"fusec::Vec<{storage_type(load.dtype)}, kVec> {name}[kUnroll];")
        about = place_of(emitter, fusion, load, AHEAD)
        emitter.add(AHEAD, "inside", f"inside &= fusec::is_inside<kVec>({about});")
        line = f"{name}[u] = fusec::load_across<kVec, kPart>({about});"
        emitter.add(AHEAD, LOADS, line)
        emitter.cached[load] = f"{name}[u][{lane.name}]"
    for load in loads.elements:
        name = emitter.fresh(f"{load.name}_ahead", "ahead", AHEAD, 0)
        by_lane = lane in load.variables
        arrays.append(f"{storage_type(load.dtype)} {name}[kUnroll]{'[kVec]' if by_lane else ''};")
        at = f"{name}[u][{lane.name}]" if by_lane else f"{name}[u]"
        scope = emitter.scopes[emitter.scope_of(load.variables)].name
        guard = INSIDE if emitter.part and by_lane else ""
        line = f"{guard}{at} = {emitter.element(load, AHEAD)};"
        emitter.add(AHEAD, "lane" if scope == "lane" else LOADS, line)
        emitter.cached[load] = at
    return tuple(arrays)


def _load_once(emitter: Emitter, loads: Loads) -> None:
    """Emit what loads, element by element, vectors that are the same for all rows of a thread."""
    for load in (i for i in loads.once if loads.lane in i.variables):
        name = emitter.fresh(f"{load.name}_once", "once", ONCE, 0)
        emitter.add(0, "column", f"{storage_type(load.dtype)} {name}[kVec] = {{}};")
        at = f"{name}[{loads.lane.name}]"
        emitter.add(ONCE, "lane", f"{INSIDE}{at} = {emitter.element(load, ONCE)};")
        emitter.cached[load] = at


def _load_either(emitter: Emitter, first: Instance, second: Instance) -> str:
    """Return the expression that loads the one of two vectors that is needed."""
    one, other = (_first_address(emitter, load) for load in (first, second))
    alike = Index(tuple(t for t in one.terms if t in other.terms), dim(0))
    test = emitter.condition(emitter.at_lane_zero(first.conditions), AHEAD).at_least(3)
    places = [emitter.index(a - alike, AHEAD).at_least(3) for a in (one, other)]
    function = "load" if first.name in emitter.written else "load_readonly"
    start = emitter.pointer(first.name, alike, AHEAD)
    kind = "fusec::i64" if emitter.wide else "int"
    name = emitter.fresh(f"{first.name}_half", "half", AHEAD, len(emitter.scopes) - 2)
    line = f"const {kind} {name} = {test} ? {places[0]} : {places[1]};"
    emitter.add(AHEAD, emitter.scopes[-2].name, line)
    return f"fusec::{function}<kVec>({start} + {name})"


def _first_address(emitter: Emitter, load: Instance) -> Index:
    assert load.address is not None
    base = emitter.vector_base(load.address, load.conditions)
    assert base is not None
    return base


__all__ = ["PointwiseView", "view"]
