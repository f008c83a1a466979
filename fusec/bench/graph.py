"""Work as a CUDA graph, replayed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fusec.run.device import Device


def replayed(device: Device, issue: Callable[[], None]) -> Callable[[], None]:
    """Return what replays the work that `issue` puts on the device's stream."""
    modes = device.driver.CUstreamCaptureMode
    device.synchronise()
    device.call("cuStreamBeginCapture", device.stream, modes.CU_STREAM_CAPTURE_MODE_RELAXED)
    issue()
    graph = device.call("cuStreamEndCapture", device.stream)
    ready = device.call("cuGraphInstantiate", graph, 0)
    return partial(_launch, device, ready)


def _launch(device: Device, ready: object) -> None:
    device.call("cuGraphLaunch", ready, device.stream, what="replaying a graph")
