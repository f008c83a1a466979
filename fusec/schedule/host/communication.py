"""The schedulers of what the host does between kernels: collectives, and placement."""

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
    """An exchange between the ranks along an axis of the mesh.

    kind: the operation's name. reduction: of the kinds that reduce, `sum`, `prod`, `max`, `min`.
    """

    kind: str
    axis: str
    ranks: int
    reduction: str = ""


@dataclass(frozen=True)
class Placed(Parameters):
    """Where a tensor lies in a larger one: which of so many equal parts of a dim it is.

    kind: the operation's name. parts: a size, as text. axis: of the mesh, along which the rank's
    place is the number of the part; empty where the loop's index is. copied: whether the part,
    which is dense then, has memory of its own, since parts of the larger tensor do not begin as
    kernels need it.
    """

    kind: str
    dim: int
    parts: str
    axis: str = ""
    copied: bool = False


ExchangePlan = Plan[Problem, Exchanged]
PlacementPlan = Plan[Problem, Placed]


def bytes_sent(kind: str, ranks: int, given: int) -> int:
    """Return the bytes that a rank sends to others, in an exchange to which each gives so many.

    As rings and direct exchanges do; of a slice in a loop, in the mean of the iterations, in one of
    which a rank is its own partner.
    """
    others = ranks - 1
    if kind in ("all_gather", PEER_VIEWS.name, PUSHED_SUM):
        return others * given
    return (2 if kind in ("all_reduce", PUSHED_SLICES) else 1) * others * given // ranks


class Communication(Family[Problem, Exchanged, ExchangePlan]):
    """Accepts one exchange between ranks, alone."""

    name = FAMILY
    templates: ClassVar = {}
    reach = ()
    vocabulary = frozenset[str]()

    def problem(self, segment: Fusion) -> Problem | Refusal:
        """Return the exchange, or why the segment is none."""
        if len(segment.nodes) == 1 and communicates(segment.nodes[0]):
            return Problem(segment, segment)
        return Refusal("operation", "it is not a single collective")

    def default_parameters(self, problem: Problem, target: Target) -> Exchanged:
        """Return what the operation says: there is nothing to choose."""
        node = problem.segment.nodes[0]
        given = node.attributes
        reduction = given.get("reduction", "")
        return Exchanged(node.op.name, given["axis"], given["ranks"], reduction)

    def plan(self, problem: Problem, parameters: Exchanged, target: Target) -> ExchangePlan:
        """Return a plan without kernels."""
        return Plan(self.name, problem.segment, (), parameters, problem=problem)

    def estimate(self, plan: ExchangePlan, target: Target) -> Estimate:
        """Return the bytes that a rank sends and what its memory sees of them."""
        node, hints = plan.fusion.nodes[0], plan.fusion.hints
        given, made = tensor_bytes(node.inputs[0], hints), tensor_bytes(node.output, hints)
        kind, ranks = plan.parameters.kind, plan.parameters.ranks
        if kind == RECEIVE_SLICE.name:
            given = made  # a piece of the tensor
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
            # Its bytes go over the links while kernels read them, which have a price of their own.
            given = made = 0
        elif pushed:
            given += 2 * sent  # as much arrives as is sent, and is read
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
        """Return the sum of what the ranks have, each read where it lies, for an all-reduce."""
        return reads_of_peers(segment.nodes[0], fusion)


class Placement(Family[Problem, Placed, PlacementPlan]):
    """Accepts one operation that says where a tensor lies in a larger one, alone."""

    name = PLACEMENT
    templates: ClassVar = {}
    reach = ()
    vocabulary = frozenset[str]()

    def problem(self, segment: Fusion) -> Problem | Refusal:
        """Return the operation, or why the segment is none."""
        if len(segment.nodes) == 1 and places(segment.nodes[0]):
            return Problem(segment, segment)
        return Refusal("operation", "it does not only define the placement of a tensor")

    def default_parameters(self, problem: Problem, target: Target) -> Placed:
        """Return what the operation says: there is nothing to choose."""
        node = problem.segment.nodes[0]
        given = node.attributes
        copied = not problem.segment.effects.shares(node)
        parts = str(given["parts"])
        return Placed(node.op.name, given["dim"], parts, given.get("axis", ""), copied)

    def plan(self, problem: Problem, parameters: Placed, target: Target) -> PlacementPlan:
        """Return a plan without kernels."""
        return Plan(self.name, problem.segment, (), parameters, problem=problem)

    def estimate(self, plan: PlacementPlan, target: Target) -> Estimate:
        """Return a price of nothing, where an address is all that changes; else that of a copy."""
        if not plan.parameters.copied:
            return Estimate(bytes=0, ctas=0, kernels=0)
        node, hints = plan.fusion.nodes[0], plan.fusion.hints
        part = min(tensor_bytes(v, hints) for v in (node.inputs[0], node.output))
        return Estimate(bytes=2 * part, written=part, ctas=0)
