"""What NVRTC takes for a kernel that works in phases, from what its schedule knows of its text.

A phase computes again what an earlier one computed but did not keep, so that statements grow with
the square of the phases; loops over what a thread holds are unrolled; and what blocks reduce side
by side is held side by side. Measured with NVRTC 13 on one core of 333 kernels of the corpus, the
examples and `benchmarks/compile_time.py`, from 0.03 to 26 seconds: half of the predictions are
within a factor of 1.35, nine of ten within one of 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fusec.index.instances import Instance
from fusec.schedule.rows import Phases
from fusec.segment.protocol import BuildTime

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


def flat_build_time(made: Collection[Instance], elements: int) -> BuildTime:
    """Return the same for a kernel without phases, which computes some values at several places.

    made: what it computes; elements: of a thread.
    """
    each = STATEMENT * elements**UNROLLED
    once = {i.node: i for i in made}.values()
    return BuildTime(KERNEL + each * _statements(made), KERNEL + each * _statements(once))


def _statements(instances: Iterable[Instance]) -> float:
    """Return the operations of some values, at least one each."""
    costs = (None if i.node is None else i.node.op.cost for i in instances)
    return sum(1.0 if c is None else max(1.0, c.flops + SPECIAL * c.sfu) for c in costs)
