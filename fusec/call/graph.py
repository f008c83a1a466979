"""A call captured in a CUDA graph, replayed with the same or other arguments of equal form."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fusec.call.arrays import handle_of
from fusec.call.captured import Nodes
from fusec.call.fast import Fast, helped_call
from fusec.call.given import Given
from fusec.call.steps import LaunchStep, MemsetStep
from fusec.diagnostics import FusecError
from fusec.run.operations import CopyMemory

if TYPE_CHECKING:
    from fusec.call.program import Program
    from fusec.call.record import Record


class Graph:
    """A program's launches for some arrays, as one CUDA graph with memory of its own.

    `graph()` replays it; `graph(x, w)` with other arrays of the same shapes, strides and types. The
    results are in the same memory each time. It runs on the framework's current stream, one replay
    after the other.
    """

    def __init__(
        self, program: Program, record: Record, given: Given, fresh: Sequence[Any], *,
        static_inputs: bool = False,
    ) -> None:  # fmt: skip
        """Capture; `record` launches on a private stream.

        static_inputs: whether other arguments are rejected.
        """
        self._static = static_inputs
        self._program, self._record, self._given, self._fresh = program, record, given, fresh
        self._fast: Fast | None = None
        self._graph: Any = None
        self._executable: Any = None
        self._capture()

    def __call__(self, *arguments: Any, stream: Any = None, **named: Any) -> Any:
        """Replay, with other arguments if any are given; return the results, in stream order."""
        fast = self._fast if stream is None and not named else None
        if fast is not None and fast(*arguments) is not NotImplemented:
            if arguments and self._given.written:
                self._given.replace(arguments)
                self._results = self._found()
            return self._results
        if arguments or named:
            self._take(self._program.looked_at(arguments, named))
        self._launch(stream)
        return self._results

    def __del__(self) -> None:
        """Release the graph and its memory, once its last replay is done."""
        device, arena = self._record.executable.device, self._record.arena
        with suppress(FusecError), device.current():
            device.call("cuCtxSynchronize")
            self._forget()
            arena.close()
            device.call("cuStreamDestroy", arena.stream)

    def _forget(self) -> None:
        device = self._record.executable.device
        if self._executable is not None:
            device.call("cuGraphExecDestroy", self._executable)
            device.call("cuGraphDestroy", self._graph)

    def _found(self) -> Any:
        found = self._program.results(self._record, self._given, self._fresh)
        return found[0] if len(found) == 1 else tuple(found)

    def _take(self, given: Given) -> None:
        """Use other arguments; FusecError where they do not have the same form."""
        if given.signature != self._given.signature or given.device != self._given.device:
            raise FusecError(
                f"the graph of `{self._program.name}` is captured for other shapes or strides",
                help="capture another: program.graph(...)",
            )
        if self._static:
            self._check_same(given)
            return
        given.check_writes()
        given.check_alignments(self._record.program.buffer)
        self._given = given
        self._capture()

    def _check_same(self, given: Given) -> None:
        """Raise FusecError where arguments are not those that the graph was captured with."""
        before = self._given
        others = [n for n, v in given.views.items() if v.address != before.views[n].address]
        others += [n for n, value in given.numbers.items() if value != before.numbers[n]]
        if others:
            raise FusecError(
                f"the graph of `{self._program.name}` has static inputs, and `{others[0]}` is a "
                "different array",
                help="write into the array that it was captured with, or capture without "
                "static_inputs",
            )

    def _launch(self, stream: Any) -> None:
        executable, kind = self._record.executable, self._given.kind
        assert kind is not None
        device = executable.device
        if executable.member is not None:
            executable.member.transport.check()
        handle = kind.stream(device.index) if stream is None else handle_of(stream)
        with device.current():
            self._program.generator_state(self._record.arena, self._given, handle)
            device.call("cuGraphLaunch", self._executable, handle, what="replaying a graph")

    def _capture(self) -> None:
        record, given = self._record, self._given
        device, stream = record.executable.device, record.arena.stream
        modes = device.driver.CUstreamCaptureMode
        with device.current():
            addresses = self._program.addresses(record, given, self._fresh)
            device.call("cuStreamSynchronize", stream)
            device.call("cuStreamBeginCapture", stream, modes.CU_STREAM_CAPTURE_MODE_RELAXED)
            record.issue(addresses, given.numbers)
            graph = device.call("cuStreamEndCapture", stream)
            nodes = self._nodes(graph)
            self._forget()
            self._graph, self._executable = graph, device.call("cuGraphInstantiate", graph, 0)
        self._results = self._found()
        if not any(i.generator for i in given.fusion.inputs):
            self._fast = helped_call(record, given, Nodes(int(self._executable), nodes))

    def _nodes(self, graph: Any) -> dict[int, int] | None:
        """Return the kernel nodes by step, if arguments change nothing but these nodes.

        Kernels on several streams are not a chain, so their nodes cannot be identified; such a
        graph is captured again for other arguments.
        """
        if self._static or not (self._record.is_chain and self._is_updatable()):
            return None
        return dict(zip(self._kernels(), self._kernel_nodes(graph), strict=True))

    def _kernels(self) -> list[int]:
        return [k for k, s in enumerate(self._record.steps) if isinstance(s, LaunchStep)]

    def _is_updatable(self) -> bool:
        """Return whether only kernels, and tensor maps that they read, depend on the arguments."""
        own = len(self._record.memory.inputs)
        return not any(
            (isinstance(s, MemsetStep) and s.place.slot < own)
            or (isinstance(s, CopyMemory) and any(0 <= p.slot < own for p in (s.target, s.source)))
            for s in self._record.steps
        )

    def _kernel_nodes(self, graph: Any) -> list[int]:
        """Return the kernel nodes, in order: the capture of one stream is a chain."""
        call = self._record.executable.device.call
        kernel = self._record.executable.device.driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
        found: list[int] = []
        _, count = call("cuGraphGetRootNodes", graph)
        nodes: list[Any] = call("cuGraphGetRootNodes", graph, count)[0] if count else []
        while nodes:
            (node,) = nodes
            if call("cuGraphNodeGetType", node) == kernel:
                found.append(int(node))
            count = call("cuGraphNodeGetDependentNodes", node)[-1]
            nodes = call("cuGraphNodeGetDependentNodes", node, count)[0] if count else []
        return found
