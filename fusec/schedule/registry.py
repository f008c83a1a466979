"""All schedulers, in the order in which they are asked."""

from __future__ import annotations

from functools import cache
from typing import Protocol

from fusec.ir.graph import Fusion
from fusec.schedule.plan import KernelPlan
from fusec.segment.protocol import Proposal
from fusec.target import Target


class PlanningScheduler(Protocol):
    """A scheduler that the segmenter can ask and that can build a plan."""

    @property
    def name(self) -> str:
        """Return the scheduler's name."""
        ...

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        """Return a price or a refusal."""
        ...

    def build(self, segment: Fusion, target: Target) -> KernelPlan:
        """Return the plan of a segment that was accepted."""
        ...


@cache
def schedulers() -> tuple[PlanningScheduler, ...]:
    """Return every scheduler; where two accept at the same price, the earlier one is chosen."""
    from fusec.schedule.inner_outer_persistent import InnerOuterPersistent
    from fusec.schedule.inner_persistent import InnerPersistent
    from fusec.schedule.matmul import Matmul
    from fusec.schedule.no_op import NoOp
    from fusec.schedule.outer_persistent import OuterPersistent
    from fusec.schedule.pointwise import Pointwise
    from fusec.schedule.reduction import Reduction
    from fusec.schedule.transpose import Transpose

    return (
        NoOp(),  # nothing to compute
        Matmul(),  # the only one that takes a contraction
        Pointwise(),  # no reduction: the plain loop, where its accesses are good
        Transpose(),  # no reduction: a tile, where two innermost dims differ
        Reduction(),  # reductions without a second reading of their input
        InnerPersistent(),  # rows that are read again after their reduction
        OuterPersistent(),  # columns that are read again after their reduction
        InnerOuterPersistent(),  # rows and columns in one reading
    )


def find(name: str) -> PlanningScheduler:
    """Return the scheduler called `name`."""
    return next(s for s in schedulers() if s.name == name)
