"""Memory that the kernels of a program share between calls, one arena per stream."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet, finalize

from fusec.dataclasses import dataclass, field
from fusec.diagnostics import OutOfMemory
from fusec.hostir.arena import ALIGNMENT
from fusec.run.streams import Shared

if TYPE_CHECKING:
    from fusec.run.device import Device

T = TypeVar("T")


@dataclass
class Piece:
    """One allocation, which can grow; zeroed: it holds zeros whenever no kernel runs."""

    zeroed: bool
    address: int = 0
    size: int = 0


@dataclass(eq=False)
class Arena:
    """Memory shared by the calls of one program on one stream; a call holds `issuing`.

    Kernels of a stream run in order, so all sizes use the same memory: `scratch` for temporaries,
    `counters` for memory that is zeroed once and restored to zero. generation: increases with every
    new address. busy: 1 while a call is issued. Both are at fixed addresses, for the helper to
    read. capture: the number of the capture that the stream takes part in, None outside of a
    capture. The memory of an unreachable arena is freed with the next allocation: the garbage
    collector may run where calls of the driver are not allowed.
    """

    device: Device
    stream: int
    lock: Any = field(default_factory=Lock)
    scratch: Piece = field(default_factory=lambda: Piece(zeroed=False))
    counters: Piece = field(default_factory=lambda: Piece(zeroed=True))
    pair: Piece = field(default_factory=lambda: Piece(zeroed=False))
    generation: Any = field(default_factory=ctypes.c_uint64)
    busy: Any = field(default_factory=ctypes.c_uint64)
    capture: int | None = None

    @property
    def order(self) -> Hashable:
        """Return a key that differs between arenas whose programs may run concurrently."""
        return self.stream if self.capture is None else ("capture", self.capture)

    def __post_init__(self) -> None:
        """Create additional streams, for programs that use several."""
        self.shared_streams = Shared(self.device)
        pieces = self.scratch, self.counters, self.pair
        left = _Left(self.device, self.stream, pieces, self.shared_streams)
        finalize(self, _abandoned.append, left).atexit = False

    @contextmanager
    def issuing(self) -> Generator[None]:
        """Exclude other calls while one is issued: their launches must not interleave."""
        with self.lock:
            self.busy.value = 1
            try:
                yield
            finally:
                self.busy.value = 0

    def reserve(self, scratch: int, counters: int) -> None:
        """Grow to at least the given numbers of bytes, in stream order, without blocking."""
        for piece, size in ((self.scratch, scratch), (self.counters, counters)):
            if size > piece.size:
                self._grow(piece, max(size, 2 * piece.size))

    def _grow(self, piece: Piece, size: int) -> None:
        self._release(piece)
        what = f"{size} bytes for what kernels share"

        def allocate() -> int:
            return int(self.device.call("cuMemAllocAsync", size, self.stream, what=what))

        if self.capture is None:
            free_abandoned(self.device)
            piece.address = retried(allocate, OutOfMemory, self.device)
        else:
            piece.address = allocate()
        piece.size = size
        if piece.zeroed:
            self.device.call("cuMemsetD8Async", piece.address, 0, size, self.stream)
        self.generation.value += 1

    def _release(self, piece: Piece) -> None:
        _free(self.device, self.stream, piece)

    def empty(self) -> bool:
        """Free the memory between two calls; the next one allocates it again.

        Return False, and free nothing, while a call is being issued, or if the program generates
        random numbers: the helper calls Python while it issues such a call.
        """
        if self.pair.size or not self.lock.acquire(blocking=False):
            return False
        try:
            held = bool(self.scratch.size or self.counters.size)
            self._release(self.scratch)
            self._release(self.counters)
            self.generation.value += 1
            return held
        finally:
            self.lock.release()

    def state(self, pair: tuple[int, int], stream: int) -> int:
        """Return the address of the generator's seed and offset, written in a stream's order."""
        if not self.pair.size:
            self._grow(self.pair, ALIGNMENT)
        words = (ctypes.c_uint64 * 2)(*pair)
        copied = self.pair.address, ctypes.addressof(words), ctypes.sizeof(words), stream
        self.device.call("cuMemcpyHtoDAsync", *copied)
        return self.pair.address

    def close(self) -> None:
        """Free the memory, after the pending work of the stream."""
        for piece in (self.scratch, self.counters, self.pair):
            self._release(piece)
        self.shared_streams.close()


@dataclass(frozen=True)
class _Left:
    """Resources of an arena that was garbage-collected."""

    device: Device
    stream: int
    pieces: tuple[Piece, ...]
    shared_streams: Shared


_abandoned: list[_Left] = []
_emptied: WeakSet[Arena] = WeakSet()
"""The arenas that may be emptied between calls: no graph contains their addresses."""


def _free(device: Device, stream: int, piece: Piece) -> None:
    """Free memory after the pending work of a stream."""
    if piece.address:
        device.call("cuMemFreeAsync", piece.address, stream)
    piece.address = piece.size = 0


def free_abandoned(device: Device) -> None:
    """Free the resources of collected arenas, after the pending work of their streams."""
    for left in [a for a in _abandoned if a.device is device]:
        _abandoned.remove(left)
        for piece in left.pieces:
            _free(device, left.stream, piece)
        left.shared_streams.close()


def may_be_emptied(arena: Arena) -> None:
    """Allow an arena's memory to be freed where another allocation fails."""
    _emptied.add(arena)


def retried(allocate: Callable[[], T], failure: type[Exception], device: Device) -> T:
    """Return an allocation; on `failure`, free what programs cache between calls, and retry.

    PyTorch's cache of free blocks is emptied, too.
    """
    try:
        return allocate()
    except failure:
        free_abandoned(device)
    for arena in [a for a in _emptied if a.device is device]:
        arena.empty()
    device.call("cuCtxSynchronize")  # the pool returns free memory to the driver
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.cuda.empty_cache()
    return allocate()


_rooms: dict[tuple[Device, Hashable], Piece] = {}


def reserve_for_ranks(arena: Arena, size: int) -> int:
    """Return memory that other ranks may write, shared by programs that run serially.

    It is never freed, since other ranks map it and may replay captured graphs that use it; memory
    returned earlier stays valid, too.
    """
    piece = _rooms.setdefault((arena.device, arena.order), Piece(zeroed=False))
    if size > piece.size:
        piece.size = max(size, 2 * piece.size)
        piece.address = arena.device.allocate(piece.size, "what other ranks write")
    return piece.address


_held: list[Any] = []
"""Arrays of callers that other ranks have mapped."""


def hold(array: Any) -> None:
    """Keep an array alive until the process ends: other processes map its memory.

    Freeing memory that another process still maps is undefined behaviour in CUDA.
    """
    _held.append(array)
