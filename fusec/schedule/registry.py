"""All schedulers, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from fusec.diagnostics import InternalError
from fusec.ir.annotations import Setting
from fusec.ir.graph import Fusion
from fusec.schedule.plan import Kernel, KernelPlan
from fusec.schedule.pressure import Pressure
from fusec.schedule.space import Field, Parameters
from fusec.segment.protocol import Estimate, Proposal, Refusal
from fusec.target import Target


class PlanningScheduler(Protocol):
    """A scheduler that the segmenter can ask and that can build a plan."""

    @property
    def name(self) -> str:
        """Return the scheduler's name."""
        ...

    def propose(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = ...
    ) -> Proposal:
        """Return a price or a refusal."""
        ...

    def offer(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = ...
    ) -> tuple[KernelPlan, Estimate] | Refusal:
        """Return a plan and its price, or a refusal."""
        ...

    def pressure(self, plan: Any, kernel: Kernel) -> Pressure:
        """Return what a thread of one of its own plan's kernels holds."""
        ...

    def free(self, segment: Fusion, target: Target) -> tuple[Field, ...]:
        """Return the fields that may be set for a segment."""
        ...

    def refusal(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting]
    ) -> Refusal | None:
        """Return the rule by which a segment has no plan with some fields set, or None."""
        ...

    def allowed(
        self, segment: Fusion, target: Target, name: str, settings: Mapping[str, Setting]
    ) -> tuple[Setting, ...]:
        """Return the values that a field may have beside some settings."""
        ...

    def priced(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = ...
    ) -> tuple[tuple[Parameters, Proposal], ...]:
        """Return the space of a segment with the price of each plan."""
        ...


@cache
def schedulers() -> tuple[PlanningScheduler, ...]:
    """Return every scheduler of kernels; of two at the same price, the earlier one is chosen."""
    from fusec.schedule.attention.family import Attentions
    from fusec.schedule.attention_backward import AttentionBackwards
    from fusec.schedule.attention_decode import AttentionDecodes
    from fusec.schedule.concat import Concat
    from fusec.schedule.inner_outer_persistent import InnerOuterPersistent
    from fusec.schedule.inner_persistent import InnerPersistent
    from fusec.schedule.matmul.family import Matmul
    from fusec.schedule.no_op import NoOp
    from fusec.schedule.outer_persistent import OuterPersistent
    from fusec.schedule.pointwise.family import Pointwise
    from fusec.schedule.reduction import Reduction
    from fusec.schedule.scan.family import Scans
    from fusec.schedule.scatter.family import Scatters
    from fusec.schedule.sort.family import Sorts
    from fusec.schedule.transpose.family import Transpose

    return (
        NoOp(),  # nothing to compute
        Matmul(),  # one contraction
        Attentions(),  # two contractions and the softmax between them
        AttentionDecodes(),  # the same of few queries, whose keys several blocks share
        AttentionBackwards(),  # five contractions around one graph of weights
        Pointwise(),  # no reduction: the plain loop, where its accesses are good
        Concat(),  # more tensors beside one another than one kernel takes
        Transpose(),  # no reduction: a tile, where two innermost dims differ
        Reduction(),  # reductions without a second reading of their input
        InnerPersistent(),  # rows that are read again
        OuterPersistent(),  # columns that are read again
        Scans(),  # prefixes along one axis
        Sorts(),  # order along one axis
        Scatters(),  # writing at positions that are data
        InnerOuterPersistent(),  # rows and columns in one reading
    )


@cache
def host_schedulers() -> tuple[PlanningScheduler, ...]:
    """Return the schedulers of what runs between kernels; of these a file names `host` alone."""
    from fusec.schedule.host import Communication, Placement
    from fusec.schedule.host_operations import HostOperations

    return (Communication(), Placement(), HostOperations())


def find_scheduler(name: str) -> PlanningScheduler:
    """Return the scheduler called `name`."""
    for scheduler in (*schedulers(), *host_schedulers()):
        if scheduler.name == name:
            return scheduler
    raise InternalError(f"unknown scheduler `{name}`")
