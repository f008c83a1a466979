"""A rank's own slice in a ring loop stays in place: it is not copied to itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass
from fusec.hostir.instructions import Alias, For, Instruction, Receive, Send, reads, writes
from fusec.ir.dim import dim

if TYPE_CHECKING:
    from fusec.hostir.program import Buffer


@dataclass(frozen=True)
class OwnSlice:
    """The change to a loop's body in the iteration in which a rank is its own partner.

    `own_alias` replaces the alias of that name, and nothing is sent or received: the received slice
    aliases the one to send, or the slice to send is computed where it would be received.
    """

    send: Send
    receive: Receive
    own_alias: Alias


def own_slices(
    loop: For, buffers: Iterable[Buffer], instructions: Iterable[Instruction]
) -> Iterator[OwnSlice]:
    """Yield the sends and receives of a loop that a rank skips where it is its own partner.

    buffers, instructions: of the whole program, the loop among them. A slice is redirected only if
    it is in temporary memory that is used as slices of this loop only.
    """
    every = [*_flat(instructions)]
    temporary = {b.name for b in buffers if b.role == "temporary"}
    aliases = {i.buffer: i for i in loop.body if isinstance(i, Alias)}

    def may_move(alias: Alias | None) -> bool:
        if alias is None or alias.of not in temporary:
            return False
        users = [i for i in every if isinstance(i, Alias) and i.of == alias.of]
        return len(users) == 1 and not any(alias.of in reads(i) | writes(i) for i in every)

    for send, receive in pairwise(loop.body):
        if not isinstance(send, Send) or not isinstance(receive, Receive):
            continue
        source, target = aliases.get(send.source), aliases.get(receive.target)
        if target is None or send.axis != receive.axis:
            continue
        if any(send.source in writes(i) for i in loop.body):
            if source is not None and may_move(source):
                yield OwnSlice(send, receive, Alias(source.buffer, target.of, target.offset))
        elif may_move(target) and _is_constant(send.source, loop, aliases):
            yield OwnSlice(send, receive, Alias(target.buffer, send.source, dim(0)))


def _is_constant(name: str, loop: For, aliases: Mapping[str, Alias]) -> bool:
    """Return whether a loop writes nothing into the memory that contains a buffer."""
    written = {_root(n, aliases) for i in loop.body for n in writes(i)}
    return _root(name, aliases) not in written


def _root(name: str, aliases: Mapping[str, Alias]) -> str:
    while name in aliases:
        name = aliases[name].of
    return name


def _flat(instructions: Iterable[Instruction]) -> Iterator[Instruction]:
    for instruction in instructions:
        if isinstance(instruction, For):
            yield from _flat(instruction.body)
        else:
            yield instruction
