"""Schedulers of the simplest kind, for tests of the segmenter: a rule and a price from bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fusec import target
from fusec.ir.graph import Fusion, Node
from fusec.schedule.no_op import NoOp
from fusec.segment.protocol import Estimate, Proposal, Refusal
from fusec.segment.traffic import traffic
from fusec.target import Target

H200 = target.find("sm_90a")


@dataclass
class FakeScheduler:
    """Accepts what `because` finds no reason against; counts how often it is asked."""

    name: str
    because: Callable[[Fusion], str | None]
    efficiency: float = 0.9
    asked: list[Fusion] = field(default_factory=list)

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        self.asked.append(segment)
        reason = self.because(segment)
        if reason is not None:
            return Refusal("fake", reason)
        return Estimate(bytes=traffic(segment), ctas=10_000, efficiency=self.efficiency)


def family(fusion: Fusion, name: str) -> list[Node]:
    return [n for n in fusion.nodes if n.op.family == name]


def only_injective(segment: Fusion) -> str | None:
    for node in segment.nodes:
        if node.op.family in ("reduction", "contraction"):
            return f"`{node.op.name}` is not elementwise"
    return None


def one_signature(segment: Fusion) -> str | None:
    """Refuse contractions, and reductions over different dims."""
    if family(segment, "contraction"):
        return "a contraction"
    dims = {n.attributes["dims"] for n in family(segment, "reduction")}
    return None if len(dims) == 1 else f"{len(dims)} reduction signatures"


def one_contraction(segment: Fusion) -> str | None:
    if len(family(segment, "contraction")) != 1 or family(segment, "reduction"):
        return "needs exactly one contraction and no reduction"
    return None


def usual() -> Sequence[FakeScheduler | NoOp]:
    """Return fakes that split a fusion about as nvFuser would."""
    return (
        NoOp(),
        FakeScheduler("matmul", one_contraction),
        FakeScheduler("pointwise", only_injective),
        FakeScheduler("reduction", one_signature),
    )


def everything() -> FakeScheduler:
    return FakeScheduler("everything", lambda segment: None)
