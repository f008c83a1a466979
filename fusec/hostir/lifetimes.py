"""Lifetimes of the buffers of a flat host program, to share memory between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass
from fusec.diagnostics import InternalError
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Free,
    Instruction,
    Receive,
    Send,
    Share,
    Wait,
    reads,
    writes,
)

if TYPE_CHECKING:
    from fusec.hostir.steps import Clock, Step, Steps


@dataclass(frozen=True)
class Lifetime:
    """The lifetime of a buffer's memory.

    first, last: the steps, in issue order and inclusive, between which the memory is in use. begin:
    by stream the last step that is guaranteed to be over before any use; end: by stream the last
    use; None where it is in use to the end.
    """

    buffer: str
    first: int
    last: int
    begin: Clock
    end: Clock | None

    def before(self, other: Lifetime) -> bool:
        """Return whether all uses are guaranteed to be over when those of another buffer begin."""
        if self.end is None:
            return False
        return all(other.begin.get(s, -1) >= last for s, last in self.end.items())


def roots_of(instructions: Iterable[Instruction], given: Iterable[str] = ()) -> dict[str, str]:
    """Return the buffer that owns the memory of each buffer; `given` ones own theirs.

    Views of peers' memory own theirs, too.
    """
    roots = {name: name for name in given}
    for instruction in instructions:
        if isinstance(instruction, Allocate):
            roots[instruction.buffer] = instruction.buffer
        elif isinstance(instruction, Share):
            roots |= {view: view for view in instruction.views}
        elif isinstance(instruction, Alias):
            root = roots[instruction.of]
            if roots.setdefault(instruction.buffer, root) != root:
                raise InternalError(f"`{instruction}`: it is also a part of another buffer")
    return roots


def touched(instruction: Instruction) -> frozenset[str]:
    """Return the buffers whose contents an instruction reads or changes."""
    return reads(instruction) | writes(instruction)


def uses(instructions: Sequence[Instruction]) -> Iterator[tuple[int, str]]:
    """Yield (index of an instruction, buffer whose contents it uses).

    Communication uses its buffers until it is waited for; sends and receives complete together.
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


def lifetimes(steps: Steps, passing: Collection[str] = ()) -> list[Lifetime]:
    """Return the lifetimes of allocated buffers: one entry per allocation.

    A lifetime starts at the allocation, and lasts to the end of the program if the buffer is not
    freed. passing: buffers that are in use only from their first to their last use. Buffers that
    are freed without any use have no entry.
    """
    instructions = [s.instruction for s in steps.steps]
    roots = roots_of(instructions, (b.name for b in steps.program.inputs))
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
            if own and name not in passing:
                own = [start, *own]
            if own or kept:
                found.append(_lifetime(steps.steps, name, own, kept))
    return found


def _lifetime(steps: Sequence[Step], buffer: str, places: Sequence[int], kept: bool) -> Lifetime:
    """Return the lifetime of a buffer with uses at `places`, or `kept` from the first one on."""
    overs = [steps[k].over for k in places]
    streams = set(overs[0]).intersection(*overs) if overs else set[int]()
    begin = {s: min(over[s] for over in overs) for s in streams}
    first = min(places, default=0)
    if kept:
        return Lifetime(buffer, first, len(steps), begin, None)
    return Lifetime(buffer, first, max(places), begin, {steps[k].stream: k for k in sorted(places)})
