"""Communication of host memory between processes, over sockets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fusec.dataclasses import dataclass
from fusec.diagnostics import InternalError
from fusec.hostir.instructions import Collective, Receive, Send, Share, Unshare
from fusec.ir.dtype import of_numpy
from fusec.ir.evaluate import Array
from fusec.run.distributed.links import Links
from fusec.run.transports.protocol import (
    Begin,
    Exchange,
    buffers_of,
    peer_place,
    receivers_of,
    root_place,
)
from fusec.run.transports.reads import HostReads
from fusec.run.transports.reduction import check_reduction, reduce_blocks

_POISON = 0xFF


@dataclass(frozen=True, eq=False)
class _Pending:
    """An operation whose blocks were sent, and how it finishes; `kept`: a copy of its source."""

    exchange: Exchange
    source: Array | None
    kept: Array | None
    finish: Callable[[], None]


class HostTransport:
    """Sends blocks when an operation starts, and receives those of peers when it is waited for.

    As on a GPU, results are valid only after the wait: targets are filled with a poison value until
    then, and a source that changes in the meantime is reported as a bug.
    """

    def __init__(self, links: Links) -> None:
        """Use the connections of this rank."""
        self._links = links
        self._pending: dict[str, list[_Pending]] = defaultdict(list)
        self._sent_and_received: list[_Pending] = []
        self._counts: dict[str, int] = defaultdict(int)
        self._reads = HostReads(links)

    def prepare(self, exchanges: Sequence[Begin]) -> None:
        """Let peers read what is shared; blocks are matched by their numbers."""
        self._reads.prepare(exchanges)

    def begin(
        self,
        exchange: Exchange,
        target: Array | None,
        source: Array | None,
        group: tuple[int, ...],
        place: int,
    ) -> None:
        """Send this rank's blocks."""
        self._links.check()
        _check(exchange, target, source, len(group))
        if isinstance(exchange, Share | Unshare):
            return self._reads.meet(exchange, group)
        kept = None if source is None else source.copy()
        match exchange:
            case Collective():
                finish = self._begin_collective(exchange, target, kept, group, place)
            case Send():
                finish = self._begin_send(exchange, kept, group, place)
            case Receive():
                finish = self._begin_receive(exchange, target, group, place)
        if target is not None:
            target.reshape(-1).view(np.uint8)[...] = _POISON
        apart = source is not None and (target is None or not np.may_share_memory(target, source))
        pending = _Pending(exchange, source if apart else None, kept, finish)
        if isinstance(exchange, Collective):
            for name in set(buffers_of(exchange)):
                self._pending[name].append(pending)
        else:
            self._sent_and_received.append(pending)

    def wait(self, buffer: str, stream: int) -> None:
        """Receive the blocks of the other ranks."""
        together = self._sent_and_received
        if any(buffer in buffers_of(p.exchange) for p in together):
            self._sent_and_received = []
            for pending in together:
                self._end(pending)
        for pending in self._pending.pop(buffer, ()):
            for name in set(buffers_of(pending.exchange)) - {buffer}:
                self._pending[name].remove(pending)
            self._end(pending)

    def view(self, buffer: str, place: int) -> Array:
        """Return the current contents of a shared buffer of the rank at `place`."""
        return self._reads.view(buffer, place)

    def check(self) -> None:
        """Raise RankFailure where a rank has died or failed."""
        self._links.check()

    def until(self, done: Callable[[], bool], doing: str) -> None:
        """Return once `done` holds."""
        self._links.until(done, doing)

    def close(self) -> None:
        """Drop operations that were never waited for; the connections stay open."""
        self._reads.close()
        self._pending.clear()
        self._sent_and_received = []

    def _end(self, pending: _Pending) -> None:
        source, kept = pending.source, pending.kept
        if source is not None and kept is not None and source.tobytes() != kept.tobytes():
            raise InternalError(
                f"the source of `{pending.exchange}` was written before the communication had "
                "finished",
                help="this is a bug in fusec; please report the fusion file and the sizes",
            )
        pending.finish()

    def _begin_collective(
        self,
        exchange: Collective,
        target: Array | None,
        source: Array | None,
        group: tuple[int, ...],
        place: int,
    ) -> Callable[[], None]:
        assert target is not None
        key = self._key(",".join(map(str, group)))
        blocks = None if source is None else _outgoing(exchange.kind, source, len(group))
        from_all = exchange.kind != "broadcast"
        root = place if from_all else root_place(exchange, place)
        receivers = receivers_of(exchange, len(group))
        if from_all or place == root:
            assert blocks is not None
            for there, rank in enumerate(group):
                if there != place and there in receivers:
                    self._send(rank, key, exchange, blocks[there])

        def block_of(there: int) -> Array:
            if there == place:
                assert blocks is not None
                return blocks[place]
            return self._receive(group[there], key, exchange, target.dtype)

        def finish() -> None:
            if place not in receivers:
                return
            places = range(len(group)) if from_all else [root]
            found = [block_of(there) for there in places]
            if exchange.kind in ("all_reduce", "reduce_scatter"):
                found = [reduce_blocks(found, exchange.reduction)]
            flat = target.reshape(-1)
            if sum(block.size for block in found) != flat.size:
                raise InternalError(f"`{exchange}` receives {found[0].size} elements per rank")
            flat[...] = np.concatenate(found)

        return finish

    def _begin_send(
        self, exchange: Send, source: Array | None, group: tuple[int, ...], place: int
    ) -> Callable[[], None]:
        assert source is not None
        to = group[peer_place(exchange, place)]
        self._send(to, self._key(f"to {to}"), exchange, source.reshape(-1))
        return lambda: None

    def _begin_receive(
        self, exchange: Receive, target: Array | None, group: tuple[int, ...], place: int
    ) -> Callable[[], None]:
        assert target is not None
        origin = group[peer_place(exchange, place)]
        number = self._number(f"from {origin}")

        def finish() -> None:
            block = self._receive(origin, f"to {self._links.rank} {number}", exchange, target.dtype)
            if block.size != target.size:
                raise InternalError(
                    f"`{exchange}` receives {block.size} elements, not {target.size}"
                )
            target.reshape(-1)[...] = block

        return finish

    def _key(self, name: str) -> str:
        return f"{name} {self._number(name)}"

    def _number(self, name: str) -> int:
        self._counts[name] += 1
        return self._counts[name]

    def _send(self, to: int, key: str, exchange: Exchange, block: Array) -> None:
        head = {"kind": _kind(exchange), "dtype": of_numpy(block.dtype).name}
        self._links.send(to, key, str(exchange), head, block.view(np.uint8))

    def _receive(self, origin: int, key: str, exchange: Exchange, dtype: Any) -> Array:
        message = self._links.receive(origin, key, str(exchange))
        expected = {"kind": _kind(exchange), "dtype": of_numpy(dtype).name}
        if message.head != expected:
            raise InternalError(
                f"rank {origin} is in a different collective than rank {self._links.rank}",
                notes=(f"`{exchange}` of {expected['dtype']} here", f"there {message.head}"),
            )
        with message.reading():
            return np.frombuffer(message.data, dtype)


def _kind(exchange: Exchange) -> str:
    """Return the kind of an operation, equal on its sender and receiver."""
    if isinstance(exchange, Collective):
        return " ".join(filter(None, (exchange.kind, exchange.reduction)))
    return "send"


def _outgoing(kind: str, source: Array, ranks: int) -> Sequence[Array]:
    """Return the block that goes to each rank of the group."""
    flat = source.reshape(-1)
    if kind in ("reduce_scatter", "all_to_all"):
        return list(flat.reshape(ranks, flat.size // ranks))
    return [flat] * ranks


def _check(exchange: Exchange, target: Array | None, source: Array | None, ranks: int) -> None:
    """Raise InternalError for memory that does not fit an operation, Unsupported for its type."""
    for array in (target, source):
        if array is not None and not array.flags.c_contiguous:
            raise InternalError(f"`{exchange}` uses memory that is not dense")
    if not isinstance(exchange, Collective):
        return
    divided = {"all_gather": target, "reduce_scatter": source, "all_to_all": source}
    whole = divided.get(exchange.kind)
    if exchange.ranks != ranks or (whole is not None and whole.size % ranks):
        raise InternalError(f"`{exchange}` among {ranks} ranks has unequal blocks")
    if exchange.kind in ("all_reduce", "reduce_scatter") and source is not None:
        check_reduction(exchange.reduction, of_numpy(source.dtype))
