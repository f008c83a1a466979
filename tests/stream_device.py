"""A device in host memory whose streams run late, in any order that events allow."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from fake_device import FakeDevice

Work = Callable[[], Any]


class StreamDevice(FakeDevice):
    """Work waits on its stream until the device is synchronised: then that of streams is mixed.

    What the stream that is waited for does not depend on may never run. Its clock counts work.
    """

    def __init__(self, kernels: dict[str, Callable[..., None]], seed: int = 0) -> None:
        """Start with one stream."""
        super().__init__(kernels)
        self.random = Random(seed)
        self.queues: dict[int, list[tuple[Any, Work]]] = {}
        self.asked: list[tuple[str, Any]] = []
        self.destroyed: list[Any] = []
        self.clock = 0
        self.streams = 0
        self.driver.cuEventDestroy = self.destroyed.append
        self.driver.cuStreamDestroy = self.destroyed.append

    def later(self, stream: Any, work: Work, until: Any = None) -> None:
        """Do something on a stream, once an event has come."""
        self.queues.setdefault(int(stream), []).append((until, work))

    def fill(self, address: int, byte: int, size: int, stream: Any = 0) -> None:
        """Fill memory."""
        fill = super().fill
        self.later(stream, lambda: fill(address, byte, size))

    def copy(self, target: int, source: int, size: int, stream: Any = 0) -> None:
        """Copy."""
        copy = super().copy
        self.later(stream, lambda: copy(target, source, size))

    def copy_rows(self, target: int, source: int, rows: Any, stream: Any = 0) -> None:
        """Copy."""
        for k in range(rows.height):
            to = target + rows.target + k * rows.target_pitch
            self.copy(to, source + rows.source + k * rows.source_pitch, rows.width, stream)

    def upload(self, address: int, array: Any) -> None:
        """Copy in."""
        upload, held = super().upload, array.copy()
        self.later(0, lambda: upload(address, held))

    def download(self, address: int, size: int) -> Any:
        """Wait and copy out."""
        self.synchronise()
        return super().download(address, size)

    def free(self, address: int) -> None:
        """Wait for all streams: the driver does."""
        while any(self.queues.values()):
            self.one()
        super().free(address)

    def one(self) -> None:
        """Do one piece of work of some stream."""
        ready = [s for s, q in self.queues.items() if q and (q[0][0] is None or q[0][0].come)]
        assert ready, "no stream can go on"
        _, work = self.queues[self.random.choice(sorted(ready))].pop(0)
        self.clock += 1
        work()

    def synchronise(self, what: str = "") -> None:
        """Run until the device's own stream has nothing left."""
        while self.queues.get(0):
            self.one()

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        """Do what the driver does."""
        self.asked.append((function, arguments))
        match function:
            case "cuStreamCreate":
                self.streams += 1
                return self.streams
            case "cuStreamIsCapturing":
                return 0
            case "cuEventCreate":
                return SimpleNamespace(latest=None)
            case "cuEventRecord":
                event, stream = arguments
                event.latest = mark = SimpleNamespace(come=False, at=0)
                self.later(stream, lambda: _mark(mark, self.clock))
            case "cuStreamWaitEvent":
                stream, event, _ = arguments
                if event.latest is not None:
                    self.later(stream, lambda: None, event.latest)
            case "cuMemAllocAsync":
                return self.allocate(arguments[0], what)
            case "cuMemFreeAsync":
                self.free(arguments[0])
            case "cuMemsetD8Async":
                self.fill(*arguments)
            case "cuMemcpyDtoDAsync":
                self.copy(*arguments)
            case "cuMemcpyDtoHAsync":
                host, address, size, stream = arguments
                self.inside(address, size, "what is copied to the host")
                self.later(stream, lambda: ctypes.memmove(host, address, size))
            case "cuMemcpyHtoDAsync":
                address, host, size, stream = arguments
                self.inside(address, size, "what is copied to the device")
                self.later(stream, lambda: ctypes.memmove(address, host, size))
            case "cuStreamSynchronize":
                while self.queues.get(int(arguments[0])):
                    self.one()
            case "cuEventSynchronize":
                while not arguments[0].latest.come:
                    self.one()
            case "cuEventElapsedTime":
                first, last = (a.latest for a in arguments)
                assert first.come
                assert last.come
                return float(last.at - first.at)
            case _:
                config, entry, pointers, _ = arguments
                assert function == "cuLaunchKernelEx"
                self.launched.append((entry, config))
                kernel = self.kernels[entry]
                run = kernel.copied(pointers) if hasattr(kernel, "copied") else None
                self.later(config.hStream, run or (lambda: kernel(pointers)))
        return None

    def count(self, *functions: str) -> int:
        """Return how often some functions were called."""
        return sum(name in functions for name, _ in self.asked)


def _mark(event: Any, at: int) -> None:
    event.come, event.at = True, at


def names(device: StreamDevice) -> Sequence[str]:
    """Return the functions that were called, in order."""
    return [name for name, _ in device.asked]
