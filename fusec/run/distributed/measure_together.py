"""Timing of a program that runs on several ranks."""

from __future__ import annotations

from fusec.run.bound import Bound
from fusec.run.distributed.links import Links
from fusec.run.transports.protocol import Transport

WARMUPS = 3


def measure_together(bound: Bound, transport: Transport, links: Links, repeats: int) -> float:
    """Return the seconds per run on the slowest rank, the mean of `repeats` back-to-back runs.

    All ranks call it. The program's communication keeps them in step, so the skew at the start
    hardly matters.
    """
    device = bound.device
    events = [device.call("cuEventCreate", 0) for _ in range(2)]
    try:
        for _ in range(WARMUPS):
            bound.run()
        transport.until(device.is_done, "runs to warm up")
        links.gather(None, "begin of timed runs")
        device.call("cuEventRecord", events[0], device.stream)
        for _ in range(repeats):
            bound.run()
        device.call("cuEventRecord", events[1], device.stream)
        transport.until(device.is_done, "timed runs")
        own = float(device.call("cuEventElapsedTime", *events)) / 1000 / repeats
    finally:
        for event in events:
            device.driver.cuEventDestroy(event)
    times: list[float] = links.gather(own, "times of all ranks")
    return max(times)
