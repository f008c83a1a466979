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
    import importlib
    import importlib.util

    listed = (
        ("no_op", "NoOp"),  # nothing to compute
        ("matmul", "Matmul"),  # the only one that takes a contraction
        ("pointwise", "Pointwise"),  # no reduction: the plain loop, where its accesses are good
        ("transpose", "Transpose"),  # no reduction: a tile, where two innermost dims differ
        ("reduction", "Reduction"),  # reductions without a second reading of their input
        ("inner_persistent", "InnerPersistent"),  # rows that are read again
        ("outer_persistent", "OuterPersistent"),  # columns that are read again
        ("scan", "Scans"),  # prefixes along one axis
        ("sort", "Sorts"),  # order along one axis
        ("scatter", "Scatters"),  # writing at positions that are data
        ("inner_outer_persistent", "InnerOuterPersistent"),  # rows and columns in one reading
    )
    return tuple(
        getattr(importlib.import_module(f"fusec.schedule.{module}"), name)()
        for module, name in listed
        if importlib.util.find_spec(f"fusec.schedule.{module}") is not None
    )


def find(name: str) -> PlanningScheduler:
    """Return the scheduler called `name`."""
    return next(s for s in schedulers() if s.name == name)
