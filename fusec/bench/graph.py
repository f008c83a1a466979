"""Work as a CUDA graph, replayed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fusec.run.device import Device


def replayed(device: Device, issue: Callable[[], None]) -> Callable[[], None]:
    """Return a function that replays the work that `issue` puts on the device's stream."""
    return partial(_launch, device, _instantiate(device, _capture(device, issue)))


@contextmanager
def captured(device: Device, issue: Callable[[], None]) -> Generator[Callable[[], None]]:
    """Yield a function that replays such work, and destroy the graph once it is done.

    A communicator of NCCL must be destroyed after the graphs that contain its work.
    """
    graph = _capture(device, issue)
    ready = _instantiate(device, graph)
    try:
        yield partial(_launch, device, ready)
    finally:
        device.synchronise("the last replay")
        device.driver.cuGraphExecDestroy(ready)
        device.driver.cuGraphDestroy(graph)


def _capture(device: Device, issue: Callable[[], None]) -> Any:
    modes = device.driver.CUstreamCaptureMode
    device.synchronise()
    device.call("cuStreamBeginCapture", device.stream, modes.CU_STREAM_CAPTURE_MODE_RELAXED)
    issue()
    return device.call("cuStreamEndCapture", device.stream)


def _instantiate(device: Device, graph: Any) -> Any:
    return device.call("cuGraphInstantiate", graph, 0)


def _launch(device: Device, ready: Any) -> None:
    device.call("cuGraphLaunch", ready, device.stream, what="replaying a graph")
