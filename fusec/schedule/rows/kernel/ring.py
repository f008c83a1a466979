"""The statements of kernels whose rows are loaded through a ring in shared memory."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.index.instances import Instance
from fusec.ir.dim import dim
from fusec.ir.dtype import DType
from fusec.ir.expression import Var, index, of_var
from fusec.kernel.arrays import SharedArray, shared_array
from fusec.kernel.ctext import dim_text
from fusec.kernel.lowering.accumulators import Accumulator
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Scope, named
from fusec.kernel.lowering.phases import (
    C,
    Phase,
    emit_outputs,
    once_per_row,
    phase_of,
)
from fusec.kernel.names import Names, camel, parameter_names
from fusec.kernel.nodes import (
    AUTO,
    ZERO,
    Binary,
    Element,
    Expression,
    Let,
    Name,
    Pointer,
    Statement,
    call,
    item,
    operand,
    total,
)
from fusec.schedule.plan import Kernel
from fusec.schedule.rows.inner_persistent.family import (
    InnerPersistentParameters,
    InnerPersistentPlan,
)
from fusec.schedule.rows.inner_persistent.ring import columns_per_copy, parts_of
from fusec.schedule.rows.kernel.nest import accumulators_of, nest_emitter, stored_in, stores_of

RANK = Var("rank", dim(16))
"""The index of a block's part of its rows."""

OWN = Name("kOwn")


@dataclass(frozen=True)
class RingCopy:
    """A bulk copy into the ring or into the persistent columns: source, and bytes of one part.

    row: a group's part of a row, or the persistent columns; piece: bytes of each copy.
    """

    ring: str
    row: str
    source: Expression
    bytes: Expression
    piece: Expression


@dataclass(frozen=True)
class Place:
    """An array: its name, and the constant with its offset.

    offset: that constant, in bytes; words: of an element.
    """

    name: str
    place: str
    offset: int
    words: int


@dataclass(frozen=True)
class Arrival:
    """The barriers of a reduction in a cluster, and their offset."""

    name: str
    place: Expression


@dataclass(frozen=True)
class RingSweep:
    """A phase, and the declarations of its accumulators' results in the group or cluster."""

    phase: Phase
    results: tuple[Statement, ...]

    @property
    def uses_column(self) -> bool:
        """Return whether the sweep needs its column index."""
        return self.phase.uses_column


@dataclass(frozen=True, kw_only=True)
class InnerPersistentRingNodes:
    """Rows in a ring, in phases.

    rows: extent; shared: the rings, and persistent columns; copies: the copies into rings;
    row_bytes: of all copies of a row; kept, kept_bytes: the same for persistent columns; producer:
    statements before a row is copied; piece, pieces: columns of each copy, and copies of a block's
    part of a row; places: statements before each copy; parts: the warps' partial results of each
    reduction; arrivals: the barriers of these, in a cluster; barriers: first byte of all barriers;
    unroll: vectors that a thread processes at a time; column: a vector's first column.
    """

    rows: Expression
    shared: tuple[SharedArray, ...]
    copies: tuple[RingCopy, ...]
    row_bytes: Expression | None
    kept: tuple[RingCopy, ...]
    kept_bytes: Expression | None
    producer: tuple[Statement, ...]
    piece: int
    pieces: int
    places: tuple[Statement, ...]
    parts: tuple[Place, ...]
    arrivals: tuple[Arrival, ...]
    barriers: int
    unroll: int
    column: Expression
    sweeps: tuple[RingSweep, ...]


def nodes_of(plan: InnerPersistentPlan, kernel: Kernel) -> InnerPersistentRingNodes:
    """Return the statements of a row-persistent kernel with a ring."""
    p, rows = plan.parameters, plan.problem.rows
    names = parameter_names(kernel.argument_names)
    sizes = named(kColumns=rows.columns)
    emitter = nest_emitter(plan, names, symbols=sizes, counts=sizes)
    piece = columns_per_copy(plan.problem, p)
    pieces = rows.columns.value // p.cluster // piece
    brought, producer, places, arrays = _copies(plan, names, piece, pieces)
    row = plan.loops[0]
    number = sum(row in s.instance.variables for s in plan.staged)
    copies, kept = brought[:number], brought[number:]
    sweeps, parts, arrivals, barriers = _sweeps(plan, emitter, brought)
    vector = Name("rank") * (OWN / "kVec") + C if p.cluster > 1 else C
    return InnerPersistentRingNodes(
        rows=dim_text(rows.rows),
        shared=arrays,
        copies=copies,
        row_bytes=total(c.bytes for c in copies),
        kept=kept,
        kept_bytes=total(c.bytes for c in kept),
        producer=producer,
        piece=piece,
        pieces=pieces,
        places=places,
        parts=parts,
        arrivals=arrivals,
        barriers=barriers,
        unroll=_unroll(plan),
        column=vector * "kVec",
        sweeps=sweeps,
    )


def _unroll(plan: InnerPersistentPlan) -> int:
    """Return the vectors that a thread processes at a time: few if more come from memory."""
    staged = {s.instance for s in plan.staged}
    return 4 if all(loads <= staged for loads in plan.phases.loads) else 2


def _copies(
    plan: InnerPersistentPlan, names: Names, piece: int, pieces: int
) -> tuple[
    tuple[RingCopy, ...], tuple[Statement, ...], tuple[Statement, ...], tuple[SharedArray, ...]
]:
    """Return the producer's copies, the statements before a row and each chunk, and the arrays.

    piece: columns of a copy of a row; pieces: copies of a block's part of it.
    """
    p, (row, chunk, lane) = plan.parameters, plan.loops
    own = plan.problem.rows.columns.value // p.cluster
    number = Var("piece", dim(pieces))
    emitter = Emitter(
        (
            Scope("kernel", frozenset({RANK}), per_phase=False),
            Scope("row", frozenset({row}), per_phase=False),
            Scope("piece", frozenset({number})),
            Scope("lane", frozenset({lane})),
        ),
        names,
        Facts(plan.fusion.hints),
        wide=p.wide_index,
        symbols=named(kColumns=plan.problem.rows.columns, kOwn=dim(own), kPiece=dim(piece)),
    )
    part = of_var(RANK) * (own // p.vector_width) if p.cluster > 1 else index(0)
    place = of_var(number) * (piece // p.vector_width)
    copies, arrays = list[RingCopy](), list[SharedArray]()
    for staged in plan.staged:
        instance = staged.instance
        assert instance.address is not None
        moves = row in instance.variables
        word = "ring" if moves else "columns"
        name = names.fresh(f"{instance.name}_{word}", word)
        array = shared_array(names, name, instance.dtype, staged.offset)
        start = part + place if moves else part
        address = instance.address.substitute({chunk: start, lane: index(0)})
        source = emitter.pointer(instance.name, address, 0)
        at = names.fresh(f"{instance.name}_row", "row") if moves else array.name
        sizes = (_bytes(columns, instance.dtype) for columns in (OWN, Name("kPiece")))
        copies.append(RingCopy(array.name, at, source, *sizes))
        arrays.append(array)
    return tuple(copies), emitter.before(0), emitter.take(0, "piece"), tuple(arrays)


def _bytes(columns: Expression, dtype: DType) -> Expression:
    return columns * dtype.size if dtype.size > 1 else columns


def _sweeps(
    plan: InnerPersistentPlan, emitter: Emitter, copies: tuple[RingCopy, ...]
) -> tuple[tuple[RingSweep, ...], tuple[Place, ...], tuple[Arrival, ...], int]:
    """Return the sweeps over a row, and the offsets of their reductions' partial results."""
    phases, p = plan.phases, plan.parameters
    plans = stores_of(emitter, plan)
    vectors: dict[Instance, Statement] = {}
    for staged, copy in zip(plan.staged, copies, strict=True):
        name = emitter.names.fresh(f"{staged.instance.name}_vec", "vec")
        vectors[staged.instance] = Let(AUTO, name, Element(Name(copy.row), C))
        emitter.cached[staged.instance] = item(name, emitter.element_of_vector)
    accumulators: list[tuple[Accumulator, ...]] = []
    for number in range(phases.count):
        accumulators.append(accumulators_of(emitter, plan, number))
        emit_outputs(emitter, stored_in(plans, number), number, frozenset(plan.loops[1:]))
    every = [a for each in accumulators for a in each]
    parts, arrivals, barriers = _places(plan, emitter.names, every)
    first = (Binary("==", Name("rank"), ZERO),) if p.cluster > 1 else ()
    once = once_per_row(emitter, Name("thread"), *first)
    sweeps: list[RingSweep] = []
    for number, each in enumerate(accumulators):
        loads = tuple(line for i, line in vectors.items() if i in phases.loads[number])
        results = tuple(
            line for a in each for line in a.named(_reduced(a, p, parts, arrivals, every.index(a)))
        )
        sweeps.append(RingSweep(phase_of(emitter, number, loads, each, once=once), results))
    return tuple(sweeps), parts, arrivals, barriers


def _places(
    plan: InnerPersistentPlan, names: Names, accumulators: list[Accumulator]
) -> tuple[tuple[Place, ...], tuple[Arrival, ...], int]:
    """Return the partial results of each reduction, their barriers, and the first barrier byte."""
    p = plan.parameters
    nodes = [n for group in plan.phases.reductions for n in group]
    found, at = parts_of(nodes, sum(s.bytes for s in plan.staged), p)
    parts: list[Place] = []
    for lies, each in zip(found, accumulators, strict=True):
        name = names.fresh(f"{each.name}_parts", "parts")
        place = names.fresh(f"k{camel(name)}", "place")
        parts.append(Place(name, place, lies.offset, lies.words))
    stays = any(plan.loops[0] not in s.instance.variables for s in plan.staged)
    before = Pointer(Name("empty"), Name("kStages"))
    if stays:
        before = Pointer(Name("columns"), operand(1))
    arrivals: list[Arrival] = []
    for each in accumulators if p.cluster > 1 else ():
        arrivals.append(Arrival(names.fresh(f"{each.name}_arrived", "arrived"), before))
        before = Pointer(Name(arrivals[-1].name), operand(2) * "kGroups")
    return tuple(parts), tuple(arrivals), at


def _reduced(
    each: Accumulator,
    p: InnerPersistentParameters,
    parts: tuple[Place, ...],
    arrivals: tuple[Arrival, ...],
    number: int,
) -> Expression:
    """Return the combined parts of all threads that share a row."""
    own, left, at = each.part, parts[number].name, operand(2) * "group" + "turn"
    if p.cluster == 1:
        return call("fusec::group_reduce", own, left, at, about=(each.combiner, "kWarps"))
    given = own, left, arrivals[number].name, at, "turn_parity", "rank"
    return call("fusec::cluster_reduce", *given, about=(each.combiner, "kWarps", "kCluster"))
