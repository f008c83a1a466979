"""Exchanges of device memory by NCCL, on a stream of their own."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from fusec.diagnostics import EnvironmentProblem, FusecError, InternalError, Unsupported
from fusec.hostir.instructions import Collective, Receive, Send
from fusec.ir.dtype import DType
from fusec.run.device import Device
from fusec.run.links import Links
from fusec.run.transports.protocol import (
    Begin,
    DeviceMemory,
    Exchange,
    buffers_of,
    peer_place,
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
        f"NCCL has no {reduction} of {dtype}", help="cast to a type that it has, as f32 or i32"
    )


class NcclTransport:
    """One communicator for all ranks, and one for each group, split off it."""

    def __init__(self, links: Links, device: Device) -> None:
        """Connect all ranks; EnvironmentProblem where NCCL is not there or fails."""
        problem = nccl_problem()
        if problem is not None:
            raise EnvironmentProblem(problem)
        # Multicast over NVLink stays off unless somebody asks for it.
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
        world = self._apart(lambda: create(links.size, links.rank, unique), "start of NCCL")
        self._world = world
        self._keep(tuple(range(links.size)), world)

    def prepare(self, exchanges: Sequence[Begin]) -> None:
        """Have a communicator for each group, in the order in which all ranks come to them."""
        for begin in exchanges:
            self._communicator(begin.group)

    def begin(
        self, exchange: Exchange, target: Any, source: Any, group: tuple[int, ...], place: int
    ) -> None:
        """Begin after what the memory's stream was given so far."""
        self._links.check()
        begin = Begin(exchange, target, source, group, place)
        memory: DeviceMemory = source if target is None else target
        key = buffers_of(exchange)[0]
        self._side.follow(memory.stream, key)
        if isinstance(exchange, Collective):
            self._collective(begin, exchange)
            self._side.mark(key)
            self._names.add(buffers_of(exchange), key)
            return
        self._open.append(begin)
        sends = sum(isinstance(b.exchange, Send) for b in self._open)
        # All ranks cut what they send and receive into the same groups: where both are as many.
        if 2 * sends == len(self._open):
            self._send_and_receive()

    def wait(self, buffer: str, stream: int) -> None:
        """Let a stream wait for what was begun with a buffer."""
        if any(buffer in buffers_of(begin.exchange) for begin in self._open):
            self._send_and_receive()
        for key in self._names.take(buffer):
            self._side.release(stream, key)

    def view(self, buffer: str, place: int) -> int:
        """Raise InternalError: what kernels read is gathered before, by whoever uses NCCL."""
        raise InternalError(f"NCCL reads `{buffer}` of no rank where it lies")

    def check(self) -> None:
        """Raise RankFailure where a rank has died or failed."""
        self._links.check()

    def until(self, done: Callable[[], bool], doing: str) -> None:
        """Return when something is done."""
        self._links.until(done, doing)

    def close(self) -> None:
        """End the communicators: at once where a rank has failed, which they would wait for."""
        kept = [communicator for communicator, _ in self._groups.values()]
        self._groups = {}
        for communicator in reversed(kept):
            if self._links.failed:
                communicator.abort()
            else:
                communicator.destroy()
        self._side.close()

    def _collective(self, begin: Begin, exchange: Collective) -> None:
        comm, stream = self._communicator(begin.group), int(self._side.handle)
        target: DeviceMemory = begin.target
        source: DeviceMemory = begin.target if begin.source is None else begin.source
        raw, ranks = self._raw, len(begin.group)
        to, origin = target.address, source.address
        match exchange.kind:
            case "all_gather":
                given = (origin, to, source.size, self._bytes, comm, stream)
                self._do(exchange, raw.all_gather, *given)
            case "broadcast":
                root = root_place(exchange, begin.place)
                given = (origin, to, target.size, self._bytes, root, comm, stream)
                self._do(exchange, raw.broadcast, *given)
            case "all_to_all":
                block = source.size // ranks
                pairs = [(p, origin + p * block, to + p * block) for p in range(ranks)]
                with self._grouped(exchange):
                    for there, mine, theirs in pairs:
                        given = (block, self._bytes, there, comm, stream)
                        self._do(exchange, raw.send, mine, *given)
                        self._do(exchange, raw.recv, theirs, *given)
            case "all_reduce" | "reduce_scatter":
                kind, operation, count = reduction_of(
                    exchange.reduction, target.dtype, target.elements
                )
                how = (self._type(kind), int(self._core.NcclRedOp[operation]))
                function = getattr(raw, exchange.kind)
                self._do(exchange, function, origin, to, count, *how, comm, stream)
            case other:
                raise Unsupported(f"NCCL has no exchange called `{other}`")

    def _send_and_receive(self) -> None:
        """Start what is sent and received together."""
        begun, self._open = self._open, []
        stream = int(self._side.handle)
        own = [b for b in begun if _peer(b) == b.place]
        sent = [b.source for b in own if isinstance(b.exchange, Send)]
        received = [b.target for b in own if not isinstance(b.exchange, Send)]
        for source, target in zip(sent, received, strict=True):
            self._device.call(
                "cuMemcpyDtoDAsync", target.address, source.address, source.size, self._side.handle
            )
        others = [b for b in begun if _peer(b) != b.place]
        if others:
            with self._grouped(others[0].exchange):
                for b in others:
                    comm, there = self._communicator(b.group), _peer(b)
                    sends = isinstance(b.exchange, Send)
                    memory: DeviceMemory = b.source if sends else b.target
                    function = self._raw.send if sends else self._raw.recv
                    given = (memory.address, memory.size, self._bytes, there, comm, stream)
                    self._do(b.exchange, function, *given)
        names = tuple(name for b in begun for name in buffers_of(b.exchange))
        self._side.mark(names[0])
        self._names.add(names, names[0])

    def _communicator(self, group: tuple[int, ...]) -> Any:
        """Return the handle of a group's communicator.

        All ranks of the run come here together, each with its own group along one axis.
        """
        if group not in self._groups:
            color, key = min(group), group.index(self._links.rank)
            split = self._world.split
            self._keep(group, self._apart(lambda: split(color, key), "split of NCCL's ranks"))
        return self._groups[group][1]

    def _keep(self, group: tuple[int, ...], communicator: Any) -> None:
        self._groups[group] = communicator, self._raw.Comm(communicator.ptr)

    def _type(self, name: str) -> int:
        return int(self._core.NcclDataType[name])

    @property
    def _bytes(self) -> int:
        """Return the type of what is moved: bytes are the same of every element type."""
        return self._type("INT8")

    @contextmanager
    def _grouped(self, exchange: Exchange) -> Generator[None]:
        """Let what is begun inside start as one."""
        self._do(exchange, self._raw.group_start)
        yield
        self._do(exchange, self._raw.group_end)

    def _do(self, exchange: Exchange, function: Callable[..., Any], *given: Any) -> None:
        try:
            function(*given)
        except self._raw.NCCLError as error:
            self._links.check()  # another rank's end says more
            raise _failure(error, str(exchange)) from None

    def _apart(self, work: Callable[[], Any], doing: str) -> Any:
        """Return what some work gives that waits for all ranks, with an eye on them."""
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
    """Return the place of the rank at the other end of what is sent or received."""
    exchange = begin.exchange
    assert isinstance(exchange, Send | Receive)
    return peer_place(exchange, begin.place)


def _failure(error: BaseException, doing: str) -> FusecError:
    return EnvironmentProblem(
        f"NCCL failed in `{doing}`", notes=(str(error),), help="NCCL_DEBUG=WARN says more"
    )
