"""How long a program is predicted to take whose loops exchange slices beside what they compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusec.hostir.units import Unit, alone, ring, units_of
from fusec.ops.communication import SEND_SLICE, communicates
from fusec.segment.segmented import Segment, SegmentedFusion
from fusec.target import Target


@dataclass(frozen=True)
class LoopTime:
    """Predicted seconds of a loop over slices, by the numbers of its segments.

    seconds: with exchanges beside kernels; apart: one after the other; exchanges, kernels: of these
    by themselves, of all iterations.
    """

    segments: tuple[int, ...]
    iterations: int
    seconds: float
    apart: float
    exchanges: float
    kernels: float


@dataclass(frozen=True)
class ProgramTime:
    """Predicted seconds of a program, and of those loops in it whose exchanges are hidden."""

    seconds: float
    loops: tuple[LoopTime, ...]


def program_time(segmented: SegmentedFusion, target: Target, streams: int) -> ProgramTime:
    """Return the predicted time of a program whose loops run on so many streams in turn."""
    times = segmented.times(target)
    units = units_of(segmented) if any(s.iterations > 1 for s in segmented.segments) else ()
    every = (_loop_time(segmented, unit, times, target, streams) for unit in units if streams > 1)
    loops = tuple(loop for loop in every if loop is not None and loop.seconds < loop.apart)
    saved = sum(loop.apart - loop.seconds for loop in loops)
    return ProgramTime(sum(times) - saved, loops)


def _loop_time(
    segmented: SegmentedFusion,
    unit: Unit,
    times: tuple[float, ...],
    target: Target,
    streams: int,
) -> LoopTime | None:
    """Return the time of a loop whose exchanges run beside kernels; None of one without.

    Copy engines move slices while SMs compute others. What adds numbers on its way takes SMs: it
    counts as in turn.
    """
    parts = [segmented.segments[k] for k in unit.segments]
    moving = [k for k, s in zip(unit.segments, parts, strict=True) if _is_moved(s)]
    if unit.parts is None or not moving:
        return None
    count = unit.parts.evaluate(segmented.fusion.hints)
    exchanges = sum(times[k] for k in moving)
    kernels = sum(times[k] for k in unit.segments if k not in moving)
    stages = [_Stage.of(segmented.segments[k], target) for k in moving]
    slowed = kernels + sum(s.slows for s in stages) * count
    launches = sum(s.estimate.kernels for s in parts if s.estimate is not None)
    seconds = _pipeline(count, slowed / count, launches * target.launch, stages, streams)
    return LoopTime(unit.segments, count, seconds, exchanges + kernels, exchanges, kernels)


@dataclass(frozen=True)
class _Stage:
    """An exchange that stands in each iteration of a loop.

    seconds: of the links, for one slice; latency: of the flags around its copy, which a stream
    waits for one after the other. slows: the seconds that kernels lose in an iteration to what it
    reads and writes. ranks, pieces: of an exchange with one other rank at a time, as its operation
    has them; 1 of others.
    """

    seconds: float
    latency: float
    slows: float
    sends: bool
    ranks: int = 1
    pieces: int = 1

    @classmethod
    def of(cls, segment: Segment, target: Target) -> _Stage:
        """Return what a segment is in its loop."""
        node, estimate = segment.nodes[0], segment.estimate
        assert estimate is not None
        latency = estimate.latency(target)
        seconds = estimate.seconds(target) - latency
        slows = target.contention * estimate.bytes / target.bandwidth
        if ring(node) is None:
            return cls(seconds, latency, slows, sends=False)
        ranks, pieces = node.attributes["ranks"], node.attributes["pieces"]
        # The estimate is the mean of all iterations; with its own slice a rank moves nothing.
        others = ranks / (ranks - 1) if ranks > 1 else 0.0
        sends = node.op is SEND_SLICE
        return cls(seconds * others, latency, slows, sends, ranks, pieces)

    def is_own(self, index: int, *, first: bool) -> bool:
        """Return whether a rank's own slice is an iteration's; first: it begins with those."""
        at = index // self.pieces
        return self.ranks > 1 and at == (0 if first else self.ranks - 1)

    def arrival(self, index: int, begun: float) -> float:
        """Return when the slice is there that an iteration has begun to receive.

        Other ranks' pieces come together, each rank's one after the other.
        """
        if self.ranks == 1:
            return max(begun, index * self.seconds) + self.seconds + self.latency
        before = index % self.pieces + 1
        together = before * (self.latency + (self.ranks - 1) * self.seconds)
        return max(begun + self.latency + self.seconds, together)


def _pipeline(
    count: int, kernel: float, launch: float, stages: Sequence[_Stage], streams: int
) -> float:
    """Return when the last of `count` iterations is done.

    kernel: seconds that an iteration computes, `launch` of them before its first block runs, which
    kernels of other streams hide. Ranks begin with their own slices where they receive some, and
    end with them where they only send. An iteration begins when the last one on its stream is over.
    """
    receives = any(not s.sends for s in stages)
    over, sent, ends = 0.0, 0.0, list[float]()
    for index in range(count):
        begun = ends[index - streams] if index >= streams else 0.0
        arrived = max(
            (
                s.arrival(index, begun)
                for s in stages
                if not s.sends and not s.is_own(index, first=True)
            ),
            default=begun,
        )
        over = max(over + kernel - launch, arrived + kernel)
        ends.append(over)
        for stage in stages:
            if stage.sends and not stage.is_own(index, first=receives):
                ends[-1] = sent = max(sent, over) + stage.latency + stage.seconds
    return max(ends)


def _is_moved(segment: Segment) -> bool:
    """Return whether ranks exchange what a segment is, and nothing is added on the way."""
    node = alone(segment)
    return node is not None and communicates(node) and "reduction" not in node.attributes


def has_rings(segmented: SegmentedFusion) -> bool:
    """Return whether all loops of a program pass slices around, so that one exchange can be it."""
    loops = [unit for unit in units_of(segmented) if unit.parts is not None]
    around = (any(ring(alone(segmented.segments[k])) for k in unit.segments) for unit in loops)
    return bool(loops) and all(around)
