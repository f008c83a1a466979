"""What NVRTC takes for a kernel that works in phases, from what its schedule knows of its text.

A phase computes again what an earlier one computed but did not keep, so that statements grow with
the square of the phases; loops over what a thread holds are unrolled; and what blocks reduce side
by side is held side by side. The coefficients are `cost.build` of a target.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fusec.dataclasses import replace
from fusec.index.instances import Instance
from fusec.ir.graph import Fusion
from fusec.schedule.rows.domain import Phases
from fusec.segment.length import (
    ELEMENTWISE,
    FLAT_ELEMENTS,
    statement_seconds,
    statements_of,
)
from fusec.segment.protocol import BuildTime, Estimate
from fusec.target import Target
from fusec.target.costs import BuildCost

TILE_ELEMENTS = 64
"""Elements that a thread computes where blocks compute tiles."""


def build_time(phases: Phases, elements: int, target: Target, results: int = 1) -> BuildTime:
    """Return what NVRTC takes for a kernel, and what for each value computed once by itself.

    elements: those that the unrolled loop of a phase computes; results: of each reduction that a
    thread holds side by side.
    """
    cost = target.cost.build
    each, power = statement_seconds(elements, cost), cost.reductions_exponent
    reductions = sum(map(len, phases.reductions))
    together = sum(_statements(made, cost) for made in phases.computed)
    once = _statements(frozenset[Instance]().union(*phases.computed), cost)
    return BuildTime(
        cost.kernel_seconds
        + each * together
        + cost.reduction_seconds * (reductions * results) ** power,
        cost.kernel_seconds + each * once + cost.reduction_seconds * reductions * results**power,
    )


def flat_build_time(made: Collection[Instance], target: Target) -> BuildTime:
    """Return the same for a kernel without phases, which computes some values at several places.

    made: what it loads and computes.
    """
    cost = target.cost.build
    each = statement_seconds(FLAT_ELEMENTS, cost)
    once = {(i.kind, i.node or i.value): i for i in made}.values()
    return BuildTime(
        cost.kernel_seconds + each * _statements(made, cost),
        cost.kernel_seconds + each * _statements(once, cost),
    )


def with_build_time(estimate: Estimate, segment: Fusion, target: Target) -> Estimate:
    """Return a price with what NVRTC takes for elementwise operations, where the family tells none.

    Their loops over a tile are unrolled: 150 operations of 50 steps of sin(x) + cos(x) take it 14 s
    in a transpose, 18 s after a scan and 77 s after a product of f32, 3 s in a plain loop.
    """
    if estimate.build.seconds:
        return estimate
    cost = target.cost.build
    operations = (n.op.cost for n in segment.nodes if n.op.family in ELEMENTWISE)
    statements = sum(statements_of(each, cost) for each in operations)
    seconds = cost.kernel_seconds + statement_seconds(TILE_ELEMENTS, cost) * statements
    return replace(estimate, build=BuildTime(seconds, seconds))


def _statements(instances: Iterable[Instance], cost: BuildCost) -> float:
    """Return the operations of some values: at least one of each that is no load."""
    return sum(_operations(instance, cost) for instance in instances)


def _operations(instance: Instance, cost: BuildCost) -> float:
    """Return the operations of a value and the conditions under which it is needed."""
    tests = len(instance.conditions) + sum(map(len, instance.branches))
    if instance.kind == "load":
        return tests
    return tests + (1.0 if instance.node is None else statements_of(instance.node.op.cost, cost))
