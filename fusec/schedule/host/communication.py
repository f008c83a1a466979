"""The schedulers of host operations between kernels: collectives, and placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fusec.dataclasses import dataclass
from fusec.ir.graph import Fusion
from fusec.ops.communication import (
    ALL_GATHER,
    BROADCAST,
    FAMILY,
    PEER_VIEWS,
    PLACEMENT,
    RECEIVE_SLICE,
    SEND_SLICE,
    communicates,
    places,
)
from fusec.schedule.family import Family
from fusec.schedule.host.pushed_sums import PUSHED_SLICES, PUSHED_SUM, pushed_kind, pushes_sum
from fusec.schedule.plan import Plan
from fusec.schedule.problem import Problem
from fusec.schedule.redefinitions import reads_of_peers
from fusec.schedule.space import Parameters
from fusec.segment.protocol import Estimate, Redefinition, Refusal
from fusec.segment.segmented import tensor_bytes
from fusec.target import Target


@dataclass(frozen=True)
class Exchanged(Parameters):
    """A collective among the ranks along an axis of the mesh.

    kind: the operation's name. reduction: of the kinds that reduce, `sum`, `prod`, `max`, `min`.
    """

    kind: str
    axis: str
    ranks: int
    reduction: str = ""


@dataclass(frozen=True)
class Placed(Parameters):
    """The position of a tensor within a larger one: the index of its equal part along a dim.

    kind: the operation's name. parts: a size, as text. axis: the mesh axis whose rank index is the
    index of the part; empty if it is the loop index. copied: whether the part, which is dense then,
    has its own memory, because parts of the larger tensor are not aligned as kernels need.
    """

    kind: str
    dim: int
    parts: str
    axis: str = ""
    copied: bool = False


ExchangePlan = Plan[Problem, Exchanged]
PlacementPlan = Plan[Problem, Placed]


def bytes_sent(kind: str, ranks: int, given: int) -> int:
    """Return the bytes that a rank sends in a collective if each rank contributes `given` bytes.

    Counted for rings and direct sends; for a slice in a loop, the mean over the iterations, where
    in one of them a rank is its own partner.
    """
    others = ranks - 1
    if kind in ("all_gather", PEER_VIEWS.name, PUSHED_SUM):
        return others * given
    return (2 if kind in ("all_reduce", PUSHED_SLICES) else 1) * others * given // ranks


class Communication(Family[Problem, Exchanged, ExchangePlan]):
    """Accepts a single collective."""

    name = FAMILY
    templates: ClassVar = {}
    reach = ()
    vocabulary = frozenset[str]()

    def problem(self, segment: Fusion) -> Problem | Refusal:
        """Return the collective, or why the segment is not one."""
        if len(segment.nodes) == 1 and communicates(segment.nodes[0]):
            return Problem(segment, segment)
        return Refusal("operation", "it is not a single collective")

    def default_parameters(self, problem: Problem, target: Target) -> Exchanged:
        """Return the parameters that the operation determines: there is nothing to choose."""
        node = problem.segment.nodes[0]
        given = node.attributes
        reduction = given.get("reduction", "")
        return Exchanged(node.op.name, given["axis"], given["ranks"], reduction)

    def plan(self, problem: Problem, parameters: Exchanged, target: Target) -> ExchangePlan:
        """Return a plan without kernels."""
        return Plan(self.name, problem.segment, (), parameters, problem=problem)

    def estimate(self, plan: ExchangePlan, target: Target) -> Estimate:
        """Return the estimate: the bytes that a rank sends, and the traffic of its own memory."""
        node, hints = plan.fusion.nodes[0], plan.fusion.hints
        given, made = tensor_bytes(node.inputs[0], hints), tensor_bytes(node.output, hints)
        kind, ranks = plan.parameters.kind, plan.parameters.ranks
        if kind == RECEIVE_SLICE.name:
            given = made  # a slice of the tensor
        pushed = kind == "all_reduce" and pushes_sum(
            plan.parameters.reduction, node.output.dtype, given, ranks
        )
        if pushed:
            kind = pushed_kind(given, ranks)
        receivers = ranks - 1
        if kind == BROADCAST.name:
            # The root copies to each, as in an all-gather; others have nothing to do.
            receivers = min(receivers, len(node.attributes["to"]))
            kind, sent = ALL_GATHER.name, receivers * given
        else:
            sent = bytes_sent(kind, ranks, given)
        if kind == PEER_VIEWS.name:
            # Its bytes cross the links while kernels read them, and those kernels account for them.
            given = made = 0
        elif pushed:
            given += 2 * sent  # as many bytes arrive as are sent, and are read
        elif kind == SEND_SLICE.name:
            made = given  # of the blocks that it returns, one arrives in each iteration
        return Estimate(
            bytes=given + made,
            written=made,
            ctas=0,
            kernels=int(pushed),
            exchange=kind,
            sent=sent,
            peers=1 if kind in (RECEIVE_SLICE.name, SEND_SLICE.name) else receivers,
        )

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> Sequence[Redefinition]:
        """Return the all-reduce as a sum of the ranks' tensors, read from peer memory."""
        return reads_of_peers(segment.nodes[0], fusion)


class Placement(Family[Problem, Placed, PlacementPlan]):
    """Accepts a single operation that places a tensor within a larger one."""

    name = PLACEMENT
    templates: ClassVar = {}
    reach = ()
    vocabulary = frozenset[str]()

    def problem(self, segment: Fusion) -> Problem | Refusal:
        """Return the operation, or why the segment is not one."""
        if len(segment.nodes) == 1 and places(segment.nodes[0]):
            return Problem(segment, segment)
        return Refusal("operation", "it does not only define the placement of a tensor")

    def default_parameters(self, problem: Problem, target: Target) -> Placed:
        """Return the parameters that the operation determines: there is nothing to choose."""
        node = problem.segment.nodes[0]
        given = node.attributes
        copied = not problem.segment.effects.shares(node)
        parts = str(given["parts"])
        return Placed(node.op.name, given["dim"], parts, given.get("axis", ""), copied)

    def plan(self, problem: Problem, parameters: Placed, target: Target) -> PlacementPlan:
        """Return a plan without kernels."""
        return Plan(self.name, problem.segment, (), parameters, problem=problem)

    def estimate(self, plan: PlacementPlan, target: Target) -> Estimate:
        """Return an empty estimate if only an address changes, else the estimate of a copy."""
        if not plan.parameters.copied:
            return Estimate(bytes=0, ctas=0, kernels=0)
        node, hints = plan.fusion.nodes[0], plan.fusion.hints
        part = min(tensor_bytes(v, hints) for v in (node.inputs[0], node.output))
        return Estimate(bytes=2 * part, written=part, ctas=0)
