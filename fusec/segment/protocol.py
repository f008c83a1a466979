"""The interface between segmenter and scheduler: an estimate, or a refusal with its rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeGuard

from fusec.dataclasses import dataclass
from fusec.index.domain import Refusal
from fusec.ir.graph import Fusion
from fusec.passes.rewrite import Rule
from fusec.target import Target

__all__ = [
    "BoundedInParts",
    "BuildTime",
    "Estimate",
    "Proposal",
    "Redefining",
    "Redefinition",
    "Refusal",
    "Scheduler",
    "has_limited_length",
    "is_bounded_in_parts",
    "is_redefining",
    "moves_compulsory_traffic",
]

OVERLAP = 4
"""Exponent of the overlap of resources: 1 is none; the larger, the closer to the slowest resource.

Fitted to 129 segments timed on an H200, 2 to 540 us long: the median error is 4 %.
"""


@dataclass(frozen=True)
class BuildTime:
    """Predicted NVRTC compile time of a kernel, in seconds of one core.

    separate: the sum if every value of the kernel were compiled once, in a kernel of its own.
    """

    seconds: float = 0.0
    separate: float = 0.0


@dataclass(frozen=True)
class Estimate:
    """The predicted cost of a segment at hint sizes.

    bytes: global memory traffic of inputs and outputs; written: the written part of it, if known;
    workspace_bytes: traffic of scratch buffers, half of it writes; l2_bytes: repeated reads that
    hit L2; flops, sfu: ordinary and special-function operations; tensor_flops: on tensor cores;
    seen: the fraction of the GEMMs' work left by masks that are known from positions; efficiency:
    the fraction of the memory bandwidth that the family reaches (`Target.reach`); `exchange`: the
    kind of a collective, in which each rank sends `sent` bytes over its links, to so many `peers`
    at the same time; ctas: blocks in the largest launch; kernels: launches, 0 if the outputs are
    only views or empty, or come from others; waits: seconds in which blocks wait for others; build:
    the compile time, where it grows superlinearly.
    """

    bytes: int
    workspace_bytes: int = 0
    l2_bytes: int = 0
    flops: float = 0
    sfu: float = 0
    tensor_flops: float = 0
    seen: float = 1.0
    efficiency: float = 0.9
    ctas: int = 1
    kernels: int = 1
    written: int | None = None
    waits: float = 0.0
    build: BuildTime = BuildTime()
    exchange: str = ""
    sent: int = 0
    peers: int = 1

    def seconds(self, target: Target, dirty: int | None = None) -> float:
        """Return the predicted seconds on `target`: overlapping resources, plus launches.

        dirty: as for `parts`.
        """
        busy = together(self.parts(target, dirty)) + self.latency(target)
        return busy + self.kernels * target.launch + self.waits

    def latency(self, target: Target) -> float:
        """Return the latency of a collective in seconds if it sends nothing; 0 of a kernel."""
        return target.links[self.exchange].least(self.peers) if self.exchange else 0.0

    @property
    def moved(self) -> int:
        """Return the bytes of global memory traffic, including scratch buffers."""
        return self.bytes + self.workspace_bytes

    @property
    def stored(self) -> float:
        """Return how many bytes of the traffic are written."""
        written = self.bytes / 2 if self.written is None else self.written
        return written + self.workspace_bytes / 2

    def left_in_l2(self, target: Target, dirty: int) -> float:
        """Return the bytes of its results that stay in L2, less those of others that it evicts.

        DRAM traffic is lower by so many bytes, or higher if negative. dirty: as for `parts`.
        """
        return min(self.stored, target.write_back) - min(self.moved, dirty)

    def parts(self, target: Target, dirty: int | None = None) -> Mapping[str, float]:
        """Return the seconds that each resource needs alone.

        One block per SM suffices to fill the GPU; fewer blocks get more than their proportional
        share of the bandwidth. An operation that is not a multiply-add takes as long as one, and
        `flops` counts a multiply-add as two. The bandwidth is that of copies: reading is cheaper
        than writing. The last writes stay in L2 until a later segment evicts them: if the number of
        `dirty` bytes left by others is given, these are charged, and the segment's own remaining
        bytes are not; otherwise all of its writes are charged.
        """
        fill = min(1.0, self.ctas / target.sms) if self.ctas else 1.0
        draw = min(1.0, fill * target.draw)
        moved, stored = self.moved, self.stored
        weighed = moved + (target.write_cost - 1) * (stored - moved / 2)
        if dirty is not None:
            weighed = max(0.0, weighed - self.left_in_l2(target, dirty))
        parts = {
            "memory": weighed / (target.bandwidth * self.efficiency * draw),
            "L2": (moved + self.l2_bytes) / (target.l2_bandwidth * draw),
            "arithmetic": self.flops / (target.flops / 2 * target.issue * fill),
            "special functions": self.sfu / (target.special * fill),
            "tensor cores": self.tensor_flops
            / (target.half_flops * target.cost.matmul.sustained_reach * fill),
        }
        if self.exchange:
            link = target.links[self.exchange]
            parts["links"] = link.moving(self.sent / target.link, self.peers)
        return parts

    def bound_by(self, target: Target, dirty: int | None = None) -> str:
        """Return the resource that takes longest, or `launch` (or `latency`) if that does.

        dirty: as for `parts`.
        """
        parts = self.parts(target, dirty)
        slowest = max(parts, key=lambda name: parts[name])
        if self.exchange:
            return "latency" if parts[slowest] < self.latency(target) else slowest
        return "launch" if parts[slowest] < self.kernels * target.launch else slowest


def together(parts: Mapping[str, float]) -> float:
    """Return the seconds that resources take when they are used at the same time.

    The slowest dominates and the others slow it down: the OVERLAP-th root of the sum of the powers.
    Memory and L2 are one path: only the slower of them counts.
    """
    path = max(parts["memory"], parts["L2"])
    others = [s for name, s in parts.items() if name not in ("memory", "L2")]
    return sum(s**OVERLAP for s in (path, *others)) ** (1 / OVERLAP)


Proposal = Estimate | Refusal


@dataclass(frozen=True)
class Redefinition:
    """An alternative definition of what a segment computes.

    name: what is done; value: the result that is redefined; because: why it may pay; rule: applies
    it to any fusion that contains the nodes, None if the segment's own plan applies it unless
    `Fusion.as_defined` has the name; meant: whether a segment is the one it is proposed for, None
    if any segments will do. whole: whether it pays for segments that are not adjacent to this one,
    so the whole fusion is segmented again. original: the name of the definition that it replaces.
    """

    name: str
    value: str
    because: str
    rule: Rule | None = None
    meant: Callable[[Fusion], bool] | None = None
    whole: bool = False
    original: str = "the written definition"


class Scheduler(Protocol):
    """Entry point of a kernel family: proposals are read-only; plans belong to `fusec.schedule`."""

    @property
    def name(self) -> str:
        """Return the scheduler's name, the one that nvFuser uses."""
        ...

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        """Return the estimate for running `segment` as this scheduler's kernels, or a refusal."""
        ...


# Optional properties of a scheduler. `isinstance` of a protocol takes 20 us in Python 3.11.


def has_limited_length(scheduler: Scheduler) -> bool:
    """Return whether estimates include NVRTC's compile time, at least `segment.length`."""
    return getattr(scheduler, "has_limited_length", False)


def moves_compulsory_traffic(scheduler: Scheduler) -> bool:
    """Return whether no estimate is lower than the bound of `segment.least`."""
    return getattr(scheduler, "moves_compulsory_traffic", False)


class BoundedInParts(Scheduler, Protocol):
    """A scheduler with a lower bound on the time of an accepted segment in several kernels."""

    def least_in_parts(self, segment: Fusion, target: Target) -> float:
        """Return seconds below which no two or more kernels compute a segment; 0.0 if unknown."""
        ...


def is_bounded_in_parts(scheduler: object) -> TypeGuard[BoundedInParts]:
    """Return whether a scheduler is `BoundedInParts`."""
    return hasattr(scheduler, "least_in_parts")


class Redefining(Scheduler, Protocol):
    """A scheduler that offers alternative definitions of segments it has accepted."""

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> Sequence[Redefinition]:
        """Return the definitions worth trying for a segment of `fusion`, most promising first."""
        ...


def is_redefining(scheduler: object) -> TypeGuard[Redefining]:
    """Return whether a scheduler is `Redefining`."""
    return hasattr(scheduler, "redefinitions")
