"""The register pressure of kernels with phases, whose rows stay on chip or are streamed."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass, replace
from fusec.index.instances import Instance
from fusec.schedule.plan import P, R
from fusec.schedule.pressure import Pressure, divisions, in_flight, most_of, sweep
from fusec.schedule.registers import sum_words, words
from fusec.schedule.rows.domain import PhasedPlan

SHIFTED_REGISTERS = 10
"""Registers for the bounds of a row's vectors, and for a thread's element outside them."""


@dataclass(frozen=True)
class Loops:
    """The loops of a phase.

    width: elements of a vector; unrolled: vectors that a thread processes at a time; stays: whether
    these are all of a thread's, and stay in registers; outer: whether vectors run across the
    reduced axis, so that each of their elements has its own accumulators; shifted: whether these
    are peeled to alignment, and those of columns combined from the two around them.
    """

    width: int
    unrolled: int
    stays: bool = False
    outer: bool = False
    shifted: bool = False


def phased_pressure(plan: PhasedPlan[P, R], loops: Loops) -> Pressure:
    """Return the register pressure of the phase in which a thread holds most."""
    phases, width = plan.phases, loops.width
    row, chunk, lane = plan.loops
    swept = frozenset({row} if loops.outer else {chunk, lane})
    side = width * (loops.unrolled if loops.stays else 1)
    staged = {s.instance for s in plan.staged} if loops.stays else set[Instance]()
    roots, sweeps = _roots(plan), list[Pressure]()
    for number in range(phases.count):
        reached = phases.loads[number] | phases.computed[number]
        made = {i for i in reached if i.variables & swept}
        here = sweep(made - staged, roots[number], lane, width, side)
        stored = sum(
            bool(i.variables & swept) for i in roots[number][len(phases.reductions[number]) :]
        )
        sums = sum(sum_words(n) for n in phases.reductions[number])
        columns = {o for i in made for o in i.operands if o in reached and o not in made}
        across = loops.outer and loops.shifted
        divided = divisions(i for i in made if i.kind == "load") if loops.stays else 0
        sweeps.append(
            replace(
                here,
                derived=sum(words(i.dtype.compute, width) for i in columns),
                ahead=loops.unrolled * (here.flight + divided) if loops.stays else 0,
                flight=0 if loops.stays or across else in_flight(here.flight, loops.unrolled),
                staged=in_flight(3 * here.flight // 2, loops.unrolled) if across else 0,
                arrays=here.arrays + stored,
                sums=sums * (width if loops.outer else 1),
                own=here.own + (SHIFTED_REGISTERS if loops.shifted and not across else 0),
            )
        )
    most = most_of(sweeps)
    if not loops.stays:
        return most
    kept = loops.unrolled * sum(words(i.dtype, width) for i in staged)
    passed = loops.unrolled * _passed(plan, roots, width)
    return replace(most, staged=kept, derived=most.derived + max(0, passed - kept))


def _roots(plan: PhasedPlan[P, R]) -> Mapping[int, list[Instance]]:
    """Return the roots of each phase: what it reduces, then what it stores."""
    lowering = plan.lowering
    roots = {
        number: [lowering.at_home(n.inputs[0]) for n in nodes]
        for number, nodes in enumerate(plan.phases.reductions)
    }
    for output in lowering.fusion.outputs:
        instance = lowering.at_home(output.value)
        roots[instance.depth].append(instance)
    return roots


def _passed(plan: PhasedPlan[P, R], roots: Mapping[int, list[Instance]], width: int) -> int:
    """Return the most words of a vector that phases compute for later ones."""
    phases = plan.phases
    first: dict[Instance, int] = {}
    for number in range(phases.count):
        for instance in phases.loads[number] | phases.computed[number]:
            first.setdefault(instance, number)
    last: dict[Instance, int] = {}
    for instance, number in first.items():
        for operand in instance.operands if instance.kind != "reduced" else ():
            last[operand] = max(number, last.get(operand, 0))
    for number, each in roots.items():
        for root in each:
            last[root] = max(number, last.get(root, 0))
    after = [0] * phases.count
    for instance, number in first.items():
        dtype = instance.dtype if instance.kind == "load" else instance.dtype.compute
        for k in range(number, last.get(instance, number)):
            after[k] += words(dtype, width)
    return max(after)
