"""GPUs of several ranks in one process: streams are queues whose heads run in a drawn order.

Ranks are threads. Work runs when `run` is called, or a rank waits for its own stream: heads are
taken in an order that the streams allow, so that whatever is not ordered by an event or a flag goes
wrong for some draw.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
from fake_barrier import barrier
from fake_push import push_sum
from fake_rows import doubled

from fusec.run.device import Device
from fusec.run.rows import Rows
from fusec.run.streams import Pool

MEMORY = 1 << 23
SPAN = 1 << 32
"""Addresses of each GPU."""
MAPPED = 1 << 40
"""Addresses at which each GPU sees the others' memory."""

Operation = Callable[[], bool]
"""Does something if it can, and returns whether it has."""


class Deadlock(Exception):
    """No stream can go on, and some have not done."""


@dataclass
class Stream:
    rank: int
    queue: deque[tuple[str, Operation]] = field(default_factory=deque[Any])


@dataclass
class Event:
    recorded: int = 0
    reached: int = 0

    def __int__(self) -> int:
        """Return a handle."""
        return id(self)


@dataclass
class Capture:
    """What streams were given between begin and end: operations, and events by a token for each
    time that they were recorded.
    """

    streams: dict[int, list[tuple[str, Any]]]
    mode: int = 2
    latest: dict[int, object] = field(default_factory=dict[int, object])

    def __int__(self) -> int:
        """Return a handle."""
        return id(self)

    def node(self, stream: int) -> int:
        """Return the number of what a stream was given last."""
        before = [*self.streams].index(stream)
        return 1 + 1000 * before + len(self.streams[stream])

    def check(self, origin: int) -> None:
        """Raise AssertionError where the origin does not wait, by itself or by others that it waits
        for, for the end of a stream.
        """
        joined = [origin]
        for stream in joined:
            awaited = [token for what, token in self.streams[stream] if what == "wait"]
            ends = {s: given[-1] for s, given in self.streams.items() if s not in joined}
            joined += [s for s, last in ends.items() if last[0] == "record" and last[1] in awaited]
        assert len(joined) == len(self.streams), "a stream that is not joined"


class FakeGpus:
    """All GPUs, one for each rank."""

    def __init__(self, ranks: int, draw: Random | None = None) -> None:
        self.lock = threading.RLock()
        self.draw = draw or Random(0)
        self.memory = [np.zeros(MEMORY, np.uint8) for _ in range(ranks)]
        self.streams: list[Stream] = []
        self.devices = [FakeGpu(self, rank) for rank in range(ranks)]

    def at(self, rank: int, address: int, size: int) -> np.ndarray:
        """Return memory that a rank may touch: its own, or another's that it has mapped."""
        device, owner = self.devices[rank], rank
        if address >= MAPPED:
            address -= MAPPED
            owner = address // SPAN
            mapped = self.allocation(address) in device.mapped
            assert mapped, "memory that is not mapped"
        assert address // SPAN == owner, f"rank {rank} touches memory of rank {address // SPAN}"
        base, start = self.allocation(address), address % SPAN
        end = base % SPAN + self.devices[owner].blocks[base % SPAN]
        assert start + size <= end, "outside of memory"
        return self.memory[owner][start : start + size]

    def allocation(self, address: int) -> int:
        """Return where the allocation begins that an address lies in."""
        owner, start = divmod(address, SPAN)
        # Its rank may allocate meanwhile.
        blocks = list(self.devices[owner].blocks.items())
        found = [b for b, n in blocks if b <= start < b + n]
        assert found, "outside of memory"
        return owner * SPAN + found[0]

    def run(self, draw: Random) -> None:
        """Run everything; Deadlock names the heads that wait."""
        self.draw = draw
        while waiting := [s for s in self.streams if s.queue]:
            if not self.step():
                raise Deadlock([(s.rank, s.queue[0][0]) for s in waiting])

    def step(self) -> bool:
        """Do one piece of work of some stream; return whether there was any that could be done."""
        with self.lock:
            waiting = [s for s in self.streams if s.queue]
            self.draw.shuffle(waiting)
            for stream in waiting:
                if stream.queue[0][1]():
                    stream.queue.popleft()
                    return True
        return False


class FakeGpu:
    """What `fusec.run.device.Device` is to transports."""

    def __init__(self, gpus: FakeGpus, rank: int) -> None:
        self.gpus, self.rank, self.index = gpus, rank, rank
        self.blocks: dict[int, int] = {}
        self.mapped: set[int] = set()
        """Where allocations of other GPUs begin."""
        self.next = 256
        self.exported: set[int] = set()
        self.graphs: list[Capture] = []
        self.capture: Capture | None = None
        self.captures = self.thread_mode = 0
        self.kernels: list[str] = []
        self.facts = SimpleNamespace(capability=90, sms=132)
        self.driver = SimpleNamespace(
            CUlaunchConfig=SimpleNamespace,
            CUlaunchAttributeID=SimpleNamespace(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=4),
            CUlaunchAttribute=lambda: SimpleNamespace(
                value=SimpleNamespace(clusterDim=SimpleNamespace())
            ),
            CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2),
            CUipcMemHandle=Handle,
            cuIpcCloseMemHandle=lambda address: self.mapped.discard(address - MAPPED),
            cuEventDestroy=lambda event: None,
            cuStreamDestroy=lambda stream: None,
            cuGraphExecDestroy=lambda graph: self.graphs.remove(graph),
            cuGraphDestroy=lambda graph: None,
            cuStreamEndCapture=lambda stream: setattr(self, "capture", None),
            cuDeviceCanAccessPeer=lambda own, other: (0, 1),
            CUstreamBatchMemOpParams=_memory_operation,
            CUstreamBatchMemOpType=SimpleNamespace(
                CU_STREAM_MEM_OP_WAIT_VALUE_32=1, CU_STREAM_MEM_OP_WRITE_VALUE_32=2
            ),
        )
        self.stream = self.new_stream()
        self.pool = Pool(self)

    @property
    def count(self) -> int:
        return len(self.gpus.devices)

    @contextmanager
    def current(self) -> Generator[None]:
        yield

    relaxed_capture, capture_number = Device.relaxed_capture, Device.capture_number
    captured_node = Device.captured_node

    def outside_of_captures(self, what: str) -> None:
        """Raise AssertionError for what ends a capture, unless its thread is allowed to do it."""
        relaxed = self.capture is None or 2 in (self.capture.mode, self.thread_mode)
        assert relaxed, f"{what} while a stream is captured"

    def new_stream(self) -> int:
        with self.gpus.lock:
            self.gpus.streams.append(Stream(self.rank))
            return len(self.gpus.streams) - 1

    def issue(self, stream: Any, what: str, operation: Operation) -> None:
        if self.capture is not None and stream in self.capture.streams:
            self.capture.streams[stream].append((what, operation))
            return
        with self.gpus.lock:
            found = self.gpus.streams[stream]
            assert found.rank == self.rank, "a stream of another GPU"
            found.queue.append((what, operation))

    def allocate(self, size: int, what: str) -> int:
        self.outside_of_captures("an allocation")
        start, self.next = self.next, self.next + (max(size, 1) + 511) // 256 * 256
        assert self.next <= MEMORY
        self.blocks[start] = max(size, 1)
        return self.rank * SPAN + start

    def load(self, cubin: bytes, entry: str) -> int:
        self.kernels.append(entry)
        return len(self.kernels)

    def function_attributes(self, function: int, values: Any) -> None:
        pass

    def _cuLaunchKernelEx(self, config: Any, function: int, packed: int, extra: int) -> None:
        name = self.kernels[function - 1]
        if name == "barrier":
            work = barrier(self, config.blockDimX, packed)
        elif name.startswith("doubled"):
            work = doubled(self, name, config.gridDimX, packed)
        else:
            work = push_sum(self, name, config.gridDimX, packed)
        self.issue(config.hStream, name, work)

    def free(self, address: int) -> None:
        mapped = any(address in d.mapped for d in self.gpus.devices)
        assert not mapped, "memory is freed that others map"
        del self.blocks[address % SPAN]

    def fill(self, address: int, byte: int, size: int, stream: int | None = None) -> None:
        def operation() -> bool:
            self.gpus.at(self.rank, address, size)[...] = byte
            return True

        if size:
            self.issue(self.stream if stream is None else stream, "fill", operation)

    def copy(self, target: int, source: int, size: int, stream: int | None = None) -> None:
        on = self.stream if stream is None else stream
        self._cuMemcpyDtoDAsync(target, source, size, on)

    def copy_rows(self, target: int, source: int, rows: Rows, stream: int | None = None) -> None:
        for k in range(rows.height):
            to = target + rows.target + k * rows.target_pitch
            self.copy(to, source + rows.source + k * rows.source_pitch, rows.width, stream)

    def upload(self, address: int, array: np.ndarray) -> None:
        held = array.reshape(-1).view(np.uint8).copy()

        def operation() -> bool:
            self.gpus.at(self.rank, address, held.size)[...] = held
            return True

        if held.size:
            self.issue(self.stream, "upload", operation)

    def download(self, address: int, size: int) -> np.ndarray:
        self.synchronise()
        return self.gpus.at(self.rank, address, size).copy()

    def is_done(self) -> bool:
        self.gpus.step()
        return not self.gpus.streams[self.stream].queue

    def synchronise(self, what: str = "") -> None:
        """Run work of all GPUs until this one's own stream has none; others may give more."""
        self.outside_of_captures("a wait")
        limit = time.monotonic() + 10
        while self.gpus.streams[self.stream].queue:
            if not self.gpus.step():
                if time.monotonic() > limit:
                    raise Deadlock([(s.rank, s.queue[0][0]) for s in self.gpus.streams if s.queue])
                time.sleep(1e-4)

    def call(self, function: str, *given: Any, what: str = "") -> Any:
        return getattr(self, f"_{function}")(*given)

    def _cuStreamCreate(self, flags: int) -> int:
        return self.new_stream()

    def _cuStreamIsCapturing(self, stream: int) -> int:
        return 0

    def _cuEventElapsedTime(self, first: Event, last: Event) -> float:
        assert first.reached == first.recorded
        assert last.reached == last.recorded
        return 1.0

    def _cuDeviceGet(self, number: int) -> int:
        return number

    def _cuDeviceGetUuid(self, number: int) -> Any:
        return SimpleNamespace(bytes=bytes([number]) * 16)

    def _cuCtxGetStreamPriorityRange(self) -> tuple[int, int]:
        return 0, -5

    def _cuStreamCreateWithPriority(self, flags: int, priority: int) -> int:
        assert (flags, priority) == (1, -5)
        return self.new_stream()

    def _cuEventCreate(self, flags: int) -> Event:
        return Event()

    def _cuStreamBeginCapture(self, stream: int, mode: int) -> None:
        self.capture, self.captures = Capture({stream: []}, mode), self.captures + 1

    def _cuThreadExchangeStreamCaptureMode(self, mode: int) -> int:
        before, self.thread_mode = self.thread_mode, mode
        return before

    def _cuStreamGetCaptureInfo(self, stream: int) -> tuple[Any, ...]:
        assert self.capture is not None
        assert stream in self.capture.streams
        return 1, self.captures, self.capture, [self.capture.node(stream)], [None], 1

    def _cuStreamEndCapture(self, stream: int) -> Capture:
        made, self.capture = self.capture, None
        assert made is not None
        made.check(stream)
        return made

    def _cuGraphInstantiate(self, graph: Capture, flags: int) -> Capture:
        assert flags == 0
        self.graphs.append(graph)
        return graph

    def _cuGraphExecDestroy(self, graph: Capture) -> None:
        self.graphs.remove(graph)

    def _cuGraphDestroy(self, graph: Capture) -> None:
        pass

    def _cuGraphLaunch(self, graph: Capture, stream: int) -> None:
        """Give the origin's work to a stream, and that of others to new ones."""
        made = dict[int, Event]()
        for number, given in enumerate(graph.streams.values()):
            on = self.new_stream() if number else stream
            for what, each in given:
                if what in ("record", "wait"):
                    event = made.setdefault(id(each), Event())
                    event.recorded = 1
                    waits = what == "wait"
                    self.issue(on, what, partial(_reached if waits else _reach, event))
                else:
                    self.issue(on, what, each)

    def _cuEventRecord(self, event: Event, stream: int) -> None:
        if self.capture is not None and stream in self.capture.streams:
            token = self.capture.latest[id(event)] = object()
            self.capture.streams[stream].append(("record", token))
            return
        event.recorded += 1
        number = event.recorded

        def operation() -> bool:
            event.reached = max(event.reached, number)
            return True

        self.issue(stream, "record", operation)

    def _cuStreamWaitEvent(self, stream: int, event: Event, flags: int) -> None:
        if self.capture is not None and id(event) in self.capture.latest:
            token = self.capture.latest[id(event)]
            self.capture.streams.setdefault(stream, []).append(("wait", token))
            return
        assert self.capture is None or stream not in self.capture.streams, "work before a capture"
        number = event.recorded  # of the latest time that it was recorded; none: no wait
        self.issue(stream, "wait for event", lambda: event.reached >= number)

    def _cuMemcpyDtoDAsync(self, to: int, origin: int, size: int, stream: int) -> None:
        def operation() -> bool:
            self.gpus.at(self.rank, to, size)[...] = self.gpus.at(self.rank, origin, size)
            return True

        self.issue(stream, "copy", operation)

    def _cuStreamWaitValue32(self, stream: int, address: int, value: int, flags: int) -> None:
        assert flags == 1, "EQ"
        assert address < MAPPED, "a stream polls memory of its own GPU alone"

        def operation() -> bool:
            return self.gpus.at(self.rank, address, 4).view(np.uint32)[0] == value

        self.issue(stream, f"wait for flag {address % SPAN}", operation)

    def _cuStreamWriteValue32(self, stream: int, address: int, value: int, flags: int) -> None:
        def operation() -> bool:
            word = self.gpus.at(self.rank, address, 4).view(np.uint32)
            assert word[0] != value, "a flag is written that has not been taken back"
            word[0] = value
            return True

        self.issue(stream, "write flag", operation)

    def _cuStreamBatchMemOp(
        self, stream: int, count: int, operations: list[Any], flags: int
    ) -> None:
        assert (count, flags) == (len(operations), 0)
        for each in (o.waitValue for o in operations):
            does = {1: self._cuStreamWaitValue32, 2: self._cuStreamWriteValue32}[each.operation]
            does(stream, each.address, each.value, each.flags)

    def _cuMemGetAddressRange(self, address: int) -> tuple[int, int]:
        start = address % SPAN
        found = next((b, n) for b, n in self.blocks.items() if b <= start < b + n)
        return self.rank * SPAN + found[0], found[1]

    def _cuIpcGetMemHandle(self, base: int) -> Handle:
        assert base % SPAN in self.blocks, "not the base of an allocation"
        handle = Handle()
        handle.raw[:8] = base.to_bytes(8, "little")
        return handle

    def _cuIpcOpenMemHandle(self, handle: Handle, flags: int) -> int:
        base = int.from_bytes(bytes(handle.raw[:8]), "little")
        assert flags == 1
        assert base // SPAN != self.rank, "a process cannot map its own memory"
        self.mapped.add(base)
        return MAPPED + base


def _reach(event: Event) -> bool:
    event.reached = event.recorded
    return True


def _reached(event: Event) -> bool:
    return event.reached == event.recorded


def _memory_operation() -> Any:
    """Return what is a union: whatever is read or written is the same memory."""
    own = SimpleNamespace()
    return SimpleNamespace(waitValue=own, writeValue=own)


class Handle:
    """64 bytes that mean something to the driver alone."""

    def __init__(self) -> None:
        self.raw = (ctypes.c_uint8 * 64)()

    def getPtr(self) -> int:
        """Return where the bytes are."""
        return ctypes.addressof(self.raw)
