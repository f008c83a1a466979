"""Memory that the kernels of a program share between calls, one piece for each stream."""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from fusec.hostir.placement import ALIGNMENT
from fusec.run.device import Device
from fusec.run.streams import Shared


@dataclass
class Piece:
    """One allocation, which grows; zeroed: it holds zeros whenever no kernel runs."""

    zeroed: bool
    address: int = 0
    size: int = 0


@dataclass
class Arena:
    """What the calls of one program on one stream share; the one that is issued holds `issuing`.

    Kernels of a stream run in order, so all sizes use the same memory: `scratch` for temporaries,
    `counters` for what is zeroed once and left so. generation: grows with every new address.
    busy: 1 while a call is issued. Both lie at fixed addresses, for the helper to read.
    capture: the number of the capture that the stream takes part in, None where it runs its work.
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
        """Return what tells apart the arenas whose programs may run at the same time."""
        return self.stream if self.capture is None else ("capture", self.capture)

    def __post_init__(self) -> None:
        """Have streams beside the one that calls are given, for programs that use several."""
        self.beside = Shared(self.device)

    @contextmanager
    def issuing(self) -> Generator[None]:
        """Keep other calls away while one is issued: their launches must not mix."""
        with self.lock:
            self.busy.value = 1
            try:
                yield
            finally:
                self.busy.value = 0

    def reserve(self, scratch: int, counters: int) -> None:
        """Have at least so many bytes; in the order of the stream, which goes on meanwhile."""
        for piece, size in ((self.scratch, scratch), (self.counters, counters)):
            if size > piece.size:
                self._grow(piece, max(size, 2 * piece.size))

    def _grow(self, piece: Piece, size: int) -> None:
        self._release(piece)
        what = f"{size} bytes for what kernels share"
        piece.address = int(self.device.call("cuMemAllocAsync", size, self.stream, what=what))
        piece.size = size
        if piece.zeroed:
            self.device.call("cuMemsetD8Async", piece.address, 0, size, self.stream)
        self.generation.value += 1

    def _release(self, piece: Piece) -> None:
        if piece.address:
            self.device.call("cuMemFreeAsync", piece.address, self.stream)
        piece.address = piece.size = 0

    def state(self, pair: tuple[int, int], stream: int) -> int:
        """Return the address of the generator's seed and offset, written in a stream's order."""
        if not self.pair.size:
            self._grow(self.pair, ALIGNMENT)
        words = (ctypes.c_uint64 * 2)(*pair)
        copied = self.pair.address, ctypes.addressof(words), ctypes.sizeof(words), stream
        self.device.call("cuMemcpyHtoDAsync", *copied)
        return self.pair.address

    def close(self) -> None:
        """Give the memory back, after what runs on the stream."""
        for piece in (self.scratch, self.counters, self.pair):
            self._release(piece)
        self.beside.close()


_rooms: dict[tuple[Device, Hashable], Piece] = {}


def room(arena: Arena, size: int) -> int:
    """Return memory that other ranks may write, used by programs that follow each other.

    It stays as long as the process, for others map it, and graphs of others may be replayed; what
    was handed out before stays, too.
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
