"""How long a program is predicted to take whose loops exchange slices beside what they compute."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fusec.hostir.units import Unit, alone, ring, units_of
from fusec.ops.communication import RECEIVE_SLICE, communicates
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
    every = (_loop_time(segmented, unit, times, target) for unit in units if streams > 1)
    loops = tuple(loop for loop in every if loop is not None and loop.seconds < loop.apart)
    saved = sum(loop.apart - loop.seconds for loop in loops)
    return ProgramTime(sum(times) - saved, loops)


def _loop_time(
    segmented: SegmentedFusion, unit: Unit, times: tuple[float, ...], target: Target
) -> LoopTime | None:
    """Return the time of a loop as of a pipeline of two stages; None of one without exchanges.

    Copy engines move slices while SMs compute others, of whose memory bandwidth they take what they
    need. What is received at first is the rank's own slice, a copy; what is sent last is sent while
    nothing is computed. What adds numbers on its way takes SMs: it counts as in turn.
    """
    parts = [segmented.segments[k] for k in unit.segments]
    moving = [k for k, s in zip(unit.segments, parts, strict=True) if _is_moved(s)]
    if unit.parts is None or not moving:
        return None
    count = unit.parts.evaluate(segmented.fusion.hints)
    exchanges = sum(times[k] for k in moving)
    kernels = sum(times[k] for k in unit.segments if k not in moving)
    slowed = kernels + _slower([segmented.segments[k] for k in moving], parts, target)
    alone_at_an_end = sum(_at_an_end(segmented.segments[k], target) for k in moving)
    seconds = max(exchanges + slowed / count, slowed + alone_at_an_end)
    return LoopTime(unit.segments, count, seconds, exchanges + kernels, exchanges, kernels)


def _is_moved(segment: Segment) -> bool:
    """Return whether ranks exchange what a segment is, and nothing is added on the way."""
    node = alone(segment)
    return node is not None and communicates(node) and "reduction" not in node.attributes


def _at_an_end(segment: Segment, target: Target) -> float:
    """Return the seconds of an exchange while which nothing is computed."""
    estimate = segment.estimate
    if estimate is None:
        return 0.0
    if segment.nodes[0].op is RECEIVE_SLICE:
        return estimate.parts(target)["memory"]
    return estimate.seconds(target)


def _slower(moving: list[Segment], parts: list[Segment], target: Target) -> float:
    """Return the seconds that kernels lose to exchanges which read and write memory beside them."""
    kernels = [s for s in parts if s.estimate is not None and s.estimate.kernels]
    moved = sum(s.estimate.bytes for s in moving if s.estimate is not None)
    lost = 0.0
    for segment in kernels:
        estimate = segment.estimate
        assert estimate is not None
        beside = replace(estimate, bytes=estimate.bytes + moved // len(kernels))
        more = beside.seconds(target) - estimate.seconds(target)
        lost += segment.iterations * max(0.0, more)
    return lost


def has_rings(segmented: SegmentedFusion) -> bool:
    """Return whether all loops of a program pass slices around, so that one exchange can be it."""
    loops = [unit for unit in units_of(segmented) if unit.parts is not None]
    around = (any(ring(alone(segmented.segments[k])) for k in unit.segments) for unit in loops)
    return bool(loops) and all(around)
