"""When the buffers of a flat host program are in use, and which may share memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fusec.diagnostics import InternalError
from fusec.hostir.clocks import Clocks
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Free,
    Instruction,
    Receive,
    Send,
    Wait,
    reads,
    writes,
)


@dataclass(frozen=True)
class Lifetime:
    """When a buffer's memory is in use.

    first, last: the instructions between which that is so, both among them, in the order in which
    they are issued. begin: how much of each stream is over before any use of it; end: how much must
    be over before all uses are; None where it is in use to the end.
    """

    buffer: str
    first: int
    last: int
    begin: tuple[int, ...]
    end: tuple[int, ...] | None

    def before(self, other: Lifetime) -> bool:
        """Return whether all uses are surely over when those of another buffer begin."""
        return self.end is not None and all(
            e <= b for e, b in zip(self.end, other.begin, strict=True)
        )


def roots_of(instructions: Iterable[Instruction], given: Iterable[str] = ()) -> dict[str, str]:
    """Return the buffer in whose memory each buffer lies; of `given` ones, themselves."""
    roots = {name: name for name in given}
    for instruction in instructions:
        if isinstance(instruction, Allocate):
            roots[instruction.buffer] = instruction.buffer
        elif isinstance(instruction, Alias):
            root = roots[instruction.of]
            if roots.setdefault(instruction.buffer, root) != root:
                raise InternalError(f"`{instruction}`: it is a part of another buffer, too")
    return roots


def touched(instruction: Instruction) -> frozenset[str]:
    """Return the buffers whose contents an instruction reads or changes."""
    return reads(instruction) | writes(instruction)


def uses(instructions: Sequence[Instruction]) -> Iterator[tuple[int, str]]:
    """Yield (place of an instruction, buffer whose contents it uses).

    An exchange uses its buffers until it is waited for; sends and receives end together.
    """
    begun: list[set[str]] = []
    exchanged = set[str]()
    for k, instruction in enumerate(instructions):
        own = touched(instruction)
        for name in sorted(own):
            yield k, name
        if isinstance(instruction, Collective):
            begun.append(set(own))
        elif isinstance(instruction, (Send, Receive)):
            exchanged |= own
        elif isinstance(instruction, Wait):
            over = [g for g in (*begun, exchanged) if instruction.buffer in g]
            begun = [g for g in begun if g not in over]
            for name in sorted({instruction.buffer}.union(*over)):
                yield k, name
            if exchanged in over:
                exchanged = set[str]()
    for name in sorted(exchanged.union(*begun)):
        yield len(instructions) - 1, name


def lifetimes(
    instructions: Sequence[Instruction], given: Iterable[str] = (), passing: Collection[str] = ()
) -> list[Lifetime]:
    """Return when allocated buffers are in use: one entry for each time that memory is given.

    given: the buffers of callers. passing: what nothing asks for after its last use. Other memory
    that is not freed is in use to the end; what is freed and not used has no entry.
    """
    roots, clocks = roots_of(instructions, given), Clocks(instructions)
    places: dict[str, list[int]] = {}
    for k, name in uses(instructions):
        places.setdefault(roots.get(name, name), []).append(k)
    begins: dict[str, list[int]] = {}
    ends: dict[str, int] = {}
    for k, instruction in enumerate(instructions):
        if isinstance(instruction, Allocate):
            begins.setdefault(instruction.buffer, []).append(k)
        elif isinstance(instruction, Free):
            ends[instruction.buffer] = k
    found: list[Lifetime] = []
    for name, starts in begins.items():
        for start, following in pairwise([*starts, len(instructions)]):
            own = [k for k in places.get(name, ()) if start <= k < following]
            kept = start > ends.get(name, -1) and name not in passing
            if own or kept:
                found.append(_lifetime(clocks, name, own, kept))
    return found


def _lifetime(clocks: Clocks, buffer: str, places: Sequence[int], kept: bool) -> Lifetime:
    """Return the lifetime of a buffer that is used at some places, or `kept` from the first on."""
    begins = [clocks.done[k] for k in places] or [(0,) * clocks.streams]
    begin = tuple(min(column) for column in zip(*begins, strict=True))
    first = min(places, default=0)
    if kept:
        return Lifetime(buffer, first, len(clocks.done), begin, None)
    over = [0] * clocks.streams
    for k in places:
        over[clocks.stream[k]] = max(over[clocks.stream[k]], clocks.place[k] + 1)
    return Lifetime(buffer, first, max(places), begin, tuple(over))
