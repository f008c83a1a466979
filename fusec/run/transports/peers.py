"""Exchanges of device memory by copy engines between the GPUs of one host: no SM takes part.

Each rank maps the memory of the others' targets (CUDA IPC) and copies its blocks there. Two flags
in device memory order a copy with what comes before and after it on both GPUs: `free` on the
sender's says that the target may be written, `arrived` on the receiver's that it was. Streams wait
for and write them by themselves, and each is put back to 0 by the one that waited for it, so that a
captured graph may be replayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fusec.diagnostics import InternalError
from fusec.hostir.instructions import Collective, Receive, Send, Share, Unshare
from fusec.run.device import Device
from fusec.run.links import Links
from fusec.run.transports.barriers import Barrier, Barriers
from fusec.run.transports.mapped import WORD, MappedMemory, await_flag, write_flag
from fusec.run.transports.protocol import (
    Begin,
    DeviceMemory,
    Exchange,
    buffers_of,
    peer_place,
    root_place,
)
from fusec.run.transports.streams import Names, SideStream


@dataclass(frozen=True)
class Piece:
    """Bytes that one exchange moves out of, or into, one rank's memory.

    peer: the rank at the other end. address: of this rank's memory. number: of the piece among
    those between the two ranks in this direction.
    """

    peer: int
    address: int
    size: int
    number: int


@dataclass(frozen=True)
class Flags:
    """Two words of memory: `free` where the sender is, `arrived` where the receiver is."""

    free: int
    arrived: int


@dataclass(frozen=True)
class _Copy:
    """A piece to send, where it goes, and its flags as this rank sees them."""

    piece: Piece
    target: int
    flags: Flags


@dataclass(frozen=True)
class _Arrival:
    """A piece to receive, and its flags as this rank sees them."""

    piece: Piece
    flags: Flags


@dataclass(frozen=True)
class _Plan:
    """All that one exchange does on this rank with others."""

    begin: Begin
    copies: tuple[_Copy, ...]
    arrivals: tuple[_Arrival, ...]
    barrier: Barrier | None = None


class PeerTransport:
    """Copies into the memory of other ranks, on a stream for each, and lets them read its own."""

    def __init__(
        self, links: Links, device: Device, sides: dict[int, SideStream] | None = None
    ) -> None:
        """Use a device whose peers' memory it can reach; `sides`: streams by rank to share."""
        self._links, self._device = links, device
        self._sides = {} if sides is None else sides
        self._names = Names()
        self._plans: list[_Plan] = []
        self._next = 0
        self._flags = 0
        self._mapped = MappedMemory(links, device)
        self._barriers = Barriers(links, device, self._mapped)

    def prepare(self, exchanges: Sequence[Begin]) -> None:
        """Map the memory of the other ranks; all ranks of the run call it.

        Sources may lie elsewhere each time that an exchange is begun, targets and what is shared
        may not.
        """
        self._forget()
        cut = [_pieces(begin) for begin in exchanges]
        counts: dict[tuple[str, int], int] = defaultdict(int)
        sent, received = list[tuple[int, Piece]](), list[tuple[int, Piece]]()
        for k, (out, into, _) in enumerate(cut):
            for way, pieces, kept in (("out", out, sent), ("into", into, received)):
                for peer, address, size in pieces:
                    kept.append((k, Piece(peer, address, size, counts[way, peer])))
                    counts[way, peer] += 1
        self._flags = self._device.allocate(WORD * (len(sent) + len(received)), "flags")
        self._device.fill(self._flags, 0, WORD * (len(sent) + len(received)))
        self._device.synchronise("clearing flags")
        told = self._tell([p for _, p in sent], [p for _, p in received])
        copies = self._copies(sent, told)
        arrivals = self._arrivals(received, len(sent), told)
        barriers = self._barriers.prepare(exchanges)
        self._plans = [
            _Plan(begin, tuple(copies[k]), tuple(arrivals[k]), barrier)
            for k, (begin, barrier) in enumerate(zip(exchanges, barriers, strict=True))
        ]

    def begin(
        self, exchange: Exchange, target: Any, source: Any, group: tuple[int, ...], place: int
    ) -> None:
        """Say that targets may be written, and copy when the others have said so."""
        self._links.check()
        begin = Begin(exchange, target, source, group, place)
        plan = self._planned(begin)
        if plan.barrier is not None:
            return self._barriers.meet(plan.barrier, source)
        out, _, own = _pieces(begin)
        memory: DeviceMemory = source if target is None else target
        stream, key = memory.stream, buffers_of(exchange)[0]
        for arrival in plan.arrivals:
            write_flag(self._device, stream, arrival.flags.free, 1)
        used = set[int]()
        for to, origin, size in own:
            side = self._side(self._links.rank)
            side.follow(stream, key)
            self._copy(side, to, origin, size)
            used.add(self._links.rank)
        for copy, (_, origin, size) in zip(plan.copies, out, strict=True):
            side = self._side(copy.piece.peer)
            side.follow(stream, key)
            await_flag(self._device, side.handle, copy.flags.free)
            self._copy(side, copy.target, origin, size)
            write_flag(self._device, side.handle, copy.flags.arrived, 1)
            used.add(copy.piece.peer)
        for peer in used:
            self._side(peer).mark(key)
        self._names.add(buffers_of(exchange), _Open(plan, key, tuple(sorted(used))))

    def wait(self, buffer: str, stream: int) -> None:
        """Let a stream wait until what came has arrived, and what went is gone."""
        found: list[_Open] = self._names.take(buffer)
        if any(entry.joined for entry in found):
            found += self._names.take_all(lambda entry: entry.joined)
        for entry in found:
            for peer in entry.used:
                self._side(peer).release(stream, entry.key)
            for arrival in entry.plan.arrivals:
                await_flag(self._device, stream, arrival.flags.arrived)

    def view(self, buffer: str, place: int) -> int:
        """Return where kernels read what the rank at a place shares."""
        return self._barriers.view(buffer, place)

    def check(self) -> None:
        """Raise RankFailure where a rank has died or failed."""
        self._links.check()

    def until(self, done: Callable[[], bool], doing: str) -> None:
        """Return when something is done."""
        self._links.until(done, doing)

    def close(self) -> None:
        """Unmap the others' memory."""
        self._forget()
        for side in self._sides.values():
            side.close()
        self._sides.clear()

    def _planned(self, begin: Begin) -> _Plan:
        """Return what was prepared for an exchange: the next in turn."""
        if not self._plans:
            raise InternalError(f"`{begin.exchange}` was not prepared")
        plan = self._plans[self._next]
        self._next = (self._next + 1) % len(self._plans)
        if _form(plan.begin) != _form(begin):
            raise InternalError(
                f"`{begin.exchange}` is begun where `{plan.begin.exchange}` was prepared"
            )
        return plan

    def _tell(self, sent: list[Piece], received: list[Piece]) -> list[dict[str, Any]]:
        """Exchange with all ranks where targets and flags are."""
        own = {
            "flags": self._mapped.handle(self._flags),
            "sent": {_name(p): k for k, p in enumerate(sent)},
            "received": {
                _name(p): [*self._mapped.handle(p.address), p.size, len(sent) + k]
                for k, p in enumerate(received)
            },
        }
        return self._links.gather(own, "start of peer copies")

    def _copies(
        self, sent: list[tuple[int, Piece]], told: list[dict[str, Any]]
    ) -> dict[int, list[_Copy]]:
        """Return what each exchange copies."""
        copies: dict[int, list[_Copy]] = defaultdict(list)
        for number, (k, piece) in enumerate(sent):
            theirs = told[piece.peer]
            found = theirs["received"].get(f"{self._links.rank} {piece.number}")
            if found is None or found[2] != piece.size:
                raise InternalError(f"rank {piece.peer} does not receive what rank "
                                    f"{self._links.rank} sends")  # fmt: skip
            handle, offset, _, word = found
            arrived = self._mapped.at(piece.peer, *theirs["flags"]) + WORD * word
            flags = Flags(self._flags + WORD * number, arrived)
            copies[k].append(_Copy(piece, self._mapped.at(piece.peer, handle, offset), flags))
        return copies

    def _arrivals(
        self, received: list[tuple[int, Piece]], before: int, told: list[dict[str, Any]]
    ) -> dict[int, list[_Arrival]]:
        """Return what comes in each exchange; `before`: words of flags that stand before theirs."""
        arrivals: dict[int, list[_Arrival]] = defaultdict(list)
        for number, (k, piece) in enumerate(received):
            theirs = told[piece.peer]
            word = theirs["sent"].get(f"{self._links.rank} {piece.number}")
            if word is None:
                raise InternalError(f"rank {piece.peer} does not send what rank "
                                    f"{self._links.rank} receives")  # fmt: skip
            free = self._mapped.at(piece.peer, *theirs["flags"]) + WORD * word
            own = self._flags + WORD * (before + number)
            arrivals[k].append(_Arrival(piece, Flags(free, own)))
        return arrivals

    def _forget(self) -> None:
        """Unmap what is mapped; memory is given back when no rank maps it any more."""
        self._plans, self._next = [], 0
        self._mapped.forget()
        barriers = self._barriers.forget()
        if self._flags:
            if not self._links.failed:
                self._links.gather(None, "end of peer copies")
            for flags in filter(None, (self._flags, barriers)):
                self._device.free(flags)
            self._flags = 0

    def _side(self, peer: int) -> SideStream:
        if peer not in self._sides:
            self._sides[peer] = SideStream(self._device)
        return self._sides[peer]

    def _copy(self, side: SideStream, to: int, origin: int, size: int) -> None:
        if size and to != origin:
            self._device.call("cuMemcpyDtoDAsync", to, origin, size, side.handle)


@dataclass(frozen=True)
class _Open:
    """An exchange that was begun: `used` are the ranks whose streams have a part in it."""

    plan: _Plan
    key: str
    used: tuple[int, ...]

    @property
    def joined(self) -> bool:
        """Return whether it ends together with all that is sent and received."""
        return not isinstance(self.plan.begin.exchange, Collective)


Cut = list[tuple[int, int, int]]
"""Pieces: the rank at the other end (of own ones the target), an address here, and bytes."""


def _pieces(begin: Begin) -> tuple[Cut, Cut, Cut]:
    """Return what an exchange moves out of this rank's memory, into it, and inside of it."""
    exchange, group, place = begin.exchange, begin.group, begin.place
    match exchange:
        case Send():
            memory: DeviceMemory = begin.source
            return [(group[peer_place(exchange, place)], memory.address, memory.size)], [], []
        case Receive():
            memory = begin.target
            return [], [(group[peer_place(exchange, place)], memory.address, memory.size)], []
        case Collective():
            return _collective_pieces(begin, exchange)
        case Share() | Unshare():
            return [], [], []  # kernels read it


def _collective_pieces(begin: Begin, exchange: Collective) -> tuple[Cut, Cut, Cut]:
    group, place, target = begin.group, begin.place, begin.target
    source: DeviceMemory = target if begin.source is None else begin.source
    others = [(p, rank) for p, rank in enumerate(group) if p != place]
    if exchange.kind == "broadcast":
        root = root_place(exchange, place)
        if root != place:
            return [], [(group[root], target.address, target.size)], []
        out = [(rank, source.address, source.size) for _, rank in others]
        return out, [], [(target.address, source.address, source.size)]
    block = target.size // len(group)
    # Each rank gives its whole source to all, or a block to each.
    step = {"all_gather": 0, "all_to_all": block}.get(exchange.kind)
    if step is None:
        raise InternalError(f"copy engines cannot do `{exchange}`")
    out = [(rank, source.address + p * step, block) for p, rank in others]
    into = [(rank, target.address + p * block, block) for p, rank in others]
    own = (target.address + place * block, source.address + place * step, block)
    return out, into, [own]


def _form(begin: Begin) -> Begin:
    """Return an exchange but for the place of its source, where others do not read that."""
    if begin.source is None or isinstance(begin.exchange, Share):
        return begin
    return replace(begin, source=replace(begin.source, address=0))


def _name(piece: Piece) -> str:
    return f"{piece.peer} {piece.number}"
