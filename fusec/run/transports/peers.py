"""Communication of device memory by copy engines between GPUs of one host, without using SMs.

Each rank maps the peers' target memory (CUDA IPC) and copies its blocks there. Two flags in device
memory order a copy with the work before and after it on both GPUs: `free` on the sender's GPU says
that the target may be written, `arrived` on the receiver's GPU that it was. Streams wait for flags
and write them without the CPU, and the stream that waits for a flag resets it to 0, so that a
captured graph can be replayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import InternalError
from fusec.hostir.instructions import Collective, Share
from fusec.run.device import Device
from fusec.run.distributed.links import Links
from fusec.run.operations import (
    FIXED,
    CopyMemory,
    Flag,
    FlagOperations,
    Operation,
    Place,
    issue_all,
)  # fmt: skip
from fusec.run.transports.barriers import Barrier, Barriers
from fusec.run.transports.chunks import chunks_of
from fusec.run.transports.kernels import TransportKernels
from fusec.run.transports.mapped import WORD, MappedMemory, await_flag, write_flag
from fusec.run.transports.protocol import (
    Begin,
    DeviceMemory,
    Exchange,
    buffers_of,
)
from fusec.run.transports.streams import Names, SideStream


@dataclass(frozen=True)
class Piece:
    """A contiguous byte range that one operation copies out of, or into, one rank's memory.

    peer: the rank at the other end. address: of this rank's memory when it is prepared. number:
    index among the pieces between the two ranks in this direction.
    """

    peer: int
    address: int
    size: int
    number: int


@dataclass(frozen=True)
class Flags:
    """The addresses of two flags: `free` on the sender's GPU, `arrived` on the receiver's."""

    free: int
    arrived: int


@dataclass(frozen=True)
class _Copy:
    """A piece to send, its target address, and its flags as mapped on this rank."""

    piece: Piece
    target: int
    flags: Flags


@dataclass(frozen=True)
class _Arrival:
    """A piece to receive, and its flags as mapped on this rank."""

    piece: Piece
    flags: Flags


@dataclass(frozen=True)
class _Plan:
    """The work of one communication operation between this rank and its peers."""

    begin: Begin
    copies: tuple[_Copy, ...]
    arrivals: tuple[_Arrival, ...]
    barrier: Barrier | None = None


class PeerTransport:
    """Copies into peer memory, one stream per peer, and lets peers read this rank's memory."""

    def __init__(
        self, links: Links, device: Device, sides: dict[int, SideStream] | None = None,
        kernels: TransportKernels | None = None,
    ) -> None:  # fmt: skip
        """Use a device that can access its peers' memory; `sides`: streams by rank to share.

        kernels: of barriers, None where no memory is shared.
        """
        self._links, self._device = links, device
        self._sides = {} if sides is None else sides
        self._names = Names()
        self._plans: list[_Plan] = []
        self._next = 0
        self._flags = 0
        self._mapped = MappedMemory(links, device)
        self._barriers = Barriers(links, device, self._mapped, kernels)

    def prepare(self, exchanges: Sequence[Begin]) -> None:
        """Map the memory of the other ranks; collective over all ranks.

        Source addresses may change from one run to the next; targets and shared memory stay in
        place.
        """
        self._forget()
        cut = [chunks_of(begin) for begin in exchanges]
        counts: dict[tuple[str, int], int] = defaultdict(int)
        sent, received = list[tuple[int, Piece]](), list[tuple[int, Piece]]()
        for k, (out, into, _) in enumerate(cut):
            for way, pieces, kept in (("out", out, sent), ("into", into, received)):
                for peer, place, size in pieces:
                    address = _address(exchanges[k], place)
                    kept.append((k, Piece(peer, address, size, counts[way, peer])))
                    counts[way, peer] += 1
        self._flags = self._device.allocate(WORD * (len(sent) + len(received)), "flags")
        self._device.fill(self._flags, 0, WORD * (len(sent) + len(received)))
        self._device.synchronise("clearing flags")
        announced = self._tell([p for _, p in sent], [p for _, p in received])
        copies = self._copies(sent, announced)
        arrivals = self._arrivals(received, len(sent), announced)
        barriers = self._barriers.prepare(exchanges)
        self._plans = [
            _Plan(begin, tuple(copies[k]), tuple(arrivals[k]), barrier)
            for k, (begin, barrier) in enumerate(zip(exchanges, barriers, strict=True))
        ]

    def begin(
        self, exchange: Exchange, target: Any, source: Any, group: tuple[int, ...], place: int
    ) -> None:
        """Signal that targets may be written, and copy once the peers have signalled the same."""
        self._links.check()
        begin = Begin(exchange, target, source, group, place)
        issue_all(self._device, self.begin_operations(begin))

    def begin_operations(self, begin: Begin) -> list[Operation]:
        """Return operations that signal free targets, and copy once the peers have done so."""
        plan = self._planned(begin)
        if plan.barrier is not None:
            return self._barriers.operations(plan.barrier, begin.source.stream)
        out, _, own = chunks_of(begin)
        exchange = begin.exchange
        memory: DeviceMemory = begin.source if begin.target is None else begin.target
        stream, key = memory.stream, buffers_of(exchange)[0]
        free = [flag for a in plan.arrivals for flag in write_flag(a.flags.free, 1)]
        made = self._flags_on(stream, free)
        joins = _joins(begin)
        used = set[int]()
        for to, origin, size in own:
            made += self._follow(self._links.rank, stream, key, joins, used)
            made += _copied(to, origin, size, self._stream(self._links.rank, stream, joins))
        for copy, (_, origin, size) in zip(plan.copies, out, strict=True):
            peer = copy.piece.peer
            made += self._follow(peer, stream, key, joins, used)
            on = self._stream(peer, stream, joins)
            made += self._flags_on(on, await_flag(copy.flags.free))
            made += _copied(Place(FIXED, copy.target), origin, size, on)
            made += self._flags_on(on, write_flag(copy.flags.arrived, 1))
        for peer in used:
            made += self._side(peer).mark(key)
        self._names.add(buffers_of(exchange), _Open(plan, key, tuple(sorted(used))))
        return made

    def wait(self, buffer: str, stream: int) -> None:
        """Make a stream wait until all receives have arrived and all sends are done."""
        issue_all(self._device, self.wait_operations(buffer, stream))

    def wait_operations(self, buffer: str, stream: int) -> list[Operation]:
        """Return operations that make a stream wait until all receives and sends are done."""
        found: list[_Open] = self._names.take(buffer)
        if any(entry.joined for entry in found):
            found += self._names.take_all(lambda entry: entry.joined)
        made = list[Operation]()
        for entry in found:
            for peer in entry.used:
                made += self._side(peer).release(stream, entry.key)
            arrived = [f for a in entry.plan.arrivals for f in await_flag(a.flags.arrived)]
            made += self._flags_on(stream, arrived)
        return made

    def view(self, buffer: str, place: int) -> int:
        """Return the address at which kernels read what the rank at `place` shares."""
        return self._barriers.view(buffer, place)

    def check(self) -> None:
        """Raise RankFailure where a rank has died or failed."""
        self._links.check()

    def until(self, done: Callable[[], bool], doing: str) -> None:
        """Return once `done` holds."""
        self._links.until(done, doing)

    @property
    def failure_address(self) -> int:
        """Return the address of a word that is not 0 once a rank has failed."""
        return self._links.failure_address

    def close(self) -> None:
        """Unmap the others' memory."""
        self._forget()
        for side in self._sides.values():
            side.close()
        self._sides.clear()

    def _planned(self, begin: Begin) -> _Plan:
        """Return the plan of a communication operation, checked against the next one in order."""
        if not self._plans:
            raise InternalError(f"`{begin.exchange}` was not prepared")
        plan = self._plans[self._next]
        self._next = (self._next + 1) % len(self._plans)
        if _form(plan.begin) != _form(begin):
            raise InternalError(
                f"`{begin.exchange}` is started where `{plan.begin.exchange}` was prepared"
            )
        return plan

    def _tell(self, sent: list[Piece], received: list[Piece]) -> list[dict[str, Any]]:
        """Gather from all ranks the addresses of targets and flags."""
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
        self, sent: list[tuple[int, Piece]], announced: list[dict[str, Any]]
    ) -> dict[int, list[_Copy]]:
        """Return the copies of each communication operation, by its index."""
        copies: dict[int, list[_Copy]] = defaultdict(list)
        for number, (k, piece) in enumerate(sent):
            theirs = announced[piece.peer]
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
        self, received: list[tuple[int, Piece]], before: int, announced: list[dict[str, Any]]
    ) -> dict[int, list[_Arrival]]:
        """Return the arrivals of each operation; `before`: flag words that precede theirs."""
        arrivals: dict[int, list[_Arrival]] = defaultdict(list)
        for number, (k, piece) in enumerate(received):
            theirs = announced[piece.peer]
            word = theirs["sent"].get(f"{self._links.rank} {piece.number}")
            if word is None:
                raise InternalError(f"rank {piece.peer} does not send what rank "
                                    f"{self._links.rank} receives")  # fmt: skip
            free = self._mapped.at(piece.peer, *theirs["flags"]) + WORD * word
            own = self._flags + WORD * (before + number)
            arrivals[k].append(_Arrival(piece, Flags(free, own)))
        return arrivals

    def _forget(self) -> None:
        """Unmap all memory; this rank's flags are freed once no other rank maps them."""
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

    def _follow(
        self, peer: int, stream: int, key: str, joins: bool, used: set[int]
    ) -> list[Operation]:
        """Return operations that make a peer's stream, if distinct, follow the issuing stream."""
        if joins:
            return []
        used.add(peer)
        return self._side(peer).follow(stream, key)

    def _stream(self, peer: int, stream: int, joins: bool) -> int:
        return stream if joins else self._side(peer).handle

    def _flags_on(self, stream: int, flags: Iterable[Flag]) -> list[Operation]:
        made = FlagOperations.of(self._device, stream, flags)
        return [made] if made.flags else []


@dataclass(frozen=True)
class _Open:
    """A communication operation in flight; `used`: the ranks whose streams take part in it."""

    plan: _Plan
    key: str
    used: tuple[int, ...]

    @property
    def joined(self) -> bool:
        """Return whether it completes together with all pending sends and receives."""
        return not isinstance(self.plan.begin.exchange, Collective)


INLINE_BYTES = 1 << 20
"""Bytes per peer up to which an immediately awaited collective runs on its own stream only.

Side streams cost two events and their waits, which take longer than serial copies of this size.
"""


def _joins(begin: Begin) -> bool:
    """Return whether a communication operation runs entirely on its own stream.

    Never for sends and receives: a rank signals that it may receive only after what it sends.
    """
    return (
        begin.waits_immediately
        and isinstance(begin.exchange, Collective)
        and begin.target.size // len(begin.group) <= INLINE_BYTES
    )


def _copied(target: Place, source: Place, size: int, stream: int) -> list[Operation]:
    return [CopyMemory(target, source, size, stream)] if size and target != source else []


def _address(begin: Begin, place: Place) -> int:
    """Return the address of memory of a communication operation at the time it is prepared."""
    memories = (m for m in (begin.target, begin.source) if m is not None)
    memory = next(m for m in memories if m.place.slot == place.slot)
    return memory.address + place.offset - memory.place.offset


def _form(begin: Begin) -> Begin:
    """Return a communication operation without its source address, unless peers read the source."""
    if begin.source is None or isinstance(begin.exchange, Share):
        return begin
    return replace(begin, source=replace(begin.source, address=0, moves_with=None))


def _name(piece: Piece) -> str:
    return f"{piece.peer} {piece.number}"
