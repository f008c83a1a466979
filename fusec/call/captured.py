"""Calls with many steps as CUDA graphs, which the C launch helper updates and launches."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fusec.call.steps import LaunchStep, MapStep, MemsetStep, Step
from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError
from fusec.run.evaluated import EvaluateSegment
from fusec.run.operations import CopyMemory, FlagOperations, NcclCall, RecordEvent, WaitEvent

if TYPE_CHECKING:
    from fusec.call.record import Record

MOST_ISSUED = 12
"""Maximum driver calls that the C launch helper issues per call; beyond it launches a graph."""


@dataclass(frozen=True)
class Nodes:
    """The handle of an executable graph, and of its nodes whose arguments change, by step.

    nodes: None where arguments cannot be updated: the graph is replayed unchanged. is_call: whether
    each launch is a call with its own results, in the order of its record's stream.
    """

    handle: int
    nodes: Mapping[int, int] | None
    is_call: bool = False


@dataclass(frozen=True)
class CapturedCall:
    """The graph of a record's steps, destroyed with this object."""

    device: Any
    graph: Any
    executable: Any
    nodes: Nodes

    def __del__(self) -> None:
        """Destroy the graph; the driver waits for the end of its last launch."""
        with suppress(FusecError), self.device.current():
            self.device.call("cuGraphExecDestroy", self.executable)
            self.device.call("cuGraphDestroy", self.graph)


def wants_capture(record: Record) -> bool:
    """Return whether a record's calls can be launched as a graph, and are faster that way.

    Only for several ranks, whose communication has many steps. The arguments of NCCL's kernels
    cannot be updated, and overlapped kernels depend on edges that a capture may lose.
    """
    issued = [s for s in record.steps if not isinstance(s, MapStep)]
    return (
        record.transport is not None
        and not any(isinstance(s, EvaluateSegment) for s in issued)
        and len(issued) > MOST_ISSUED
        and not any(isinstance(s, NcclCall) for s in issued)
        and not any(isinstance(s, LaunchStep) and s.shape.overlapped for s in issued)
        and not any(isinstance(s, MemsetStep) and record.is_callers(s.place) for s in issued)
        and not any(isinstance(s, CopyMemory) and _is_in_place(record, s) for s in issued)
    )


def capture(record: Record) -> CapturedCall:
    """Return the graph of the operations a record issued last, at the addresses of that call.

    FusecError where the driver refuses; no other rank takes part.
    """
    device, (own, *others) = record.executable.device, record.streams.handles
    (stream,) = device.pool.streams(1)
    issuing = replace(record.issuing, handles=[stream, *others])
    relaxed = device.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    nodes = dict[int, int]()
    device.call("cuStreamBeginCapture", stream, relaxed)
    try:
        for number, each in enumerate(record.steps):
            step = _on_stream(each, int(own), int(stream))
            issuing.issuer(step)()
            if isinstance(step, LaunchStep):
                nodes[number] = device.captured_node(issuing.handles[step.stream])
            elif isinstance(step, CopyMemory):
                nodes[number] = device.captured_node(step.stream)
    except FusecError:
        device.driver.cuStreamEndCapture(stream)
        raise
    graph = device.call("cuStreamEndCapture", stream)
    device.pool.give([stream], [])
    executable = device.call("cuGraphInstantiate", graph, 0)
    return CapturedCall(device, graph, executable, Nodes(int(executable), nodes, is_call=True))


def _on_stream(step: Step, own: int, stream: int) -> Step:
    """Return a step with a record's own stream replaced by another one."""
    match step:
        case RecordEvent() | WaitEvent() | FlagOperations() | CopyMemory():
            return replace(step, stream=stream) if step.stream == own else step
        case _:
            return step


def _is_in_place(record: Record, copy: CopyMemory) -> bool:
    """Return whether a copy had no effect in the last call, and becomes no node."""
    return copy.target.address(record.addresses) == copy.source.address(record.addresses)
