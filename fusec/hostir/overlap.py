"""Predicted time of a program whose loops overlap communication with kernels."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.hostir.launch_groups import LaunchGroup, alone, launch_groups_of, ring
from fusec.hostir.pipeline import Stage, pipeline_seconds
from fusec.ops.communication import communicates
from fusec.segment.segmented import Segment, SegmentedFusion
from fusec.target import Target


@dataclass(frozen=True)
class LoopTime:
    """Predicted seconds of a loop over slices, by the numbers of its segments.

    seconds: with collectives that overlap kernels; separate: without overlap; `exchanges`, kernels:
    of each alone, in all iterations.
    """

    segments: tuple[int, ...]
    iterations: int
    seconds: float
    separate: float
    exchanges: float
    kernels: float


@dataclass(frozen=True)
class ProgramTime:
    """Predicted seconds of a program, and of its loops that overlap communication with kernels.

    seconds: on the GPU, as of a replay; host: time of the host to issue its loops.
    """

    seconds: float
    loops: tuple[LoopTime, ...]
    host: float = 0.0

    @property
    def call(self) -> float:
        """Return the predicted seconds per call of many, bound by the GPU or the host."""
        return max(self.seconds, self.host)


def program_time(segmented: SegmentedFusion, target: Target, streams: int) -> ProgramTime:
    """Return the predicted time of a program whose loops run round-robin on `streams` streams."""
    times = segmented.times(target)
    groups = (
        launch_groups_of(segmented) if any(s.iterations > 1 for s in segmented.segments) else ()
    )
    every = (
        _loop_time(segmented, group, times, target, streams) for group in groups if streams > 1
    )
    found = [loop for loop in every if loop is not None]
    saved = sum(loop.separate - loop.seconds for loop in found)
    slices = sum(loop.iterations for loop in found)
    host = target.host_call + slices * target.host_slice if found else 0.0
    loops = tuple(loop for loop in found if loop.seconds < loop.separate)
    return ProgramTime(sum(times) - saved, loops, host)


def _loop_time(
    segmented: SegmentedFusion,
    group: LaunchGroup,
    times: tuple[float, ...],
    target: Target,
    streams: int,
) -> LoopTime | None:
    """Return the time of a loop that overlaps communication with kernels; None for others.

    Copy engines move slices while SMs compute others. Collectives that reduce need SMs: they count
    as serial.
    """
    parts = [segmented.segments[k] for k in group.segments]
    moving = [k for k, s in zip(group.segments, parts, strict=True) if _is_moved(s)]
    if group.parts is None or not moving:
        return None
    count = group.parts.evaluate(segmented.fusion.hints)
    exchanges = sum(times[k] for k in moving)
    kernels = sum(times[k] for k in group.segments if k not in moving)
    stages = [Stage.of(segmented.segments[k], target) for k in moving]
    slowed = kernels + sum(s.slows for s in stages) * count
    launches = sum(s.estimate.kernels for s in parts if s.estimate is not None)
    seconds = pipeline_seconds(count, slowed / count, launches * target.launch, stages, streams)
    return LoopTime(group.segments, count, seconds, exchanges + kernels, exchanges, kernels)


def _is_moved(segment: Segment) -> bool:
    """Return whether a segment is communication without a reduction."""
    node = alone(segment)
    return node is not None and communicates(node) and "reduction" not in node.attributes


def has_rings(segmented: SegmentedFusion) -> bool:
    """Return whether all loops of a program are rings, so that one collective can replace each."""
    loops = [group for group in launch_groups_of(segmented) if group.parts is not None]
    around = (any(ring(alone(segmented.segments[k])) for k in group.segments) for group in loops)
    return bool(loops) and all(around)
