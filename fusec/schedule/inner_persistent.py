"""Row-persistent kernels: a row is read once, reduced, and read again from where it stayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusec.index.instances import Instance
from fusec.ir.dim import ceildiv, dim, product
from fusec.ir.expression import Atom, Quotient, Remainder
from fusec.ir.graph import Fusion
from fusec.schedule.common import (
    MEMORY_BOUND,
    access,
    is_empty,
    tensor_arguments,
    unsupported_nodes,
)
from fusec.schedule.compile_time import build_time
from fusec.schedule.family import Family
from fusec.schedule.orders import along_rows, of_all
from fusec.schedule.phased_pressure import Loops, phased_pressure
from fusec.schedule.plan import Kernel, Staged, staged_in_turn
from fusec.schedule.pressure import Occupancy, Pressure, occupancy
from fusec.schedule.redefinitions import variances_in_two_passes
from fusec.schedule.reduction import RowsProblem, as_rows, with_columns
from fusec.schedule.registers import MOST_DEAR_DOUBLES, double_words, fits, part, words
from fusec.schedule.rows import PhasedPlan, Phases, in_place_hazard, lowered, phases_of
from fusec.schedule.strides import side_by_side
from fusec.schedule.two_pass import two_pass
from fusec.segment.price import bytes_read, traffic, work
from fusec.segment.protocol import Estimate, Proposal, Redefinition, Refusal
from fusec.target import Target

REGISTER_BYTES = 128
"""Bytes of a row that a thread keeps in registers: a quarter of what 128 registers hold."""
KEPT_ELEMENTS = 64
"""Elements of a row that a thread keeps: the compiler rather holds what it computes from them in
each phase, a register for each, than compute it again."""
MAX_THREADS = 1024
MOST_IN_LARGE_BLOCKS = 3 / 8
"""The part of its registers that a thread fills with a row in blocks of MAX_THREADS."""
LEAST_ACCESS = 8
"""Bytes of the narrowest accesses to the largest elements: with less, memory is read slowly."""
ALONE_BLOCKS = 1.6
"""Blocks of the probe `inner_persistent.alone` for which an SM has registers."""
ENOUGH_BLOCKS = 4
"""Blocks on an SM from which on none is seen to wait."""
UNASKED = 4
"""Vectors for which the compiler unrolls a loop of its own accord."""
KEPT_VALUES = 32
"""Values of special functions that a thread keeps in registers between phases."""


@dataclass(frozen=True)
class InnerPersistentParameters:
    """The choices of a row-persistent kernel.

    storage: where a row stays between phases: `registers`, `shared`, or `none` (read again each
    time). threads_x: threads per row; threads_y: rows per block; chunks: vectors per thread;
    keep_values: whether values of special functions stay in registers, too, instead of being
    computed again in each phase.
    """

    storage: str
    vector_width: int
    threads_x: int
    threads_y: int
    chunks: int
    wide_index: bool
    keep_values: bool = False


InnerPersistentPlan = PhasedPlan[RowsProblem, InnerPersistentParameters]


class InnerPersistent(Family[RowsProblem, InnerPersistentParameters, InnerPersistentPlan]):
    """Accepts reductions over the innermost axes whose input is read again after them."""

    name = "inner_persistent"

    def problem(self, segment: Fusion) -> RowsProblem | Refusal:
        """Return the segment with row lengths put in and variances in two passes, by rows."""
        refusal = unsupported_nodes(segment, MEMORY_BOUND)
        if refusal is not None:
            return refusal
        fusion = with_columns(segment)
        if isinstance(fusion, Refusal):
            return fusion
        problem = as_rows(segment, two_pass(fusion), stores=True, inner=True)
        if isinstance(problem, RowsProblem) and is_empty(problem.fusion):
            return Refusal("empty", "a tensor has no elements")
        return problem

    def space(self, problem: RowsProblem, target: Target) -> Sequence[InnerPersistentParameters]:
        """Return the parameters."""
        return (choose(problem, target),)

    def plan(
        self, problem: RowsProblem, parameters: InnerPersistentParameters, target: Target
    ) -> InnerPersistentPlan:
        """Return a plan of one kernel."""
        fusion, rows, width = problem.fusion, problem.rows, parameters.vector_width
        lowering, phases, loops = problem.loops(width)
        if parameters.keep_values:
            phases = phases_of(fusion, lowering, loops[1:], keep=True)
        staged = () if parameters.storage == "none" else _staged(problem, phases, width)
        shared = sum(s.bytes for s in staged) if parameters.storage == "shared" else 0
        kernel = Kernel(
            name=f"{fusion.name}_inner_persistent",
            template="inner_persistent",
            grid=(ceildiv(rows.rows, parameters.threads_y), dim(1), dim(1)),
            block=(parameters.threads_x, parameters.threads_y, 1),
            arguments=tensor_arguments(fusion),
            shared_bytes=shared,
        )
        order = along_rows(rows.columns, width, parameters.threads_x)
        return PhasedPlan(
            self.name,
            fusion,
            (kernel,),
            parameters,
            (),
            (*problem.index[1], *problem.vectors[1]),
            problem.specialised,
            orders=of_all(problem.segment, order),
            problem=problem,
            loops=loops,
            lowering=lowering,
            phases=phases,
            staged=staged,
        )

    def price(self, plan: InnerPersistentPlan, target: Target) -> Proposal:
        """Return a price: one reading of the inputs where a row fits on chip."""
        problem, parameters = plan.problem, plan.parameters
        fusion, domain, rows = problem.fusion, problem.domain, problem.rows
        lowering, phases = lowered(fusion, domain, rows, 1)
        kept = parameters.storage != "none"
        hazard = in_place_hazard(fusion, lowering, phases=phases, on_chip=kept)
        if hazard is not None:
            return hazard
        if not any(phases.loads[1:]):
            return Refusal("persistence", "nothing is read again after its reduction")
        if any(lowering.home(n.inputs[0])[1] for group in phases.reductions for n in group):
            return Refusal("conditions", "a reduction reads only a part of the domain")
        again = 0 if kept else sum(len(p) > 0 for p in phases.loads[1:])
        keeping = phases
        if parameters.keep_values:
            keeping = phases_of(fusion, lowering, rows.variables(1)[1:], keep=True)
        flops, sfu = work(fusion)
        if parameters.storage != "registers":
            # A loop over memory computes anew what the compiler finds again among registers.
            elements = product(a.extent for a in domain.axes).evaluate(fusion.hints)
            flops += elements * keeping.repeated[0]
            sfu += elements * keeping.repeated[1]
        return Estimate(
            bytes=traffic(problem.segment) + again * bytes_read(problem.segment),
            flops=flops,
            sfu=sfu,
            efficiency=self._efficiency(plan, phases.count, target),
            ctas=plan.kernels[0].grid[0].evaluate(fusion.hints),
            build=build_time(keeping, _unrolled(parameters)),
        )

    def pressure(self, plan: InnerPersistentPlan, kernel: Kernel) -> Pressure:
        """Return what a thread holds: of a row in registers all that is its own."""
        p = plan.parameters
        stays = p.storage == "registers"
        return phased_pressure(plan, Loops(p.vector_width, p.chunks if stays else 1, stays))

    def _efficiency(self, plan: InnerPersistentPlan, phases: int, target: Target) -> float:
        """Return the part of the bandwidth that is reached."""
        problem, width = plan.problem, plan.parameters.vector_width
        if _strided(problem):
            return target.reach(self.name, "strided")
        efficiency = target.reach(self.name, access(width))
        if access(width) != "vector":
            return efficiency
        alone = target.reach(self.name, "alone")
        kernel = plan.kernels[0]
        resident = occupancy(kernel, self.pressure(plan, kernel), target)
        waits = _waits(plan.parameters, phases, _row_bytes(problem, width), resident, target)
        return alone / (waits + (1 - waits) * alone / efficiency)

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> tuple[Redefinition, ...]:
        """Return variances as two passes over rows that stay on chip."""
        return variances_in_two_passes(segment)


def _staged(problem: RowsProblem, phases: Phases, width: int) -> tuple[Staged, ...]:
    """Return the loads of one row that more than one phase reads, of which whole vectors stay."""
    columns = -(-problem.rows.columns.value // 16) * 16
    whole = (i for i in phases.cached if problem.is_whole(i, width))
    return staged_in_turn((i, columns * i.dtype.size) for i in whole)


def _row_bytes(problem: RowsProblem, width: int, *, registers: bool = False) -> int:
    """Return the bytes of the loads of one row that more than one phase reads.

    `registers`: as vectors in registers, of which each takes at least one.
    """
    cached = lowered(problem.fusion, problem.domain, problem.rows, width)[1].cached
    columns = -(-problem.rows.columns.value // 16) * 16
    least = 4 if registers else 0
    return sum(columns // width * max(least, i.dtype.size * width) for i in cached)


@dataclass(frozen=True)
class _Held:
    """What a thread holds with vectors of a width, in words.

    row: per vector of the row that stays between phases; again: the same where values of special
    functions stay, too, 0 where there are none; passing: other vectors that one phase reads or
    writes; doubles: for special functions of doubles.
    """

    width: int
    row: int
    again: int
    passing: int
    doubles: int

    def fits(self, threads: int, columns: int, registers: int, *, values: bool = False) -> bool:
        """Return whether a row stays in registers, with or without values computed from it.

        registers: those of an SM.
        """
        vectors = -(-columns // (self.width * threads))
        kept = vectors * (self.again if values else self.row)
        if values:
            most = vectors * self.width <= KEPT_VALUES
        else:
            most = threads < MAX_THREADS or kept <= MOST_IN_LARGE_BLOCKS * registers / threads
        return most and fits(threads, kept + self.passing + self.doubles, registers)


def _held(problem: RowsProblem, width: int) -> _Held:
    """Return what a thread holds with vectors of a width.

    What stays are loads, and quotients and remainders of places and conditions that several phases
    need: the compiler keeps them rather than divide again.
    """
    fusion, domain, rows = problem.fusion, problem.domain, problem.rows
    lowering, phases = lowered(fusion, domain, rows, width)
    _, chunk, lane = rows.variables(width)
    keeping = phases_of(fusion, lowering, (chunk, lane), keep=True)
    passing = [sum(words(i.dtype, width) for i in p - {*phases.cached}) for p in phases.loads]
    used: list[tuple[Atom, int]] = []
    for number, loads in enumerate(phases.loads):
        first = (i for i in loads if not any(i in p for p in phases.loads[:number]))
        used += [(atom, number) for i in first if i.address for atom, _ in i.address.terms]
        tested = (c.position for i in loads for c in i.conditions)
        used += [(atom, number) for position in tested for atom, _ in position.terms]
    for output in fusion.outputs:
        address = lowering.address(output.value, fusion.effects.strides(output.value))
        number = lowering.at_home(output.value).depth
        used += [(atom, number) for atom, _ in address.terms]
        if {chunk, lane} & address.variables:
            passing[number] += words(output.value.dtype, width)
    places: dict[Atom, set[int]] = {}
    for atom, number in used:
        if isinstance(atom, (Quotient, Remainder)) and chunk in atom.inner.variables:
            places.setdefault(atom, set()).add(number)
    again = sum(len(numbers) > 1 for numbers in places.values())
    return _Held(
        width,
        row=again + _most_kept(phases, width),
        again=again + _most_kept(keeping, width) if keeping.kept else 0,
        passing=max(passing),
        doubles=double_words(fusion, domain, rows.reduced) * width // MOST_DEAR_DOUBLES,
    )


def _most_kept(phases: Phases, width: int) -> int:
    """Return the words per vector that stay from any phase to the next."""
    most = 0
    for after in range(1, phases.count):
        before = frozenset[Instance]().union(*phases.loads[:after])
        later = frozenset[Instance]().union(*phases.loads[after:])
        values = (i for i, first in phases.kept if first < after)
        kept = sum(words(i.dtype, width) for i in before & later)
        most = max(most, kept + sum(words(i.dtype.compute, width) for i in values))
    return most


def _waits(
    parameters: InnerPersistentParameters,
    phases: int,
    row_bytes: int,
    resident: Occupancy,
    target: Target,
) -> float:
    """Return how long an SM waits between the phases of its rows; 1 stands for the probe `alone`.

    While a row is reduced, those of other blocks on the SM are read: the more phases there are and
    the fewer blocks, the less of that. By the softmax, layer norm and RMS norm of the benchmarks.
    """
    if parameters.storage == "none":
        return 0.0
    blocks = min(target.threads, target.registers / resident.registers) / resident.threads
    if parameters.storage == "shared":
        blocks = min(blocks, max(1, target.shared // max(1, row_bytes)))
    return 0.0 if blocks >= ENOUGH_BLOCKS else ((phases - 1) / 2 * ALONE_BLOCKS / blocks) ** 2


def _unrolled(parameters: InnerPersistentParameters) -> int:
    """Return the elements that the loop of a phase computes without a branch."""
    vectors = parameters.chunks if parameters.storage == "registers" else UNASKED
    return parameters.vector_width * vectors


def _strided(problem: RowsProblem) -> bool:
    """Return whether the largest load of the element loop does not run along memory."""
    fusion, domain, rows = problem.fusion, problem.domain, problem.rows
    _, chunk, _ = rows.variables(1)
    loads = {i for p in lowered(fusion, domain, rows, 1)[1].loads for i in p}
    strides: list[tuple[int, bool]] = []
    for load in loads:
        assert load.address is not None
        assert load.value is not None
        step = load.address.coefficient(chunk)
        mixed = step is None and any(
            c == 1
            for a, c in load.address.terms
            if chunk in getattr(a, "inner", load.address).variables
        )
        size = load.value.rank
        strides.append((size, not mixed and step != side_by_side(fusion, load.value)))
    return max(strides, default=(0, False))[1]


def choose(problem: RowsProblem, target: Target) -> InnerPersistentParameters:
    """Return the parameters for a row length and a target.

    Threads per row grow with the row so that each keeps at most REGISTER_BYTES and KEPT_ELEMENTS of
    it. Where a thread has too few registers for that it gets narrower vectors, or the row goes
    elsewhere.
    """
    fusion, rows = problem.fusion, problem.rows
    columns = rows.columns.value
    width = widest = problem.vectors[0]
    largest = max((v.dtype.size for v in fusion.values if v.shape), default=0)
    while True:
        held = _held(problem, width)
        threads = _threads(problem, width, target.registers)
        fit = held.fits(threads, columns, target.registers)
        if fit or width == 1 or width * largest <= LEAST_ACCESS:
            break
        width //= 2
    storage, keep = "registers", fit and held.again > 0
    if not fit:
        width, threads = widest, MAX_THREADS // 2
        small = _row_bytes(problem, width) <= target.shared
        storage = "shared" if small else "none"
    if keep:
        least = 1 << max(0, -(-columns // KEPT_VALUES) - 1).bit_length()
        roomier = min(MAX_THREADS, max(threads, least))
        keep = held.fits(roomier, columns, target.registers, values=True)
        threads = roomier if keep else threads
    chunks = -(-columns // (width * threads))
    rows_at_once = max(1, min(128 // threads, rows.rows.evaluate(fusion.hints) or 1))
    rows_at_once = max(1 << (rows_at_once.bit_length() - 1), 32 // threads)  # whole warps
    return InnerPersistentParameters(
        storage, width, threads, rows_at_once, chunks, problem.wide, keep
    )


def _threads(problem: RowsProblem, width: int, registers: int) -> int:
    """Return the threads per row that keep it in registers in vectors of a width.

    registers: those of an SM.
    """
    columns = problem.rows.columns.value
    per_row = _row_bytes(problem, width, registers=True)
    vectors = -(-columns // width)
    wanted = max(
        -(-per_row // part(REGISTER_BYTES, registers)),
        -(-columns // part(KEPT_ELEMENTS, registers)),
        -(-vectors // 8),
    )
    threads = min(MAX_THREADS, max(8 if columns > 32 else 4, 1 << max(0, wanted - 1).bit_length()))
    return min(threads, max(4, 1 << max(0, vectors - 1).bit_length()))
