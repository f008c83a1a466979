"""Clocks for pytest-benchmark: accumulated seconds of all measured calls."""

from __future__ import annotations

from typing import Any

from fusec.nvfuser.profiler import get_fusion_profile
from fusec.nvfuser.torch_module import torch_module


class Timer:
    """A clock that only advances during measurements."""

    def __init__(self) -> None:
        """Start at 0."""
        self.current_time = 0.0
        self._running = False

    def __call__(self) -> float:
        """Start a measurement, or end it; return the total seconds."""
        if self._running:
            self.current_time += self._stop()
        else:
            self._start()
        self._running = not self._running
        return self.current_time

    def _start(self) -> None:
        """Begin a measurement."""

    def _stop(self) -> float:
        raise NotImplementedError

    def cleanup(self) -> None:
        """Discard an unfinished measurement."""
        self._running = False


class CuptiTimer(Timer):
    """Seconds on the GPU between two events on the current stream."""

    def _start(self) -> None:
        cuda = torch_module().cuda
        cuda.synchronize()
        self._begin = cuda.Event(enable_timing=True)
        self._begin.record()

    def _stop(self) -> float:
        end = torch_module().cuda.Event(enable_timing=True)
        end.record()
        end.synchronize()
        return self._begin.elapsed_time(end) / 1e3


class FusionProfileTimer(Timer):
    """Seconds on the host of the last profiled execution."""

    def set_fd(self, definition: Any) -> None:
        """Set the definition that is executed."""
        self.fd = definition

    def _stop(self) -> float:
        return get_fusion_profile().host_time_ms / 1e3
