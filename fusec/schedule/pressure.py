"""Register pressure: the live values of a kernel's thread, and its register allocation.

Predicted from the plan, for all schedulers by one weighted sum of words: the weights are
`cost.registers` of a target.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fusec.dataclasses import dataclass, fields, replace
from fusec.index.instances import Instance, Lowering, instances_under
from fusec.ir.dtype import F64
from fusec.ir.expression import Index, Quotient, Remainder, Var
from fusec.schedule.plan import Kernel
from fusec.schedule.registers import SM_REGISTERS, words
from fusec.schedule.templates import find_template
from fusec.target import Target
from fusec.target.costs import RegistersCost, RegisterWeights

WEIGHED = tuple(f.name for f in fields(RegisterWeights))
"""The fields of `Pressure` whose words need more or less than one register each."""
MOST_IN_FLIGHT = 32
"""Most words of loads in flight in a loop, however far it is unrolled."""
SIDE_BY_SIDE = 8
"""Elements whose computations a thread interleaves, half as many for special functions."""
MOST_SPECIAL = 3
"""Special functions of an element that are computed at a time."""
MOST = 255
"""Registers that an instruction can address."""
BLOCKS = 32
"""Most blocks per SM."""
RESERVED = 1024
"""Bytes of shared memory that the system reserves per block."""


@dataclass(frozen=True)
class Pressure:
    """The peak live values of a kernel's thread, in words unless stated otherwise.

    own: the kernel's own overhead, in registers. staged: values that stay between phases, and
    column accumulators. derived: values that later phases read and earlier ones have computed,
    beyond those staged. ahead: loads of unrolled vectors, and quotients in addresses, which others
    need not wait for. flight: loads of the vectors that a loop processes at a time. lanes: values
    of the elements that are interleaved. special: special functions of these that take
    many operations; doubles: whether there are such functions of doubles. arrays: tensors that a
    loop reads or writes. sums: partial results. shared: bytes of shared memory that the kernel
    declares for its block.
    """

    own: int = 0
    staged: int = 0
    derived: int = 0
    ahead: int = 0
    flight: int = 0
    lanes: int = 0
    special: int = 0
    doubles: int = 0
    arrays: int = 0
    sums: int = 0
    shared: int = 0

    def registers(self, cost: RegistersCost) -> int:
        """Return the registers that the compiler would use without a limit."""
        weighed = sum(getattr(cost.weights, name) * getattr(self, name) for name in WEIGHED)
        return round(cost.thread_registers + self.own + self.staged + weighed)


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel fit on an SM.

    wanted: registers that a thread would use without a limit; most: those that its launch bounds
    allow; registers: what it gets; spills: whether it is likely to exceed its launch bounds.
    """

    threads: int
    wanted: int
    most: int
    registers: int
    shared_bytes: int
    blocks: int
    spills: bool


def of_template(template: str) -> Pressure:
    """Return the register pressure of a kernel's template, without knowledge of its loops."""
    return Pressure(own=find_template(template).registers)


def occupancy(kernel: Kernel, pressure: Pressure, target: Target) -> Occupancy:
    """Return how many blocks of a kernel fit on an SM of a target."""
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    least = 1 if kernel.all_registers else kernel.least_blocks
    most = most_registers(threads, least)
    cost = target.cost.registers
    wanted = pressure.registers(cost)
    full = SM_REGISTERS // target.threads
    is_filling = full < wanted <= full + cost.given_up_registers
    given = min(most, full if is_filling else -(-wanted // 8) * 8)
    shared = kernel.shared_bytes + pressure.shared
    blocks = resident_blocks(threads, given, shared, target)
    spills = wanted > cost.spilling_share * most
    return Occupancy(threads, wanted, most, given, shared, blocks, spills)


def most_registers(threads: int, least_blocks: int) -> int:
    """Return the registers per thread that launch bounds allow."""
    return min(MOST, SM_REGISTERS // (threads * max(1, least_blocks)) // 8 * 8)


def resident_blocks(threads: int, registers: int, shared_bytes: int, target: Target) -> int:
    """Return how many blocks are resident on an SM.

    Registers are allocated to warps, in units of 8 per thread, and each quarter of an SM has its
    own.
    """
    warps = -(-threads // 32)
    by_quarter = target.registers // 4 // (32 * -(-max(registers, 8) // 8) * 8)
    by_shared = (target.shared + RESERVED) // (shared_bytes + RESERVED)
    return min(BLOCKS, target.threads // (32 * warps), 4 * by_quarter // warps, by_shared)


def most_of(sweeps: Iterable[Pressure]) -> Pressure:
    """Return the pressure of a thread that runs several loops one after the other."""
    known = list(sweeps)
    most = {f.name: max((getattr(p, f.name) for p in known), default=0) for f in fields(Pressure)}
    return Pressure(**most)


def sweep(
    made: Collection[Instance], roots: Iterable[Instance], lane: Var, width: int, elements: int
) -> Pressure:
    """Return the pressure of a thread that computes `roots` once, for one vector of a width.

    made: what the loop over vectors computes; elements: unrolled elements of all vectors.
    """
    side = min(SIDE_BY_SIDE, elements)
    loads = [i for i in made if i.kind == "load"]
    costs = [i for i in made if i.node is not None and i.node.op.cost.flops >= 10]
    functions = min(MOST_SPECIAL, len(costs))
    return Pressure(
        flight=sum(words(i.dtype, width if lane in i.variables else 1) for i in loads),
        lanes=side * _alive(made, roots),
        special=functions * min(side, SIDE_BY_SIDE // 2),
        doubles=int(any(_of_doubles(i) for i in made)),
        arrays=len({i.name for i in loads}),
    )


def in_flight(loads: int, unrolled: int) -> int:
    """Return the words of loads in flight if several vectors are processed at a time."""
    return max(loads, min(MOST_IN_FLIGHT, unrolled * loads))


def flat_pressure(
    lowering: Lowering, loops: tuple[Var, ...], width: int, unrolled: int
) -> Pressure:
    """Return the pressure of a thread that computes a fusion's outputs, some vectors at a time."""
    roots = [lowering.at_home(o.value) for o in lowering.fusion.outputs]
    swept = frozenset(loops[1:])
    made = {i for i in instances_under(roots) if i.variables & swept}
    here = sweep(made, roots, loops[-1], width, width)
    return replace(here, flight=in_flight(here.flight, unrolled), arrays=here.arrays + len(roots))


def _of_doubles(instance: Instance) -> bool:
    node = instance.node
    if node is None or F64 not in node.compute_dtypes:
        return False
    return node.op.cost.sfu > 0 or node.op.cost.flops >= 10


def _alive(made: Collection[Instance], roots: Iterable[Instance]) -> int:
    """Return the most live words of one element, not counting loads."""
    order = _in_order(made, roots)
    last = {operand: place for place, i in enumerate(order) for operand in _read(i)}
    alive = most = 0
    ending: dict[int, int] = {}
    for place, instance in enumerate(order):
        if instance.kind != "load":
            size = words(instance.dtype.compute)
            alive += size
            most = max(most, alive)
            end = last.get(instance, place)
            ending[end] = ending.get(end, 0) + size
        alive -= ending.pop(place, 0)
    return most


def _in_order(made: Collection[Instance], roots: Iterable[Instance]) -> list[Instance]:
    """Return instances in the order in which they are computed: operands before their users."""
    order: dict[Instance, None] = {}
    stack = [(root, False) for root in roots]
    entered: set[Instance] = set()
    while stack:
        instance, ready = stack.pop()
        if ready:
            order[instance] = None
        elif instance in made and instance not in entered:
            entered.add(instance)
            stack.append((instance, True))
            stack.extend((o, False) for o in _read(instance))
    return list(order)


def _read(instance: Instance) -> tuple[Instance, ...]:
    return () if instance.kind == "reduced" else instance.operands


def divisions(loads: Iterable[Instance]) -> int:
    """Return the number of quotients and remainders in the addresses of some loads."""
    found: set[Quotient | Remainder] = set()
    for load in loads:
        if load.address is not None:
            _divisions(load.address, found)
    return len(found)


def _divisions(at: Index, found: set[Quotient | Remainder]) -> None:
    for atom, _ in at.terms:
        if isinstance(atom, (Quotient, Remainder)):
            found.add(atom)
            _divisions(atom.inner, found)
