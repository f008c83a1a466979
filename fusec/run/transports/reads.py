"""Peer memory that a rank reads in place, over sockets, between two barriers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fusec.diagnostics import InternalError
from fusec.hostir.instructions import Share, Unshare
from fusec.ir.evaluate import Array
from fusec.run.distributed.links import Links
from fusec.run.transports.protocol import Begin


class HostReads:
    """Serves reads of shared memory with its current contents, concurrently with this rank's work.

    As on a GPU, only the barriers keep a reader from data that is not written yet, or overwritten.
    """

    def __init__(self, links: Links) -> None:
        """Share nothing yet."""
        self._links = links
        self._shared: dict[str, Begin] = {}
        self._met = Counter[tuple[int, ...]]()

    def prepare(self, exchanges: Sequence[Begin]) -> None:
        """Let the peers read what is to be shared; collective over all ranks."""
        shares = {b.exchange.source: b for b in exchanges if isinstance(b.exchange, Share)}
        self._shared = shares
        if shares:
            self._links.serve(self._bytes_of)

    def meet(self, exchange: Share | Unshare, group: tuple[int, ...]) -> None:
        """Return once all ranks of a group have reached this operation."""
        self._met[group] += 1
        key, doing = f"meet {group} {self._met[group]}", str(exchange)
        others = [rank for rank in group if rank != self._links.rank]
        for rank in others:
            self._links.send(rank, key, doing, {"at": doing})
        for rank in others:
            there = self._links.receive(rank, key, doing).field("at", str)
            if there != doing:
                raise InternalError(
                    f"rank {rank} is in a different collective than rank {self._links.rank}",
                    notes=(f"`{doing}` here", f"`{there}` there"),
                )

    def view(self, buffer: str, place: int) -> Array:
        """Return the current contents of a shared buffer of the rank at `place` in the group."""
        begin = self._shared[buffer]
        own: Array = begin.source.reshape(-1)
        if place == begin.place:
            return own
        doing = f"read {buffer} over {begin.exchange.axis}: {place}"
        data = self._links.read(begin.group[place], buffer, doing)
        if data is None or len(data) != own.nbytes:
            raise InternalError(f"rank {begin.group[place]} does not share `{buffer}`")
        return np.frombuffer(data, own.dtype)

    def close(self) -> None:
        """Stop sharing."""
        self._shared = {}

    def _bytes_of(self, name: str) -> Any:
        begin = self._shared.get(name)
        return None if begin is None else begin.source.reshape(-1).view(np.uint8).copy()
