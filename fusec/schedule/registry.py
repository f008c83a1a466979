"""All schedulers, in the order in which they are tried; modules are imported when one may match.

An entry names a scheduler class and its requirement (`fusec.schedule.requirements`): a segment that
does not meet it is refused without an import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from fusec.diagnostics import InternalError
from fusec.ir.annotations import Setting
from fusec.ir.graph import Fusion
from fusec.ops.communication import FAMILY, PLACEMENT
from fusec.options import HOST_SCHEDULER
from fusec.properties import cached_property
from fusec.schedule import requirements
from fusec.schedule.former import Former
from fusec.schedule.plan import Kernel, KernelPlan
from fusec.schedule.pressure import Pressure
from fusec.schedule.space import Field, Parameters
from fusec.segment.protocol import (
    Estimate,
    Proposal,
    Redefinition,
    Refusal,
    is_bounded_in_parts,
    is_redefining,
)
from fusec.target import Target


class PlanningScheduler(Protocol):
    """A scheduler that the segmenter can query and that can build a plan."""

    @property
    def name(self) -> str:
        """Return the scheduler's name."""
        ...

    @property
    def former(self) -> Mapping[str, Former]:
        """Return the former names of its fields."""
        ...

    def propose(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = ...
    ) -> Proposal:
        """Return a predicted cost or a refusal."""
        ...

    def offer(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = ...
    ) -> tuple[KernelPlan, Estimate] | Refusal:
        """Return a plan and its predicted cost, or a refusal."""
        ...

    def pressure(self, plan: Any, kernel: Kernel) -> Pressure:
        """Return the register pressure of a thread of one of its own plan's kernels."""
        ...

    def free(self, segment: Fusion, target: Target) -> tuple[Field, ...]:
        """Return the fields that may be set for a segment."""
        ...

    def refusal(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting]
    ) -> Refusal | None:
        """Return why a segment has no plan with some fields set, or None if it has one."""
        ...

    def allowed(
        self, segment: Fusion, target: Target, name: str, settings: Mapping[str, Setting]
    ) -> tuple[Setting, ...]:
        """Return the values that a field may have together with some settings."""
        ...

    def estimated_space(
        self, segment: Fusion, target: Target, settings: Mapping[str, Setting] = ...
    ) -> tuple[tuple[Parameters, Proposal], ...]:
        """Return the space of a segment with the predicted cost of each plan."""
        ...


class Entry:
    """A scheduler by name, whose class is imported for the first segment that it may support.

    kind: the class in `module`. requirement: returns why the scheduler cannot support a segment, or
    None; its `problem` returns the same refusal.
    """

    def __init__(
        self,
        name: str,
        module: str,
        kind: str,
        requirement: Callable[[Fusion], Refusal | None],
    ) -> None:
        """Import nothing yet."""
        self.has_limited_length = self.moves_compulsory_traffic = True
        self.name, self.module, self.kind = name, module, kind
        self.requirement = requirement

    @cached_property
    def family(self) -> PlanningScheduler:
        """Return the scheduler's only instance; raise InternalError if it has another name."""
        family: PlanningScheduler = getattr(import_module(self.module), self.kind)()
        if family.name != self.name:
            raise InternalError(f"the registry calls scheduler `{family.name}` `{self.name}`")
        return family

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        """Return a predicted cost or a refusal."""
        return self.requirement(segment) or self.family.propose(segment, target)

    def least_in_parts(self, segment: Fusion, target: Target) -> float:
        """Return seconds below which no two or more kernels compute a segment; 0.0 if unknown."""
        family = self.family
        return family.least_in_parts(segment, target) if is_bounded_in_parts(family) else 0.0

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> Sequence[Redefinition]:
        """Return alternative definitions of a segment that the scheduler may support."""
        if self.requirement(segment) is not None or not is_redefining(self.family):
            return ()
        return self.family.redefinitions(segment, fusion, target)


_KERNELS = (
    # nothing to compute
    Entry("no_op", "fusec.schedule.no_op", "NoOp", requirements.nothing),
    # one contraction
    Entry("matmul", "fusec.schedule.matmul.family", "Matmul", requirements.one_gemm),
    # two contractions and the softmax between them
    Entry(
        "attention", "fusec.schedule.attention.forward.family", "Attentions", requirements.two_gemms
    ),
    # the same with few queries, whose keys several blocks split
    Entry(
        "attention_decode",
        "fusec.schedule.attention.decode.family",
        "AttentionDecodes",
        requirements.two_gemms_or_sums,
    ),
    # five contractions around one graph of weights
    Entry(
        "attention_backward",
        "fusec.schedule.attention.backward.family",
        "AttentionBackwards",
        requirements.five_gemms,
    ),
    # no reduction: the plain loop, if its accesses are vectorized
    Entry("pointwise", "fusec.schedule.pointwise.family", "Pointwise", requirements.flat),
    # concatenations of more tensors than one kernel takes
    Entry("concat", "fusec.schedule.pointwise.concat", "Concat", requirements.wide_concatenation),
    # no reduction: a tile, if the innermost dims of tensors differ
    Entry("transpose", "fusec.schedule.transpose.family", "Transpose", requirements.flat),
    # reductions whose input is not read again
    Entry(
        "reduction", "fusec.schedule.rows.reduction.family", "Reduction", requirements.memory_bound
    ),
    # rows that are read again
    Entry(
        "inner_persistent",
        "fusec.schedule.rows.inner_persistent.family",
        "InnerPersistent",
        requirements.memory_bound,
    ),
    # columns that are read again
    Entry(
        "outer_persistent",
        "fusec.schedule.rows.outer_persistent",
        "OuterPersistent",
        requirements.memory_bound,
    ),
    # prefix sums along one axis
    Entry("scan", "fusec.schedule.scan.family", "Scans", requirements.one_scan),
    # sorting along one axis
    Entry("sort", "fusec.schedule.sort.family", "Sorts", requirements.one_sort),
    # writes at positions that are data
    Entry("scatter", "fusec.schedule.scatter.family", "Scatters", requirements.any_scatter),
    # rows and columns in one pass
    Entry(
        "inner_outer_persistent",
        "fusec.schedule.rows.inner_outer_persistent.family",
        "InnerOuterPersistent",
        requirements.columns_of_rows,
    ),
)
_HOST = (
    Entry(FAMILY, "fusec.schedule.host.communication", "Communication", requirements.nothing),
    Entry(PLACEMENT, "fusec.schedule.host.communication", "Placement", requirements.nothing),
    Entry(HOST_SCHEDULER, "fusec.schedule.host.operations", "HostOperations", requirements.nothing),
)


def schedulers() -> tuple[Entry, ...]:
    """Return every kernel scheduler; among those with equal predicted cost, the first is chosen."""
    return _KERNELS


def host_schedulers() -> tuple[Entry, ...]:
    """Return the schedulers of host work between kernels; files can name only `host` of these."""
    return _HOST


def families() -> tuple[PlanningScheduler, ...]:
    """Return the schedulers of all entries for kernels, in the same order; all are imported."""
    return tuple(entry.family for entry in _KERNELS)


def find_scheduler(name: str) -> PlanningScheduler:
    """Return the scheduler called `name`."""
    for entry in (*_KERNELS, *_HOST):
        if entry.name == name:
            return entry.family
    raise InternalError(f"unknown scheduler `{name}`")
