"""Times of launches, on a device whose clock only kernels and fills move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_device import FakeDevice
from test_run_execute import CUBINS, double, twice

from fusec.run import measure as module
from fusec.run.execute import Executable
from fusec.run.measure import measure


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
