"""Barriers in stream order between GPUs of one host, and memory that peers read in place.

A barrier is a kernel on each GPU (`barrier.cu`). For each pair of ranks it has words in the memory
of the waiting rank, and counts its rounds there, so that a captured graph can be replayed.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fusec.dataclasses import dataclass
from fusec.diagnostics import InternalError
from fusec.hostir.instructions import Share, Unshare
from fusec.run.device import Device
from fusec.run.distributed.links import Links
from fusec.run.operations import FIXED, LaunchKernel, Operation, Place
from fusec.run.transports.kernels import TransportKernels
from fusec.run.transports.mapped import WORD, MappedMemory
from fusec.run.transports.protocol import Begin

SOURCE = Path(__file__).with_name("barrier.cu")
MOST_BARRIER_RANKS = 16
"""Maximum number of ranks in a barrier: `fusec::kMostBarrierRanks`."""
STATE_BYTES = 2 * WORD
"""Bytes of a barrier's state per rank: `fusec::BarrierWords`."""


class BarrierPeers(ctypes.Structure):
    """The kernel's last parameter, `fusec::BarrierPeers`."""

    _fields_ = (("arrived", ctypes.c_uint64 * MOST_BARRIER_RANKS),)


@dataclass(frozen=True)
class Barrier:
    """A barrier as this rank sees it.

    words: the address of its state here. arrived: for each rank of the group, the address of the
    word that this rank writes there; 0 for itself.
    """

    words: int
    arrived: tuple[int, ...]


class Barriers:
    """Memory that ranks share with their peers, and the barriers around its use."""

    def __init__(
        self, links: Links, device: Device, mapped: MappedMemory, kernels: TransportKernels | None
    ) -> None:
        """Share nothing yet; `mapped`: addresses of peer memory.

        kernels: None where not all ranks can build them; nothing may be shared then.
        """
        self._links, self._device, self._mapped = links, device, mapped
        self._kernels = kernels
        self._words = 0
        self._views: dict[str, tuple[int, ...]] = {}

    def prepare(self, exchanges: Sequence[Begin]) -> list[Barrier | None]:
        """Return a barrier for each `Share` or `Unshare`, None for others; all ranks call it."""
        met = Counter[tuple[int, ...]]()
        size, names = 0, list[tuple[str, int] | None]()
        for begin in exchanges:
            if not isinstance(begin.exchange, Share | Unshare):
                names.append(None)
                continue
            met[begin.group] += 1
            names.append((f"{begin.group} {met[begin.group]}", size))
            size += STATE_BYTES * len(begin.group)
        wanted: list[bool] = self._links.gather(size > 0, "start of barriers")
        if not any(wanted):
            return [None] * len(exchanges)
        if size > 0:
            self._function()  # built before any rank waits
        self._words = self._device.allocate(max(size, 1), "words of barriers")
        self._device.fill(self._words, 0, max(size, 1))
        self._device.synchronise("clearing words of barriers")
        announced = self._links.gather(self._announcement(exchanges, names), "what is shared")
        pairs = zip(exchanges, names, strict=True)
        return [None if name is None else self._barrier(b, *name, announced) for b, name in pairs]

    def _announcement(
        self, exchanges: Sequence[Begin], names: Sequence[tuple[str, int] | None]
    ) -> dict[str, Any]:
        """Return what peers need: the addresses of this rank's barrier words and shared memory."""
        barriers = dict[str, Any]()
        for begin, name in zip(exchanges, names, strict=True):
            if name is not None:
                shared = isinstance(begin.exchange, Share)
                where = self._mapped.handle(begin.source.address) if shared else None
                barriers[name[0]] = [name[1], where, begin.source.size]
        return {"words": self._mapped.handle(self._words), "barriers": barriers}

    def _barrier(
        self, begin: Begin, name: str, offset: int, announced: Sequence[dict[str, Any]]
    ) -> Barrier:
        views, arrived = list[int](), list[int]()
        for place, rank in enumerate(begin.group):
            there = announced[rank]["barriers"].get(name)
            if there is None or there[2] != begin.source.size:
                raise InternalError(f"rank {rank} does not reach `{begin.exchange}`")
            first, where, _ = there
            words = self._mapped.at(rank, *announced[rank]["words"]) + first
            own = place == begin.place
            arrived.append(0 if own else words + STATE_BYTES * begin.place + WORD)
            if where is not None:
                views.append(self._mapped.at(rank, *where))
        if isinstance(begin.exchange, Share):
            self._views[begin.exchange.source] = tuple(views)
        return Barrier(self._words + offset, tuple(arrived))

    def _function(self) -> Any:
        if self._kernels is None:
            raise InternalError("peer memory is mapped, but not all ranks can build barriers")
        return self._kernels.load(SOURCE, "barrier")

    def operations(self, barrier: Barrier, stream: int) -> list[Operation]:
        """Return operations that block a stream until the streams of all ranks get here."""
        ranks = len(barrier.arrived)
        if ranks == 1:
            return []
        peers = BarrierPeers((ctypes.c_uint64 * MOST_BARRIER_RANKS)(*barrier.arrived))
        words, function = Place(FIXED, barrier.words), self._function()
        return [LaunchKernel("barrier", function, 1, ranks, (words,), (peers,), stream)]

    def view(self, buffer: str, place: int) -> int:
        """Return the address at which this rank's kernels read memory that `place` shares."""
        return self._views[buffer][place]

    def forget(self) -> int:
        """Return the memory of the words, 0 where there is none; peers may still have it mapped."""
        words, self._words, self._views = self._words, 0, {}
        return words
