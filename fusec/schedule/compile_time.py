"""The predicted compile time (NVRTC) of a kernel with phases, from its schedule.

A phase recomputes values that an earlier one did not keep, so the number of statements grows with
the square of the phases; loops over a thread's elements are unrolled; reductions that blocks
compute together are held together. The coefficients are `cost.build` of a target.
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
"""Elements per thread in tiled kernels."""


def build_time(phases: Phases, elements: int, target: Target, results: int = 1) -> BuildTime:
    """Return the predicted compile time of a kernel, and that with each value computed only once.

    elements: per unrolled loop of a phase; results: how many results of each reduction a thread
    holds.
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
    """Return the same for a kernel without phases, which computes some values in several places.

    made: the values that it loads and computes.
    """
    cost = target.cost.build
    each = statement_seconds(FLAT_ELEMENTS, cost)
    once = {(i.kind, i.node or i.value): i for i in made}.values()
    return BuildTime(
        cost.kernel_seconds + each * _statements(made, cost),
        cost.kernel_seconds + each * _statements(once, cost),
    )


def with_build_time(estimate: Estimate, segment: Fusion, target: Target) -> Estimate:
    """Return an estimate with the compile time of elementwise operations if it has none yet.

    Their loops over a tile are unrolled: NVRTC compiles 150 operations of 50 steps of sin(x) +
    cos(x) in 14 s in a transpose, 18 s after a scan and 77 s after an f32 GEMM, but 3 s in a plain
    loop.
    """
    if estimate.build.seconds:
        return estimate
    cost = target.cost.build
    operations = (n.op.cost for n in segment.nodes if n.op.family in ELEMENTWISE)
    statements = sum(statements_of(each, cost) for each in operations)
    seconds = cost.kernel_seconds + statement_seconds(TILE_ELEMENTS, cost) * statements
    return replace(estimate, build=BuildTime(seconds, seconds))


def _statements(instances: Iterable[Instance], cost: BuildCost) -> float:
    """Return the number of operations of some values, at least one for each that is not a load."""
    return sum(_operations(instance, cost) for instance in instances)


def _operations(instance: Instance, cost: BuildCost) -> float:
    """Return the operations of a value and of the conditions under which it is needed."""
    tests = len(instance.conditions) + sum(map(len, instance.branches))
    if instance.kind == "load":
        return tests
    return tests + (1.0 if instance.node is None else statements_of(instance.node.op.cost, cost))
