"""What the segmenter asks of a scheduler: a price, or a refusal with its rule."""

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
"""How well kernels overlap what they wait for: 1 not at all, the more, the nearer to the slowest.

By 129 segments timed on an H200, from 2 to 540 us, of which this leaves a median error of 4 %.
"""


@dataclass(frozen=True)
class BuildTime:
    """Seconds of a core that NVRTC is predicted to take for a kernel.

    separate: what it would take if every value of the kernel were computed once, beside no others.
    """

    seconds: float = 0.0
    separate: float = 0.0


@dataclass(frozen=True)
class Estimate:
    """The price of a segment at hint sizes.

    bytes: global memory traffic of inputs and outputs; written: those of them that are written,
    where it is known; workspace_bytes: of scratch buffers, of which half are written; l2_bytes: of
    what is read again and found in L2; flops, sfu: ordinary and special-function
    operations; tensor_flops: on tensor cores; seen: the part of the products that masks leave that
    are known from positions; efficiency: the part of the memory bandwidth that the
    family reaches (`Target.reach`); exchange: the kind of an exchange between ranks, in which each
    sends `sent` bytes over its links, to so many `peers` at the same time; ctas: blocks in the
    largest launch; kernels: launches, 0 where the outputs are only views or empty, or come from
    others; waits: seconds in which blocks wait for others; build: what NVRTC takes, where that
    grows faster than what is computed.
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
        """Return the predicted time on `target`: of its resources together, plus launches.

        dirty: as for `parts`.
        """
        busy = together(self.parts(target, dirty)) + self.latency(target)
        return busy + self.kernels * target.launch + self.waits

    def latency(self, target: Target) -> float:
        """Return the seconds that an exchange takes however little is sent; 0 of a kernel."""
        return target.links[self.exchange].least(self.peers) if self.exchange else 0.0

    @property
    def moved(self) -> int:
        """Return the bytes of global memory that are moved, scratch buffers among them."""
        return self.bytes + self.workspace_bytes

    @property
    def stored(self) -> float:
        """Return how many of the moved bytes are written."""
        written = self.bytes / 2 if self.written is None else self.written
        return written + self.workspace_bytes / 2

    def left_in_l2(self, target: Target, dirty: int) -> float:
        """Return the bytes of its results that it leaves in L2, less those of others that leave it.

        Memory sees so many bytes less than are moved, or more where that is negative. dirty: as for
        `parts`.
        """
        return min(self.stored, target.write_back) - min(self.moved, dirty)

    def parts(self, target: Target, dirty: int | None = None) -> Mapping[str, float]:
        """Return the seconds that each resource needs by itself.

        Blocks fill the GPU from one per SM on; of fewer, each draws more than its share of the
        bandwidth. An operation that is no multiply-add takes as long
        as one, of which `flops` counts two. The bandwidth is of copies: reading is cheaper than
        writing. What is written last stays in L2, and whoever needs its place writes it back: where
        it is known how many bytes of others are `dirty`, these are charged, and what it leaves is
        not; else all that it writes is.
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
        """Return the resource that takes longest, or `launch` (or `latency`) where that does.

        dirty: as for `parts`.
        """
        parts = self.parts(target, dirty)
        slowest = max(parts, key=lambda name: parts[name])
        if self.exchange:
            return "latency" if parts[slowest] < self.latency(target) else slowest
        return "launch" if parts[slowest] < self.kernels * target.launch else slowest


def together(parts: Mapping[str, float]) -> float:
    """Return the seconds that resources take which are used at the same time.

    The slowest decides, and the others hinder it: as the OVERLAP-th root of the sum of the powers.
    Memory and L2 are one path, of which only the slower part counts.
    """
    path = max(parts["memory"], parts["L2"])
    others = [s for name, s in parts.items() if name not in ("memory", "L2")]
    return sum(s**OVERLAP for s in (path, *others)) ** (1 / OVERLAP)


Proposal = Estimate | Refusal


@dataclass(frozen=True)
class Redefinition:
    """Another definition of what a segment computes.

    name: what is done; value: the result that is redefined; because: why it may pay; rule: what
    does it to any fusion that holds the nodes, None where the segment's own plan does it unless
    `Fusion.as_defined` has the name; meant: whether a segment is what it is offered for, None where
    any segments will do. whole: whether it pays for segments that are not beside this one, so that
    the whole fusion is segmented again. original: what the definition is called that it replaces.
    """

    name: str
    value: str
    because: str
    rule: Rule | None = None
    meant: Callable[[Fusion], bool] | None = None
    whole: bool = False
    original: str = "the written definition"


class Scheduler(Protocol):
    """A kernel family's entry: proposals only read; plans are the affair of `fusec.schedule`."""

    @property
    def name(self) -> str:
        """Return the scheduler's name, as nvFuser calls it."""
        ...

    def propose(self, segment: Fusion, target: Target) -> Proposal:
        """Return the price of running `segment` as this scheduler's kernels, or a refusal."""
        ...


# What a scheduler may state besides. `isinstance` of a protocol takes 20 us in Python 3.11.


def has_limited_length(scheduler: Scheduler) -> bool:
    """Return whether estimates have what NVRTC takes, which is at least what `length` says."""
    return getattr(scheduler, "has_limited_length", False)


def moves_compulsory_traffic(scheduler: Scheduler) -> bool:
    """Return whether no estimate takes less than `least` says."""
    return getattr(scheduler, "moves_compulsory_traffic", False)


class BoundedInParts(Scheduler, Protocol):
    """A scheduler that knows what segments which it has accepted take at least in parts."""

    def least_in_parts(self, segment: Fusion, target: Target) -> float:
        """Return seconds below which no two or more kernels compute a segment; 0.0 if unknown."""
        ...


def is_bounded_in_parts(scheduler: object) -> TypeGuard[BoundedInParts]:
    """Return whether a scheduler is `BoundedInParts`."""
    return hasattr(scheduler, "least_in_parts")


class Redefining(Scheduler, Protocol):
    """A scheduler that knows other definitions of what it has accepted."""

    def redefinitions(
        self, segment: Fusion, fusion: Fusion, target: Target
    ) -> Sequence[Redefinition]:
        """Return the definitions worth trying for a segment of `fusion`, dearest hope first."""
        ...


def is_redefining(scheduler: object) -> TypeGuard[Redefining]:
    """Return whether a scheduler is `Redefining`."""
    return hasattr(scheduler, "redefinitions")
