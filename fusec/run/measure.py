"""Times on the device: medians of event-timed runs that find the L2 cache cold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

from fusec.hostir.instructions import Launch
from fusec.run.device import Device
from fusec.run.execute import Bound

FLUSH_BYTES = 256 << 20
"""Written before each run: several times the largest L2 cache."""

WARMUP_SECONDS = 0.05
MOST_WARMUPS = 1000


@dataclass(frozen=True)
class KernelTime:
    """The median time of one launch."""

    kernel: str
    segment: str
    seconds: float


@dataclass(frozen=True)
class Timing:
    """The median time of the whole program, and of each launch in runs of their own."""

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
        for _ in range(repeats):
            device.fill(flush, 0, FLUSH_BYTES)
            totals += _time(device, [bound.run])
            device.fill(flush, 0, FLUSH_BYTES)
            times = _time(device, [s.issue for s in bound.steps])
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
    """Return the median time of programs on one device, which run in turn, each with a cold L2.

    In seconds. What changes with time, as clocks do, is the same for all of them.
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


def _warm_up(bound: Bound) -> None:
    """Run until the clocks have risen."""
    began = perf_counter()
    for count in range(MOST_WARMUPS):
        bound.run()
        bound.device.synchronise("warming up")
        if count >= 2 and perf_counter() - began > WARMUP_SECONDS:
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
