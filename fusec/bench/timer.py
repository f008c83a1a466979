"""The timing method of all benchmarks: CUDA events around work that starts with a cold L2 cache."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from types import TracebackType
from typing import Any

from fusec.dataclasses import dataclass
from fusec.run.device import Device
from fusec.run.launch import PackedArguments

FLUSH_BYTES = 256 << 20
"""Bytes written before each run: several times the largest L2 cache."""
REPEATS = 25
WARM_UP = 0.04
"""Seconds for which a contender runs before it is timed, so that clocks ramp up."""
LEAST_WARM_UPS = 3
"""Minimum warm-up runs: the first ones may load machine code or allocate."""
LEAST_HOLD = 50e-6
HOLD = 2.0
"""How long the GPU is held while the host issues a run, as a multiple of the issue time."""


@dataclass(frozen=True)
class Contender:
    """Something to time; `issue` puts its work on the device's stream, without waiting."""

    name: str
    issue: Callable[[], None]


@dataclass(frozen=True)
class Times:
    """The seconds of each run of a contender; issue: host time to issue one."""

    name: str
    runs: tuple[float, ...]
    issue: float

    @property
    def seconds(self) -> float:
        """Return the median."""
        return median(self.runs)


class Timer:
    """Times contenders on a device's stream; `hold` is the kernel of templates/bench/hold.cu.

    A run: a kernel that waits until the host has issued the rest, a write of 256 MB that flushes
    L2, an event, the work, an event.
    """

    def __init__(self, device: Device, hold: Any) -> None:
        """Allocate the buffer that is written to flush L2."""
        self.device, self._hold = device, hold
        self._flush = device.allocate(FLUSH_BYTES, "flushing the L2 cache")
        self._events = [device.call("cuEventCreate", 0) for _ in range(2)]

    def __enter__(self) -> Timer:
        """Return the timer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release all resources."""
        self.device.free(self._flush)
        for event in self._events:
            self.device.call("cuEventDestroy", event)

    def race(
        self, contenders: Sequence[Contender], repeats: int = REPEATS, warm_up: float = WARM_UP
    ) -> tuple[Times, ...]:
        """Return the times of contenders run round-robin, each round starting with the next one."""
        issues = [self._warm_up(each, warm_up) for each in contenders]
        runs: list[list[float]] = [[] for _ in contenders]
        for number in range(repeats):
            for step in range(len(contenders)):
                at = (number + step) % len(contenders)
                runs[at].append(self._once(contenders[at], issues[at]))
        every = zip(contenders, runs, issues, strict=True)
        return tuple(Times(c.name, tuple(of), issue) for c, of, issue in every)

    def _warm_up(self, contender: Contender, seconds: float) -> float:
        """Return the minimum time of the host to issue a run."""
        began, taken = perf_counter(), list[float]()
        while len(taken) < LEAST_WARM_UPS or perf_counter() - began < seconds:
            start = perf_counter()
            contender.issue()
            taken.append(perf_counter() - start)
            self.device.synchronise(f"warming up {contender.name}")
        return min(taken)

    def _once(self, contender: Contender, issue: float) -> float:
        device, (first, last) = self.device, self._events
        self._wait(max(LEAST_HOLD, HOLD * issue))
        device.fill(self._flush, 0, FLUSH_BYTES)
        device.call("cuEventRecord", first, device.stream)
        contender.issue()
        device.call("cuEventRecord", last, device.stream)
        device.call("cuEventSynchronize", last, what=f"timing {contender.name}")
        return float(device.call("cuEventElapsedTime", first, last)) / 1e3

    def _wait(self, seconds: float) -> None:
        packed = PackedArguments([ctypes.c_uint64(round(seconds * 1e9))])
        launch(self.device, self._hold, 1, 1, packed)


def launch(
    device: Device, function: Any, blocks: int, threads: int, packed: PackedArguments
) -> None:
    """Launch a 1D kernel without dynamic shared memory on the device's stream."""
    shape = (blocks, 1, 1, threads, 1, 1, 0)
    device.call("cuLaunchKernel", function, *shape, device.stream, packed.address, 0)
