"""Byte ranges that a communication operation copies between the memories of two ranks."""

from __future__ import annotations

from fusec.diagnostics import InternalError
from fusec.hostir.instructions import Collective, Receive, Send, Share, Unshare
from fusec.run.operations import Place
from fusec.run.transports.protocol import Begin, DeviceMemory, peer_place, receivers_of, root_place

Cut = list[tuple[int, Place, int]]
"""Chunks: the peer rank, a local address, and bytes."""
Own = list[tuple[Place, Place, int]]
"""Chunks that stay on this rank: target, source, and bytes."""


def chunks_of(begin: Begin) -> tuple[Cut, Cut, Own]:
    """Return the chunks that leave this rank, that arrive, and that are copied locally."""
    exchange, group, place = begin.exchange, begin.group, begin.place
    match exchange:
        case Send():
            memory: DeviceMemory = begin.source
            return [(group[peer_place(exchange, place)], memory.place, memory.size)], [], []
        case Receive():
            memory = begin.target
            return [], [(group[peer_place(exchange, place)], memory.place, memory.size)], []
        case Collective():
            return _collective_chunks(begin, exchange)
        case Share() | Unshare():
            return [], [], []  # kernels read it


def _collective_chunks(begin: Begin, exchange: Collective) -> tuple[Cut, Cut, Own]:
    group, place = begin.group, begin.place
    target: DeviceMemory = begin.target
    source: DeviceMemory = target if begin.source is None else begin.source
    others = [(p, rank) for p, rank in enumerate(group) if p != place]
    if exchange.kind == "broadcast":
        root, receivers = root_place(exchange, place), receivers_of(exchange, len(group))
        if root != place:
            into = [(group[root], target.place, target.size)]
            return [], into if place in receivers else [], []
        out = [(rank, source.place, source.size) for p, rank in others if p in receivers]
        own = [(target.place, source.place, source.size)]
        return out, [], own if place in receivers else []
    block = target.size // len(group)
    # Each rank sends its whole source to all ranks, or one block to each.
    step = {"all_gather": 0, "all_to_all": block}.get(exchange.kind)
    if step is None:
        raise InternalError(f"copy engines cannot do `{exchange}`")
    out = [(rank, source.place.at(p * step), block) for p, rank in others]
    into = [(rank, target.place.at(p * block), block) for p, rank in others]
    own = (target.place.at(place * block), source.place.at(place * step), block)
    return out, into, [own]
