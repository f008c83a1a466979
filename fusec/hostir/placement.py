"""Memory placement of a host program: offsets in one arena, shared by all executors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass
from fusec.diagnostics import InternalError
from fusec.hostir.arena import aligned
from fusec.hostir.instructions import Memset
from fusec.hostir.lifetimes import lifetimes
from fusec.hostir.packing import Block, least_size, pack, size_of
from fusec.hostir.steps import steps_of
from fusec.ir.index_errors import INDEX_ERRORS

if TYPE_CHECKING:
    from fusec.hostir.program import HostProgram


@dataclass(frozen=True)
class Placement:
    """Offsets in bytes of buffers in one arena of `size` bytes.

    least: the peak of the bytes in use, a lower bound for every placement.
    """

    offsets: Mapping[str, int]
    size: int
    least: int


def placement(
    program: HostProgram, sizes: Mapping[str, int], own: Collection[str] = ()
) -> Placement:
    """Return the placement of the buffers that a program allocates, except those in `own`.

    Memory is reused once all its users are guaranteed to be over, for any timing of the streams; so
    is a segment's workspace after its kernels, unless it is zeroed once. sizes: of all dims, and
    the rank's indices. Names are those of the program with its loops unrolled.
    """
    names, blocks = blocks_of(program, sizes, own)
    offsets = pack(blocks)
    placed = dict(zip(names, offsets, strict=True))
    return Placement(placed, size_of(blocks, offsets), least_size(blocks))


def blocks_of(
    program: HostProgram, sizes: Mapping[str, int], own: Collection[str] = ()
) -> tuple[list[str], list[Block]]:
    """Return the buffers to place, and their blocks."""
    steps = steps_of(program, sizes)
    program = steps.program
    alone = steps.streams == 1
    every = lifetimes(steps, _workspaces(program))
    live = [life for life in every if life.buffer not in own]
    numbers: dict[str, int] = {}
    for life in live:
        numbers.setdefault(life.buffer, len(numbers))
    beside = [set[int]() for _ in numbers]
    for k, life in enumerate(live):
        number = numbers[life.buffer]
        for other in live[:k]:
            apart = other.last < life.first or life.last < other.first
            if apart and (alone or life.before(other) or other.before(life)):
                continue
            if other.buffer == life.buffer:
                raise InternalError(f"`{life.buffer}` is allocated again while it is in use")
            beside[number].add(numbers[other.buffer])
            beside[numbers[other.buffer]].add(number)
    blocks: list[Block] = []
    for name, number in numbers.items():
        spans = [life for life in live if life.buffer == name]
        size = aligned(max(program.buffer[name].bytes(sizes), 1))
        first, last = min(s.first for s in spans), max(s.last for s in spans)
        blocks.append(Block(size, first, last, frozenset(beside[number])))
    return list(numbers), blocks


def _workspaces(program: HostProgram) -> set[str]:
    """Return the workspaces that are dead after the kernels of their segment."""
    once = {i.buffer for i in program.instructions if isinstance(i, Memset) and i.once}
    names = {b.name for b in program.buffers if b.role == "workspace"}
    return names - once - {INDEX_ERRORS}
