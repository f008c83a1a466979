"""Times on the device: medians of event-timed runs that start with a cold L2 cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

from fusec.dataclasses import dataclass
from fusec.hostir.instructions import Launch
from fusec.run.bound import Bound, Step
from fusec.run.device import Device
from fusec.run.operations import issue_all
from fusec.run.trace import label_of, nvtx_range

FLUSH_BYTES = 256 << 20
"""Bytes written before each run: several times the largest L2 cache."""

WARMUP_SECONDS = 0.05
MOST_WARMUPS = 1000
RANKS_WARMUPS = 20


@dataclass(frozen=True)
class KernelTime:
    """The median time of one launch."""

    kernel: str
    segment: str
    seconds: float


@dataclass(frozen=True)
class Timing:
    """The median time of the whole program, and of each launch in separate runs."""

    seconds: float
    kernels: tuple[KernelTime, ...]
    repeats: int


def measure(bound: Bound, repeats: int = 20) -> Timing:
    """Time a bound program; its outputs and in-place inputs change."""
    device = bound.device
    flush = device.allocate(FLUSH_BYTES, "flushing the L2 cache")
    try:
        _warm_up(bound)
        totals: list[float] = []
        launches = [s for s in bound.steps if isinstance(s.instruction, Launch)]
        parts: list[list[float]] = [[] for _ in launches]
        times_of = _on_streams if bound.streams.several else _one_by_one
        for _ in range(repeats):
            device.fill(flush, 0, FLUSH_BYTES)
            totals += _time(device, [bound.run])
            device.fill(flush, 0, FLUSH_BYTES)
            times = times_of(bound)
            marked = [
                t
                for s, t in zip(bound.steps, times, strict=True)
                if isinstance(s.instruction, Launch)
            ]
            for part, seconds in zip(parts, marked, strict=True):
                part.append(seconds)
    finally:
        device.free(flush)
    kernels = list[KernelTime]()
    for step, part in zip(launches, parts, strict=True):
        assert isinstance(step.instruction, Launch)
        kernels.append(KernelTime(step.instruction.kernel, step.instruction.segment, median(part)))
    return Timing(median(totals), tuple(kernels), repeats)


def in_turn(bounds: Sequence[Bound], repeats: int) -> list[float]:
    """Return the median time of programs on one device, run round-robin, each with a cold L2.

    In seconds. Drift, as of clocks, affects all of them alike.
    """
    device = bounds[0].device
    flush = device.allocate(FLUSH_BYTES, "flushing the L2 cache")
    try:
        _warm_up(bounds[0])
        totals: list[list[float]] = [[] for _ in bounds]
        for _ in range(repeats):
            for bound, total in zip(bounds, totals, strict=True):
                device.fill(flush, 0, FLUSH_BYTES)
                total += _time(device, [bound.run])
    finally:
        device.free(flush)
    return [median(total) for total in totals]


@dataclass(frozen=True)
class Timed:
    """A step of a program, with its start and end in seconds of `time.perf_counter`."""

    step: Step
    begin: float
    end: float


def timeline(bound: Bound) -> list[Timed]:
    """Run a program once and return when each step ran on its stream."""
    device, streams = bound.device, bound.streams
    count = 2 * len(bound.steps) + 1
    events: list[Any] = [device.call("cuEventCreate", 0) for _ in range(count)]
    try:
        device.synchronise("before timing")
        zero = perf_counter()
        device.call("cuEventRecord", events[0], device.stream)
        issue_all(device, streams.start())
        for step, begin, end in zip(bound.steps, events[1::2], events[2::2], strict=True):
            handle = streams.handles[step.of.stream]
            label = label_of(step.instruction)
            with nvtx_range(label[0] if label else "order"):
                issue_all(device, streams.before(step.of))
                device.call("cuEventRecord", begin, handle)
                step.issue()
                device.call("cuEventRecord", end, handle)
                issue_all(device, streams.record_after(step.number, step.of))
        issue_all(device, streams.end())
        device.synchronise("timing the kernels")
        at = [zero + float(device.call("cuEventElapsedTime", events[0], e)) / 1e3 for e in events]
        return [
            Timed(step, begin, end)
            for step, begin, end in zip(bound.steps, at[1::2], at[2::2], strict=True)
        ]
    finally:
        for event in events:
            device.driver.cuEventDestroy(event)


def _one_by_one(bound: Bound) -> list[float]:
    return _time(bound.device, [s.issue for s in bound.steps])


def _on_streams(bound: Bound) -> list[float]:
    return [t.end - t.begin for t in timeline(bound)]


def _warm_up(bound: Bound) -> None:
    """Run until the clocks have ramped up; with other ranks, a number of runs that all share."""
    began = perf_counter()
    for count in range(MOST_WARMUPS if bound.member is None else RANKS_WARMUPS):
        bound.run()
        bound.device.synchronise("warming up")
        if bound.member is None and count >= 2 and perf_counter() - began > WARMUP_SECONDS:
            break


def _time(device: Device, issues: Sequence[Callable[[], None]]) -> list[float]:
    """Return the seconds that each issued piece of work took."""
    events: list[Any] = [device.call("cuEventCreate", 0) for _ in range(len(issues) + 1)]
    try:
        device.call("cuEventRecord", events[0], device.stream)
        for issue, event in zip(issues, events[1:], strict=True):
            issue()
            device.call("cuEventRecord", event, device.stream)
        device.call("cuEventSynchronize", events[-1], what="timing the kernels")
        return [float(device.call("cuEventElapsedTime", a, b)) / 1e3 for a, b in pairwise(events)]
    finally:
        for event in events:
            device.driver.cuEventDestroy(event)
