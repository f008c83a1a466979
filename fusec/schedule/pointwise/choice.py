"""Chooses the break point and the vector width of a pointwise kernel from its accesses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fusec.dataclasses import dataclass
from fusec.index.access import Facts, access_class, runs_along
from fusec.index.domain import Domain
from fusec.index.instances import Instance, Lowering, instances_under
from fusec.index.windows import Window, find_pick
from fusec.ir.access import Conditions
from fusec.ir.dim import ceildiv, dim, product
from fusec.ir.expression import Atom, Index, Var, delinearize, linearize, of_var, variables_of
from fusec.ir.graph import Fusion, Value
from fusec.ir.identity_cache import IdentityCache
from fusec.schedule.blocks import SHIFTED, VECTOR_WIDTH, BlockParameters
from fusec.schedule.plan import Guard
from fusec.schedule.pointwise.loads import LEAST_THREADS, loads_of, most_turns, rows_of_thread
from fusec.schedule.pointwise.shifted import shifted_start
from fusec.schedule.problem import Problem
from fusec.schedule.registers import MOST_REGISTERS, most_elements
from fusec.schedule.space import POWERS, Field, power_above, power_below
from fusec.segment.protocol import Refusal

THREADS = 256
MOST_BYTES = 16
"""Bytes of the widest access."""
WARP = 32
"""Vectors of a row that are shifted, at least: blocks have no other rows, and have whole warps.

Four times as many where accesses would be of a word, twice as many where some would: these are
fast as they are.
"""
WORD = 4
NARROW = 8
"""Bytes of accesses below which vectors are rather shifted."""
IN_FLIGHT = 16
"""Bytes that a thread reads and writes at a time at least, in as many turns as that takes."""
MOST_THREADS = 1024
MAX_GRID_Y = 65535
"""Blocks in the second dimension of a grid (CUDA programming guide, technical specifications)."""
ROWS = 0.13
"""Instructions of an element that a loop over rows must save: one quotient for 8 elements.

gelu(x + bias) of halves is 5 % slower by rows than by one flat loop on an H200, whatever its block.
"""
MOST_OPERATIONS = 2048
"""Operations of a thread's vector: more take long to compile, and gain nothing from wide accesses.

A thread of more than 256 operations per element is bound by them and not by memory.
"""


@dataclass(frozen=True, kw_only=True)
class PointwiseParameters(BlockParameters):
    """The choices of a pointwise kernel; shifted: whether vectors begin where they are aligned."""

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
    """A segment on one domain; segment_domain: the same with the symbols that sizes replace."""

    domain: Domain
    segment_domain: Domain


def bind(
    domain: Domain, break_point: int, width: int, shifted: bool = False
) -> tuple[Mapping[Var, Index], tuple[Var, Var, Var]]:
    """Return the axes in loop variables (row, chunk, lane), and those variables.

    shifted: the chunk is the first column of a vector, wherever that lies.
    """
    outer, inner = domain.axes[:break_point], domain.axes[break_point:]
    row = Var("row", product(a.extent for a in outer))
    columns = product(a.extent for a in inner)
    chunk, lane = Var("chunk", ceildiv(columns, width)), Var("v", dim(width))
    column = of_var(chunk) * width + of_var(lane) if width > 1 else of_var(Var("chunk", columns))
    if shifted:
        chunk = Var("chunk", columns)
        column = of_var(chunk) + of_var(lane)
    at = (
        *delinearize(of_var(row), (a.extent for a in outer)),
        *delinearize(column, (a.extent for a in inner)),
    )
    return dict(zip(domain.axes, at, strict=True)), (row, chunk, lane)


_CACHE: IdentityCache[Lowering] = IdentityCache()


def lowered_flat(
    fusion: Fusion, domain: Domain, break_point: int, width: int, shifted: bool = False
) -> Lowering:
    """Return the values in the loops of a break point, by vectors of a width."""
    binding, (row, chunk, _) = bind(domain, break_point, width, shifted)
    about = id(domain), break_point, width, shifted
    inside = frozenset({row, chunk})
    return _CACHE.of(fusion, about, lambda: Lowering(fusion, domain, binding, inside=inside))


@dataclass(frozen=True)
class Access:
    """Where an element is loaded or stored, its bytes, and the load (None of a store)."""

    address: Index
    conditions: Conditions
    size: int
    load: Instance | None = None


def accesses(fusion: Fusion, lowering: Lowering) -> list[Access]:
    """Return every load and store."""
    found: list[Access] = []
    roots: list[Instance] = []
    for output in fusion.outputs:
        coordinates, conditions = lowering.home(output.value)
        address = linearize(coordinates, fusion.effects.strides(output.value))
        found.append(Access(address, conditions, output.value.dtype.size))
        roots.append(lowering.at(output.value, coordinates, conditions))
    for instance in instances_under(roots):
        if instance.kind == "load" and instance.address is not None:
            size = instance.dtype.size
            found.append(Access(instance.address, instance.conditions, size, instance))
    return found


def default_parameters(
    fusion: Fusion, domain: Domain, wide: bool, registers: int
) -> PointwiseParameters:
    """Return the parameters of least cost.

    registers: those of a thread, which the vectors that it reads and writes fill at most.
    """
    smallest = min(v.dtype.size for v in _tensors(fusion))
    quick = max(1, int(MOST_OPERATIONS / max(1.0, operations(fusion))))
    most = min(16 // smallest, quick, most_elements(fusion))
    widths = [w for w in (16, 8, 4, 2, 1) if w <= most]
    best: tuple[float, int, int] | None = None
    for break_point in range(max(1, len(domain.axes))):
        for width in widths:
            facts = Facts(fusion.hints)
            cost, whole = _cost(fusion, domain, break_point, width, facts, registers)
            if best is None or cost < best[0]:
                best = (cost, break_point, width)
            if whole:
                break  # narrower vectors only cost more instructions
    assert best is not None
    _, break_point, width = best
    narrow = width * smallest < NARROW
    by_elements = _is_by_elements(fusion, domain, break_point, width)
    if (narrow or by_elements) and widths[0] > 1:
        most = 2 * WARP if by_elements else 4 * WARP
        least = WARP if width * smallest < WORD else most
        for outer in reversed(range(1, len(domain.axes))):
            if not _fits(fusion, domain, outer, widths[0], least):
                continue
            if _is_by_vectors(fusion, domain, outer, widths[0]):
                return _shape(fusion, domain, outer, widths[0], wide, shifted=True)
    return _shape(fusion, domain, break_point, width, wide)


def _is_by_elements(fusion: Fusion, domain: Domain, break_point: int, width: int) -> bool:
    """Return whether elements of a tensor are read one by one that lie side by side."""
    lane = bind(domain, break_point, width)[1][2]
    lowering, facts = lowered_flat(fusion, domain, break_point, width), Facts(fusion.hints)
    return any(
        each.size < WORD
        and runs_along(each.address, each.conditions, lane, width)
        and access_class(each.address, each.conditions, lane, width, facts) == "scalar"
        for each in accesses(fusion, lowering)
    )


def _is_by_vectors(fusion: Fusion, domain: Domain, break_point: int, width: int) -> bool:
    """Return whether vectors can be shifted, and a row's elements come by no narrower accesses.

    All that a thread loads is loaded ahead, so that it must not be too much.
    """
    start = start_of(fusion, domain, break_point, width)
    if start is None:
        return False
    lowering = lowered_flat(fusion, domain, break_point, width, True)
    loops = bind(domain, break_point, width, True)[1]
    loads = loads_of(lowering, loops, break_point, start)
    by_elements = any(loads.lane in i.variables for i in loads.elements)
    return not by_elements and most_turns(loads) > 0


def start_of(fusion: Fusion, domain: Domain, break_point: int, width: int) -> Index | None:
    """Return where vectors that are shifted begin, or None where they cannot be."""
    if not break_point:
        return None
    lowering = lowered_flat(fusion, domain, break_point, width, True)
    return shifted_start(fusion, domain, lowering, bind(domain, break_point, width, True)[1])


def why_illegal(problem: FlatProblem, p: PointwiseParameters) -> Refusal | None:
    """Return the rule by which no kernel has some parameters, or None."""
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
    columns = product(a.extent for a in axes[p.break_point :])
    if p.shifted:
        if p.vector_width == 1 or p.threads_y > 1:
            return Refusal("access", "unaligned vectors need one row per block")
        if start_of(problem.fusion, problem.domain, p.break_point, p.vector_width) is None:
            return Refusal("access", "the vectors of loads and stores have different alignments")
    elif p.vector_width > 1 and not Facts(problem.hints).multiple(columns, p.vector_width):
        because = f"rows of {columns} elements are not a multiple of vectors of {p.vector_width}"
        return Refusal("access", because)
    if columns.evaluate(problem.hints) > MAX_GRID_Y * p.threads_x * p.vector_width:
        return Refusal("grid", f"rows of {columns} elements need more than {MAX_GRID_Y} blocks")
    return None


def vector_facts(
    fusion: Fusion, domain: Domain, parameters: PointwiseParameters
) -> tuple[Guard, ...]:
    """Return the guards that keep sizes the multiples that the accesses rely on."""
    if parameters.shifted:
        return ()
    facts = Facts(fusion.hints)
    _cost(fusion, domain, parameters.break_point, parameters.vector_width, facts, MOST_REGISTERS)
    return tuple(
        Guard(value, "%", by, "vectorized accesses need aligned rows")
        for value, by in facts.assumed
    )


def _fits(fusion: Fusion, domain: Domain, break_point: int, width: int, least: int) -> bool:
    """Return whether rows have `least` vectors for blocks of a row each, and not too many."""
    columns = product(a.extent for a in domain.axes[break_point:]).evaluate(fusion.hints)
    return least * width <= columns <= MAX_GRID_Y * THREADS * width


def operations(fusion: Fusion) -> float:
    """Return about how many instructions an element takes."""
    costs = (n.op.cost for n in fusion.nodes if not n.output.is_scalar)
    return sum(c.flops + 4 * c.sfu for c in costs)


def _tensors(fusion: Fusion) -> list[Value]:
    values = [i.value for i in fusion.inputs] + [o.value for o in fusion.outputs]
    return [v for v in values if not v.is_scalar]


def _cost(
    fusion: Fusion, domain: Domain, break_point: int, width: int, facts: Facts, registers: int
) -> tuple[float, bool]:
    """Return instructions per element, roughly, by access class and divisions.

    Also return whether every access is whole: one vector, or the same for all lanes.
    """
    _, (_, chunk, lane) = bind(domain, break_point, width)
    columns = product(a.extent for a in domain.axes[break_point:])
    if width > 1 and break_point and not facts.multiple(columns, width):
        return float("inf"), False
    lowering = lowered_flat(fusion, domain, break_point, width)
    cost = ROWS * (break_point > 0) + 0.02 * break_point
    size = columns.evaluate(fusion.hints)
    if break_point and size > MAX_GRID_Y * MOST_THREADS * width:
        return float("inf"), False
    if break_point and size < 32 * width:
        cost += 32 * width / max(1, size)  # short rows leave threads idle
    # Both parts of a complex number are one access.
    paired = any(e.part is not None for e in (*fusion.inputs, *fusion.outputs))
    whole, held = True, 0
    windows: set[Window] = set()
    for each in accesses(fusion, lowering):
        address = each.address
        kind = access_class(address, each.conditions, lane, width, facts)
        pick = find_pick(fusion, each.load, lane, width, facts) if kind == "scalar" else None
        if pick is not None:
            if pick.window in windows:
                continue  # several loads pick from one
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


def _shape(
    fusion: Fusion,
    domain: Domain,
    break_point: int,
    width: int,
    wide: bool,
    *,
    shifted: bool = False,
) -> PointwiseParameters:
    columns = product(a.extent for a in domain.axes[break_point:]).evaluate(fusion.hints)
    bytes_per_thread = width * max(2, sum(v.dtype.size for v in _tensors(fusion)))
    heavy = width * operations(fusion) > MOST_OPERATIONS / 2
    unroll = 1 if bytes_per_thread >= 48 or heavy else 2
    lowering = lowered_flat(fusion, domain, break_point, width, shifted)
    start = start_of(fusion, domain, break_point, width) if shifted else None
    loads = loads_of(lowering, bind(domain, break_point, width, shifted)[1], break_point, start)
    turns = max(1, most_turns(loads))
    if not break_point:
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
        rows = product(a.extent for a in domain.axes[:break_point]).evaluate(fusion.hints)
        threads = rows * chunks
        if shifted:  # the rows of a thread are a vector's width apart
            rows = -(-rows // width)
        unroll = max(unroll, rows_of_thread(loads, rows, threads))
        if not loads.late:
            flight = IN_FLIGHT * (4 if loads.elements else 2)  # elements take a turn each
            most = min(8, flight // bytes_per_thread, threads // LEAST_THREADS)
            unroll = max(unroll, min(power_below(max(1, most)), power_above(rows)))
        if shifted:
            unroll = min(unroll, power_below(rows))
    # Also of shifted rows, whose blocks have one each: a block more costs more than idle threads.
    threads_x = min(THREADS, max(WARP if shifted else 1, power_above(chunks)))
    threads_x = max(threads_x, power_above(-(-chunks // MAX_GRID_Y)))
    threads_y = 1 if shifted else max(1, THREADS // threads_x)
    if shifted and 2 * threads_x < THREADS and not heavy:
        unroll = max(unroll, 2)  # fewer blocks of as many bytes
    return PointwiseParameters(
        break_point=break_point,
        vector_width=width,
        unroll=min(unroll, turns),
        threads_x=threads_x,
        threads_y=threads_y,
        shifted=shifted,
        wide_index=wide,
    )
