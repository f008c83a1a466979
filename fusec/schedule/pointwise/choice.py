"""Chooses the break point and the vector width of a pointwise kernel from its accesses."""

from __future__ import annotations

from typing import ClassVar

from fusec.dataclasses import dataclass
from fusec.index.access import Facts, access_class, runs_along
from fusec.index.domain import Domain
from fusec.index.windows import Window, find_pick
from fusec.ir.expression import Atom, Index, Var, variables_of
from fusec.ir.graph import Fusion, Value
from fusec.schedule.blocks import SHIFTED, VECTOR_WIDTH, BlockParameters
from fusec.schedule.plan import Guard
from fusec.schedule.pointwise.loads import LEAST_THREADS, most_turns, rows_of_thread
from fusec.schedule.pointwise.nest import FlatNest, nest_of
from fusec.schedule.problem import Problem
from fusec.schedule.registers import MOST_REGISTERS, most_elements
from fusec.schedule.space import POWERS, Field, power_above, power_below
from fusec.segment.protocol import Refusal

THREADS = 256
MOST_BYTES = 16
"""Bytes of the widest access."""
WARP = 32
"""Least vectors per row that are peeled to alignment: blocks have a single row and whole warps.

Four times as many if accesses would be of one word, twice as many if some would: these are fast
unaligned.
"""
WORD = 4
NARROW = 8
"""Bytes of accesses below which vectors are rather peeled to alignment."""
IN_FLIGHT = 16
"""Least bytes that a thread reads and writes at a time, unrolled as often as needed."""
MOST_THREADS = 1024
MAX_GRID_Y = 65535
"""Most blocks in the second dimension of a grid (CUDA programming guide, technical specifications).
"""
ROWS = 0.13
"""Instructions per element that a loop over rows must save: one quotient per 8 elements.

gelu(x + bias) of 16-bit floats is 5 % slower by rows than with one flat loop on an H200, for all
block shapes.
"""
MOST_OPERATIONS = 2048
"""Most operations per vector of a thread: more take long to compile and gain nothing from it.

A thread with more than 256 operations per element is bound by them and not by memory.
"""


@dataclass(frozen=True, kw_only=True)
class PointwiseParameters(BlockParameters):
    """The schedule parameters of a pointwise kernel; shifted: whether vectors are peeled."""

    break_point: int
    unroll: int
    shifted: bool = False
    free: ClassVar = (
        Field(
            "break_point",
            range(16),
            "number of outer dims that form the rows of a 2-D grid; 0: one flat loop",
        ),
        VECTOR_WIDTH,
        Field("unroll", POWERS[:4], "vectors per thread"),
        Field("threads_x", POWERS, "threads of a block along columns"),
        Field("threads_y", POWERS, "threads of a block along rows"),
        SHIFTED,
    )


@dataclass(frozen=True, eq=False)
class FlatProblem(Problem):
    """A segment on one domain; segment_domain: the same without substituted sizes."""

    domain: Domain
    segment_domain: Domain

    def nest(self, break_point: int, width: int, shifted: bool = False) -> FlatNest:
        """Return the loops for a break point and a vector width."""
        return nest_of(self.fusion, self.domain, break_point, width, shifted)

    def nest_with(self, p: PointwiseParameters) -> FlatNest:
        """Return the loops of a kernel with the given parameters."""
        return self.nest(p.break_point, p.vector_width, p.shifted)


def default_parameters(problem: FlatProblem, registers: int) -> PointwiseParameters:
    """Return the parameters with the lowest predicted cost.

    registers: those of a thread, an upper bound for the vectors that it reads and writes.
    """
    fusion, axes = problem.fusion, problem.domain.axes
    smallest = min(v.dtype.size for v in _tensors(fusion))
    quick = max(1, int(MOST_OPERATIONS / max(1.0, operations(fusion))))
    most = min(16 // smallest, quick, most_elements(fusion))
    widths = [w for w in (16, 8, 4, 2, 1) if w <= most]
    costs: dict[FlatNest, float] = {}
    for break_point in range(max(1, len(axes))):
        for width in widths:
            nest = problem.nest(break_point, width)
            costs[nest], whole = _cost(nest, Facts(fusion.hints), registers)
            if whole:
                break  # narrower vectors only cost more instructions
    best = min(costs, key=lambda nest: costs[nest])
    narrow = best.width * smallest < NARROW
    by_elements = _is_by_elements(best)
    if (narrow or by_elements) and widths[0] > 1:
        most = 2 * WARP if by_elements else 4 * WARP
        least = WARP if best.width * smallest < WORD else most
        for outer in reversed(range(1, len(axes))):
            nest = problem.nest(outer, widths[0], shifted=True)
            if _fits(nest, least) and _is_by_vectors(nest):
                return _shape(nest, problem.wide)
    return _shape(best, problem.wide)


def _is_by_elements(nest: FlatNest) -> bool:
    """Return whether contiguous elements of some tensor are read one by one."""
    about, facts = (nest.loops[2], nest.width), Facts(nest.fusion.hints)
    return any(
        each.size < WORD
        and runs_along(each.address, each.conditions, *about)
        and access_class(each.address, each.conditions, *about, facts) == "scalar"
        for each in nest.accesses
    )


def _is_by_vectors(nest: FlatNest) -> bool:
    """Return whether vectors can be peeled, and all elements of a row have accesses as wide.

    All loads of a thread are prefetched, so there must not be too many.
    """
    if nest.start is None:
        return False
    by_elements = any(nest.loads.lane in i.variables for i in nest.loads.elements)
    return not by_elements and most_turns(nest.loads) > 0


def why_illegal(problem: FlatProblem, p: PointwiseParameters) -> Refusal | None:
    """Return the rule that the parameters violate, or None if they are legal."""
    axes = problem.domain.axes
    if p.break_point >= max(1, len(axes)):
        return Refusal("break_point", f"there are {len(axes)} axes, and one is for the columns")
    smallest = min(v.dtype.size for v in _tensors(problem.fusion))
    if p.vector_width * smallest > MOST_BYTES:
        because = f"{p.vector_width} elements of {smallest} bytes are more than {MOST_BYTES}"
        return Refusal("access", because)
    if not p.break_point:
        if p.shifted:
            return Refusal("access", "a 1D loop (break_point 0) has no rows")
        if p.threads_y == 1:
            return None
        return Refusal("block", "a 1D loop (break_point 0) has no rows: threads_y must be 1")
    columns = problem.nest_with(p).rows.columns
    if p.shifted:
        if p.vector_width == 1 or p.threads_y > 1:
            return Refusal("access", "unaligned vectors need one row per block")
        if problem.nest_with(p).start is None:
            return Refusal("access", "the vectors of loads and stores have different alignments")
    elif p.vector_width > 1 and not Facts(problem.hints).multiple(columns, p.vector_width):
        because = f"rows of {columns} elements are not a multiple of vectors of {p.vector_width}"
        return Refusal("access", because)
    if columns.evaluate(problem.hints) > MAX_GRID_Y * p.threads_x * p.vector_width:
        return Refusal("grid", f"rows of {columns} elements need more than {MAX_GRID_Y} blocks")
    return None


def vector_facts(problem: FlatProblem, p: PointwiseParameters) -> tuple[Guard, ...]:
    """Return the guards that keep sizes multiples of the vector widths that accesses rely on."""
    if p.shifted:
        return ()
    facts = Facts(problem.hints)
    _cost(problem.nest_with(p), facts, MOST_REGISTERS)
    return tuple(
        Guard(value, "%", by, "vectorized accesses need aligned rows")
        for value, by in facts.assumed
    )


def _fits(nest: FlatNest, least: int) -> bool:
    """Return whether rows have at least `least` vectors for blocks of one row, and not too many."""
    columns = nest.rows.columns.evaluate(nest.fusion.hints)
    return least * nest.width <= columns <= MAX_GRID_Y * THREADS * nest.width


def operations(fusion: Fusion) -> float:
    """Return the approximate number of instructions per element."""
    costs = (n.op.cost for n in fusion.nodes if not n.output.is_scalar)
    return sum(c.flops + 4 * c.sfu for c in costs)


def _tensors(fusion: Fusion) -> list[Value]:
    values = [i.value for i in fusion.inputs] + [o.value for o in fusion.outputs]
    return [v for v in values if not v.is_scalar]


def _cost(nest: FlatNest, facts: Facts, registers: int) -> tuple[float, bool]:
    """Return the approximate instructions per element, by access class and divisions.

    Also return whether every access is whole: one vector, or the same for all lanes.
    """
    fusion, columns, break_point, width = (
        nest.fusion,
        nest.rows.columns,
        nest.break_point,
        nest.width,
    )
    _, chunk, lane = nest.loops
    if width > 1 and break_point and not facts.multiple(columns, width):
        return float("inf"), False
    cost = ROWS * (break_point > 0) + 0.02 * break_point
    size = columns.evaluate(fusion.hints)
    if break_point and size > MAX_GRID_Y * MOST_THREADS * width:
        return float("inf"), False
    if break_point and size < 32 * width:
        cost += 32 * width / max(1, size)  # short rows leave threads idle
    # Both parts of a complex number are loaded by one access.
    paired = any(e.part is not None for e in (*fusion.inputs, *fusion.outputs))
    whole, held = True, 0
    windows: set[Window] = set()
    for each in nest.accesses:
        address = each.address
        kind = access_class(address, each.conditions, lane, width, facts)
        pick = find_pick(fusion, each.load, lane, width, facts) if kind == "scalar" else None
        if pick is not None:
            if pick.window in windows:
                continue  # several loads pick from one window
            windows.add(pick.window)
            kind, address = "vector", pick.window.base
        elements = width if pick is None else pick.window.width
        held += -(-each.size * elements // 4) if kind == "vector" else 1
        pieces = max(1, elements * each.size // 16)
        cost += {"uniform": 1 / width, "vector": pieces / width, "scalar": 1.0}[kind]
        whole &= kind != "scalar"
        step = address.coefficient(chunk) if chunk in address.variables else width
        if step != width and (kind == "scalar" or (width == 1 and not paired)):
            cost += 4.0  # strided: each access its own sector
        for atom in _atoms(address):
            depends = variables_of(atom)
            per_vector = lane not in depends
            row_only = chunk not in depends and per_vector
            cost += 0.05 if row_only else 1.0 / width if per_vector else 1.0
    if width > 1 and held > registers:
        return float("inf"), False
    return cost, whole


def _atoms(address: Index) -> list[Atom]:
    return [a for a, _ in address.terms if not isinstance(a, Var)]


def _shape(nest: FlatNest, wide: bool) -> PointwiseParameters:
    fusion, width, shifted, loads = nest.fusion, nest.width, nest.shifted, nest.loads
    columns = nest.rows.columns.evaluate(fusion.hints)
    bytes_per_thread = width * max(2, sum(v.dtype.size for v in _tensors(fusion)))
    heavy = width * operations(fusion) > MOST_OPERATIONS / 2
    unroll = 1 if bytes_per_thread >= 48 or heavy else 2
    turns = max(1, most_turns(loads))
    if not nest.break_point:
        return PointwiseParameters(
            break_point=0,
            vector_width=width,
            unroll=min(unroll, turns),
            threads_x=THREADS,
            threads_y=1,
            wide_index=wide,
        )
    chunks = max(1, -(-columns // width))
    if not heavy:
        rows = nest.rows.rows.evaluate(fusion.hints)
        threads = rows * chunks
        if shifted:  # a thread's rows are strided by the vector width
            rows = -(-rows // width)
        unroll = max(unroll, rows_of_thread(loads, rows, threads))
        if not loads.late:
            flight = IN_FLIGHT * (4 if loads.elements else 2)  # elements take one access each
            most = min(8, flight // bytes_per_thread, threads // LEAST_THREADS)
            unroll = max(unroll, min(power_below(max(1, most)), power_above(rows)))
        if shifted:
            unroll = min(unroll, power_below(rows))
    # Also for peeled rows, with one block each: one more block costs more than idle threads.
    threads_x = min(THREADS, max(WARP if shifted else 1, power_above(chunks)))
    threads_x = max(threads_x, power_above(-(-chunks // MAX_GRID_Y)))
    threads_y = 1 if shifted else max(1, THREADS // threads_x)
    if shifted and 2 * threads_x < THREADS and not heavy:
        unroll = max(unroll, 2)  # fewer blocks with as many bytes each
    return PointwiseParameters(
        break_point=nest.break_point,
        vector_width=width,
        unroll=min(unroll, turns),
        threads_x=threads_x,
        threads_y=threads_y,
        shifted=shifted,
        wide_index=wide,
    )
