"""What NVRTC takes for a kernel that works in phases, from what its schedule knows of its text.

A phase computes again what an earlier one computed but did not keep, so that statements grow with
the square of the phases; loops over what a thread holds are unrolled; and what blocks reduce side
by side is held side by side. Measured with NVRTC 13 on one core of 333 kernels of the corpus, the
examples and `benchmarks/compile_time.py`, from 0.03 to 26 seconds: half of the predictions are
within a factor of 1.35, nine of ten within one of 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from fusec.index.instances import Instance
from fusec.ir.graph import Fusion
from fusec.ir.op import Cost
from fusec.schedule.rows.domain import Phases
from fusec.segment.protocol import BuildTime, Estimate

KERNEL = 0.06
"""Seconds of the smallest kernel."""
STATEMENT = 6e-5
"""Seconds of an operation for one element, by UNROLLED of the elements of an unrolled loop."""
UNROLLED = 1.15
REDUCTION = 7.5e-4
"""Seconds of a block's reduction of one result, by BESIDE of those in one kernel."""
BESIDE = 1.6
SPECIAL = 4
"""Operations as which one of the special functions counts."""
ELEMENTS = 8
"""Elements that a thread mostly computes."""
TILE_ELEMENTS = 64
"""The same where blocks compute tiles."""
ELEMENTWISE = ("pointwise", "random")


def build_time(phases: Phases, elements: int, results: int = 1) -> BuildTime:
    """Return what NVRTC takes for a kernel, and what for each value computed once by itself.

    elements: those that the unrolled loop of a phase computes; results: of each reduction that a
    thread holds side by side.
    """
    each = STATEMENT * elements**UNROLLED
    reductions = sum(map(len, phases.reductions))
    together = sum(map(_statements, phases.computed))
    once = _statements(frozenset[Instance]().union(*phases.computed))
    return BuildTime(
        KERNEL + each * together + REDUCTION * (reductions * results) ** BESIDE,
        KERNEL + each * once + REDUCTION * reductions * results**BESIDE,
    )


def flat_build_time(made: Collection[Instance]) -> BuildTime:
    """Return the same for a kernel without phases, which computes some values at several places.

    made: what it loads and computes.
    """
    each = STATEMENT * ELEMENTS**UNROLLED
    once = {(i.kind, i.node or i.value): i for i in made}.values()
    return BuildTime(KERNEL + each * _statements(made), KERNEL + each * _statements(once))


def with_build_time(price: Estimate, segment: Fusion) -> Estimate:
    """Return a price with what NVRTC takes for elementwise operations, where the family tells none.

    Their loops over a tile are unrolled: 150 operations of 50 steps of sin(x) + cos(x) take it 14 s
    in a transpose, 18 s after a scan and 77 s after a product of f32, 3 s in a plain loop.
    """
    if price.build.seconds:
        return price
    costs = (n.op.cost for n in segment.nodes if n.op.family in ELEMENTWISE)
    each = STATEMENT * TILE_ELEMENTS**UNROLLED
    seconds = KERNEL + each * sum(map(_cost, costs))
    return replace(price, build=BuildTime(seconds, seconds))


def _statements(instances: Iterable[Instance]) -> float:
    """Return the operations of some values: at least one of each that is no load."""
    return sum(map(_operations, instances))


def _operations(instance: Instance) -> float:
    """Return the operations of a value and the conditions under which it is needed."""
    tests = len(instance.conditions) + sum(map(len, instance.branches))
    if instance.kind == "load":
        return tests
    return tests + (1.0 if instance.node is None else _cost(instance.node.op.cost))


def _cost(cost: Cost) -> float:
    return max(1.0, cost.flops + SPECIAL * cost.sfu)
