"""Communication of device memory by NCCL, on a stream of its own."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from fusec.diagnostics import EnvironmentProblem, FusecError, InternalError, Unsupported
from fusec.hostir.instructions import Collective, Receive, Send
from fusec.ir.dtype import DType
from fusec.run.device import Device
from fusec.run.distributed.links import Links
from fusec.run.operations import CopyMemory, NcclCall, Operation, Place, issue_all
from fusec.run.transports.protocol import (
    Begin,
    DeviceMemory,
    Exchange,
    buffers_of,
    peer_place,
    receivers_of,
    root_place,
)
from fusec.run.transports.streams import Names, SideStream

INSTALL = "pip install 'fusec[nccl]'"
STARTING = 120.0
"""Seconds for NCCL to connect all ranks."""
_TYPES = {
    "f64": "FLOAT64", "f32": "FLOAT32", "f16": "FLOAT16", "bf16": "BFLOAT16",
    "f8e4m3": "FLOAT8E4M3", "f8e5m2": "FLOAT8E5M2", "i64": "INT64", "i32": "INT32", "i8": "INT8",
    "u64": "UINT64", "u32": "UINT32", "u8": "UINT8",
}  # fmt: skip
_PARTS = {"c64": "f32", "c128": "f64"}
_OF_BOOLS = {"sum": "MAX", "max": "MAX", "prod": "MIN", "min": "MIN"}


def _module(name: str) -> Any:
    return importlib.import_module(name)


def nccl_problem() -> str | None:
    """Return why NCCL cannot be used, or None."""
    try:
        library = _module("nccl.core").get_version().libnccl
    except ImportError:
        return f"the Python package nccl4py is not installed ({INSTALL})"
    return None if library else f"NCCL's library is not installed ({INSTALL})"


def reduction_of(reduction: str, dtype: DType, elements: int) -> tuple[str, str, int]:
    """Return NCCL's names of a type and a reduction, and how many elements it counts.

    Unsupported for what NCCL cannot add.
    """
    if dtype.name == "bool" and reduction in _OF_BOOLS:
        return "UINT8", _OF_BOOLS[reduction], elements
    if dtype.name in _PARTS and reduction == "sum":
        return _TYPES[_PARTS[dtype.name]], "SUM", 2 * elements
    if dtype.name in _TYPES and reduction in ("sum", "prod", "max", "min"):
        return _TYPES[dtype.name], reduction.upper(), elements
    raise Unsupported(
        f"NCCL has no {reduction} for {dtype}", help="cast to a supported type, such as f32 or i32"
    )


class NcclTransport:
    """One communicator for all ranks, and one for each group, split off it."""

    def __init__(self, links: Links, device: Device) -> None:
        """Connect all ranks; EnvironmentProblem where NCCL is missing or fails."""
        problem = nccl_problem()
        if problem is not None:
            raise EnvironmentProblem(problem)
        # Multicast over NVLink stays off unless NCCL_NVLS_ENABLE is set.
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
        self._core = _module("nccl.core")
        self._raw = _module("nccl.bindings.nccl")
        self._links, self._device = links, device
        self._side = SideStream(device)
        self._groups: dict[tuple[int, ...], tuple[Any, Any]] = {}
        self._open: list[Begin] = []
        self._names = Names()
        own = bytes(self._core.get_unique_id()).hex() if links.rank == 0 else ""
        told = bytes.fromhex(links.gather(own, "start of NCCL")[0])
        unique = self._core.UniqueId.from_bytes(told)
        create = self._core.Communicator.init
        world = self._in_thread(lambda: create(links.size, links.rank, unique), "start of NCCL")
        self._world = world
        self._keep(tuple(range(links.size)), world)

    def prepare(self, exchanges: Sequence[Begin]) -> None:
        """Create a communicator for each group, in the same order on all ranks."""
        for begin in exchanges:
            self._communicator(begin.group)

    def begin(
        self, exchange: Exchange, target: Any, source: Any, group: tuple[int, ...], place: int
    ) -> None:
        """Start after the work that the memory's stream has so far."""
        self._links.check()
        begin = Begin(exchange, target, source, group, place)
        issue_all(self._device, self.begin_operations(begin))

    def begin_operations(self, begin: Begin) -> list[Operation]:
        """Return the stream operations that start a collective, send or receive.

        They follow the earlier work of the memory's stream, on a side stream unless it is a
        collective that is waited for immediately.
        """
        exchange, key = begin.exchange, buffers_of(begin.exchange)[0]
        memory: DeviceMemory = begin.source if begin.target is None else begin.target
        if isinstance(exchange, Collective) and begin.waits_immediately:
            return self._collective(begin, exchange, memory.stream)
        made = self._side.follow(memory.stream, key)
        if isinstance(exchange, Collective):
            made += self._collective(begin, exchange, self._side.handle)
            made += self._side.mark(key)
            self._names.add(buffers_of(exchange), key)
            return made
        self._open.append(begin)
        sends = sum(isinstance(b.exchange, Send) for b in self._open)
        # All ranks partition their sends and receives into the same groups: a group ends when it
        # has as many sends as receives.
        if 2 * sends == len(self._open):
            made += self._send_and_receive()
        return made

    def wait(self, buffer: str, stream: int) -> None:
        """Make a stream wait for the operations that use a buffer."""
        issue_all(self._device, self.wait_operations(buffer, stream))

    def wait_operations(self, buffer: str, stream: int) -> list[Operation]:
        """Return operations that make a stream wait for those that use a buffer."""
        made = list[Operation]()
        if any(buffer in buffers_of(begin.exchange) for begin in self._open):
            made += self._send_and_receive()
        for key in self._names.take(buffer):
            made += self._side.release(stream, key)
        return made

    def view(self, buffer: str, place: int) -> int:
        """Raise InternalError: the caller gathers what kernels read instead."""
        raise InternalError(f"NCCL cannot read `{buffer}` of other ranks in place")

    @property
    def failure_address(self) -> int:
        """Return the address of a word that is not 0 once a rank has failed."""
        return self._links.failure_address

    def check(self) -> None:
        """Raise RankFailure where a rank has died or failed."""
        self._links.check()

    def until(self, done: Callable[[], bool], doing: str) -> None:
        """Return when something is done."""
        self._links.until(done, doing)

    def close(self) -> None:
        """End the communicators; abort them where a rank has failed, instead of waiting for it."""
        kept = [communicator for communicator, _ in self._groups.values()]
        self._groups = {}
        for communicator in reversed(kept):
            if self._links.failed:
                communicator.abort()
            else:
                communicator.destroy()
        self._side.close()

    def _collective(self, begin: Begin, exchange: Collective, stream: int) -> list[Operation]:
        target: DeviceMemory = begin.target
        source: DeviceMemory = begin.target if begin.source is None else begin.source
        ends = source.place, target.place

        def call(function: str, buffers: tuple[Place, ...], *numbers: int) -> Operation:
            return self._call(begin, function, buffers, numbers, stream)

        match exchange.kind:
            case "all_gather":
                return [call("all_gather", ends, source.size, self._bytes)]
            case "broadcast":
                root = root_place(exchange, begin.place)
                if exchange.to:
                    return self._sent(begin, exchange, root, stream)
                return [call("broadcast", ends, target.size, self._bytes, root)]
            case "all_to_all":
                block = source.size // len(begin.group)
                return self._grouped(exchange, [
                    call(function, (end.at(there * block),), block, self._bytes, there)
                    for there in range(len(begin.group))
                    for function, end in zip(("send", "recv"), ends, strict=True)
                ])  # fmt: skip
            case "all_reduce" | "reduce_scatter":
                kind, operation, count = reduction_of(
                    exchange.reduction, target.dtype, target.elements
                )
                how = self._type(kind), int(self._core.NcclRedOp[operation])
                return [call(exchange.kind, ends, count, *how)]
            case other:
                raise Unsupported(f"NCCL has no operation named `{other}`")

    def _sent(self, begin: Begin, exchange: Collective, root: int, stream: int) -> list[Operation]:
        """Return the operations that send a tensor to some ranks along an axis; none elsewhere."""
        target: DeviceMemory = begin.target
        source: DeviceMemory = begin.target if begin.source is None else begin.source
        receivers = receivers_of(exchange, len(begin.group))
        if begin.place != root:
            ends, places = target, [root] if begin.place in receivers else []
        else:
            ends, places = source, sorted(receivers - {root})
        function = "send" if begin.place == root else "recv"
        made: list[Operation] = []
        if begin.place == root and root in receivers:
            made.append(CopyMemory(target.place, source.place, source.size, stream))
        calls: list[Operation] = [
            self._call(begin, function, (ends.place,), (ends.size, self._bytes, there), stream)
            for there in places
        ]
        return [*made, *self._grouped(exchange, calls)] if calls else made

    def _send_and_receive(self) -> list[Operation]:
        """Return the operations that start all pending sends and receives as one group."""
        begun, self._open = self._open, []
        stream = self._side.handle
        own = [b for b in begun if _peer(b) == b.place]
        sent = [b.source for b in own if isinstance(b.exchange, Send)]
        received = [b.target for b in own if not isinstance(b.exchange, Send)]
        made: list[Operation] = [
            CopyMemory(target.place, source.place, source.size, stream)
            for source, target in zip(sent, received, strict=True)
        ]
        others = list[Operation]()
        for b in (b for b in begun if _peer(b) != b.place):
            sends = isinstance(b.exchange, Send)
            memory: DeviceMemory = b.source if sends else b.target
            numbers = memory.size, self._bytes, _peer(b)
            others.append(
                self._call(b, "send" if sends else "recv", (memory.place,), numbers, stream)
            )
        if others:
            made += self._grouped(begun[0].exchange, others)
        names = tuple(name for b in begun for name in buffers_of(b.exchange))
        made += self._side.mark(names[0])
        self._names.add(names, names[0])
        return made

    def _call(
        self,
        begin: Begin,
        function: str,
        buffers: tuple[Place, ...],
        numbers: tuple[int, ...],
        stream: int,
    ) -> NcclCall:
        communicator, handle = self._communicator(begin.group)
        return NcclCall(
            self, function, buffers, numbers, handle, int(communicator.ptr), stream,
            str(begin.exchange),
        )  # fmt: skip

    def _grouped(self, exchange: Exchange, calls: list[Operation]) -> list[Operation]:
        """Return calls that start as one group."""
        start, end = (
            NcclCall(self, function, doing=str(exchange))
            for function in ("group_start", "group_end")
        )
        return [start, *calls, end]

    def _communicator(self, group: tuple[int, ...]) -> tuple[Any, Any]:
        """Return a group's communicator, and its handle in the form that nccl4py's functions take.

        Collective over all ranks of the run, each with its own group along one axis.
        """
        if group not in self._groups:
            color, key = min(group), group.index(self._links.rank)
            split = self._world.split
            self._keep(group, self._in_thread(lambda: split(color, key), "split of NCCL's ranks"))
        return self._groups[group]

    def _keep(self, group: tuple[int, ...], communicator: Any) -> None:
        self._groups[group] = communicator, self._raw.Comm(communicator.ptr)

    def _type(self, name: str) -> int:
        return int(self._core.NcclDataType[name])

    @property
    def _bytes(self) -> int:
        """Return the type of moved data: bytes, which are correct for every element type."""
        return self._type("INT8")

    def call(self, function: str, arguments: Sequence[Any], doing: str) -> None:
        """Call a function of the library; FusecError where it fails."""
        try:
            getattr(self._raw, function)(*arguments)
        except self._raw.NCCLError as error:
            self._links.check()  # the loss of another rank is the better error
            raise _failure(error, doing) from None

    def fail(self, status: int, doing: str) -> None:
        """Raise FusecError for a function that returned a status."""
        self._links.check()
        raise _failure(f"ncclResult_t {status}", doing)

    def pointer(self, function: str) -> int:
        """Return the address of a function in the library that nccl4py loaded, or 0."""
        words = "".join(word.capitalize() for word in function.split("_"))
        try:
            inner = _module("nccl.bindings._internal.nccl")
            return int(inner._inspect_function_pointer(f"__nccl{words}"))
        except (ImportError, AttributeError, KeyError, RuntimeError):
            return 0  # another version: Python calls it

    def _in_thread(self, work: Callable[[], Any], doing: str) -> Any:
        """Return the result of `work`, which waits for all ranks, while monitoring them."""
        found: list[Any] = []
        problems: list[BaseException] = []

        def body() -> None:
            try:
                with self._device.current():
                    found.append(work())
            except BaseException as error:
                problems.append(error)

        threading.Thread(target=body, name=f"fusec {doing}", daemon=True).start()
        self._links.until(lambda: bool(found or problems), doing, STARTING)
        if problems:
            raise _failure(problems[0], doing)
        return found[0]


def _peer(begin: Begin) -> int:
    """Return the index along the axis of the rank that sends or receives at the other end."""
    exchange = begin.exchange
    assert isinstance(exchange, Send | Receive)
    return peer_place(exchange, begin.place)


def _failure(error: BaseException | str, doing: str) -> FusecError:
    return EnvironmentProblem(
        f"NCCL failed in `{doing}`", notes=(str(error),), help="NCCL_DEBUG=WARN says more"
    )
