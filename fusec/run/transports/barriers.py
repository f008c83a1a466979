"""Barriers in stream order between GPUs of one host, and memory that kernels read between them.

Each barrier has a word for each pair of its ranks, in the memory of the one that waits. It is put
back to 0 by that rank, and used again when all have passed the barrier behind it: between a `share`
and the next one lies an `unshare`. So a captured graph may be replayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusec.diagnostics import InternalError
from fusec.hostir.instructions import Share, Unshare
from fusec.run.device import Device
from fusec.run.links import Links
from fusec.run.operations import Flag, FlagOperations, Operation
from fusec.run.transports.mapped import WORD, MappedMemory, await_flag, write_flag
from fusec.run.transports.protocol import Begin


@dataclass(frozen=True)
class Barrier:
    """The flags of a barrier: a stream writes one of each other rank, then waits for its own."""

    flags: tuple[Flag, ...]


class Barriers:
    """What ranks share of their memory, and the barriers around it."""

    def __init__(self, links: Links, device: Device, mapped: MappedMemory) -> None:
        """Share nothing yet; `mapped`: where other ranks' memory is."""
        self._links, self._device, self._mapped = links, device, mapped
        self._flags = 0
        self._views: dict[str, tuple[int, ...]] = {}

    def prepare(self, exchanges: Sequence[Begin]) -> list[Barrier | None]:
        """Return the barrier of each exchange that is one; all ranks of the run call it."""
        met = Counter[tuple[int, ...]]()
        words, names = 0, list[tuple[str, int] | None]()
        for begin in exchanges:
            if not isinstance(begin.exchange, Share | Unshare):
                names.append(None)
                continue
            met[begin.group] += 1
            names.append((f"{begin.group} {met[begin.group]}", words))
            words += len(begin.group)
        wanted: list[bool] = self._links.gather(words > 0, "start of barriers")
        if not any(wanted):
            return [None] * len(exchanges)
        self._flags = self._device.allocate(WORD * max(words, 1), "flags of barriers")
        self._device.fill(self._flags, 0, WORD * max(words, 1))
        self._device.synchronise("clearing flags")
        told = self._links.gather(self._told(exchanges, names), "what is shared")
        pairs = zip(exchanges, names, strict=True)
        return [None if name is None else self._barrier(b, *name, told) for b, name in pairs]

    def _told(
        self, exchanges: Sequence[Begin], names: Sequence[tuple[str, int] | None]
    ) -> dict[str, Any]:
        """Return what the others need to know: where this rank's flags and shared memory are."""
        barriers = dict[str, Any]()
        for begin, name in zip(exchanges, names, strict=True):
            if name is not None:
                shared = isinstance(begin.exchange, Share)
                where = self._mapped.handle(begin.source.address) if shared else None
                barriers[name[0]] = [name[1], where, begin.source.size]
        return {"flags": self._mapped.handle(self._flags), "barriers": barriers}

    def _barrier(
        self, begin: Begin, name: str, first: int, told: Sequence[dict[str, Any]]
    ) -> Barrier:
        views, told_to, waited_for = list[int](), list[Flag](), list[Flag]()
        for place, rank in enumerate(begin.group):
            there = told[rank]["barriers"].get(name)
            if there is None or there[2] != begin.source.size:
                raise InternalError(f"rank {rank} does not come to `{begin.exchange}`")
            word, where, _ = there
            if place != begin.place:
                flags = self._mapped.at(rank, *told[rank]["flags"])
                told_to += write_flag(flags + WORD * (word + begin.place), 1)
                waited_for += await_flag(self._flags + WORD * (first + place))
            if where is not None:
                views.append(self._mapped.at(rank, *where))
        if isinstance(begin.exchange, Share):
            self._views[begin.exchange.source] = tuple(views)
        return Barrier((*told_to, *waited_for))

    def meet(self, barrier: Barrier, stream: int) -> list[Operation]:
        """Return what lets a stream wait until those of all ranks of the group have come here."""
        flags = barrier.flags
        return [FlagOperations.of(self._device, stream, flags)] if flags else []

    def view(self, buffer: str, place: int) -> int:
        """Return where this rank's kernels read what the rank at a place shares."""
        return self._views[buffer][place]

    def forget(self) -> int:
        """Return the flags' memory, 0 where there is none, which others may still have mapped."""
        flags, self._flags, self._views = self._flags, 0, {}
        return flags
