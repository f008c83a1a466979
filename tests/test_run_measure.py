"""Times of launches, on a device whose clock only kernels and fills move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_device import FakeDevice
from test_run_execute import CUBINS, double, twice

from fusec.run import measure as module
from fusec.run.device import DeviceFacts
from fusec.run.execute import Executable
from fusec.run.measure import measure, share_of_bandwidth


class ClockDevice(FakeDevice):
    """Each launch takes a millisecond more than the one before; a fill takes ten."""

    def __init__(self) -> None:
        """Start the clock."""
        super().__init__({"double": double})
        self.now = 0.0
        self.launches = 0
        self.fills: list[int] = []
        self.driver.cuEventDestroy = lambda event: None

    def fill(self, address: int, byte: int, size: int) -> None:
        """Fill memory and move the clock."""
        super().fill(address, byte, size)
        self.fills.append(size)
        self.now += 10

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Handle events, and let launches take time."""
        if function == "cuEventCreate":
            return SimpleNamespace(at=0.0)
        if function == "cuEventRecord":
            arguments[0].at = self.now
            return None
        if function == "cuEventElapsedTime":
            return arguments[1].at - arguments[0].at
        if function == "cuEventSynchronize":
            return None
        self.launches += 1
        self.now += 1 + (self.launches - 1) % 3
        return super().call(function, *arguments, what=what)


def test_times_are_of_kernels_alone_after_a_flush(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "FLUSH_BYTES", 1 << 16)
    monkeypatch.setattr(module, "WARMUP_SECONDS", 0.0)
    device: Any = ClockDevice()
    x = np.ones(4, np.float32)
    with Executable(device, twice(), CUBINS).bind({"x": x}, {"N": 4}) as bound:
        device.fills.clear()
        timing = measure(bound, repeats=5)
    assert timing.seconds == pytest.approx(6e-3)
    assert [k.seconds for k in timing.kernels] == pytest.approx([1e-3, 2e-3, 3e-3])
    assert [k.kernel for k in timing.kernels] == ["double"] * 3
    assert device.fills == [1 << 16] * 10
    assert not device.blocks


def test_the_share_of_the_bandwidth():
    facts = DeviceFacts("NVIDIA H200", 90, 132, 60 << 20, 141 << 30, 227 << 10, 4.8e12, "CUDA 13.0")
    device: Any = SimpleNamespace(facts=facts)
    assert facts.bandwidth == 4.25e12  # measured on this GPU
    assert share_of_bandwidth(4_250_000_000, 2e-3, device) == pytest.approx(0.5)
    other = DeviceFacts("NVIDIA X", 90, 132, 0, 0, 0, 2e12, "CUDA 13.0")
    assert other.bandwidth == pytest.approx(1.8e12)
    unknown = DeviceFacts("NVIDIA Y", 70, 80, 0, 0, 0, 1e12, "CUDA 13.0")
    assert unknown.target is None
