"""Whether what happens on several streams is ordered: what is read comes after what wrote it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from program_clocks import Clocks

from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Free,
    Instruction,
    Memset,
    Receive,
    Send,
    SetStream,
    Synchronize,
    Wait,
    reads,
    writes,
)
from fusec.hostir.program import HostProgram
from fusec.hostir.unroll import unroll
from fusec.ir.dim import dim
from fusec.ir.index_errors import INDEX_ERRORS

MOST_RUNS = 1 << 16
"""Pieces of memory of a tensor that are looked at one by one; of more, what lies between counts."""

Runs = tuple[tuple[int, int], ...]
"""Where the bytes of a tensor lie, as (begin, end) in order."""


@dataclass(frozen=True)
class Race:
    """Two instructions of which neither surely comes first, and the memory that both use."""

    first: Instruction
    second: Instruction
    buffer: str

    def __str__(self) -> str:
        return f"`{self.first}` and `{self.second}` use `{self.buffer}` in no order"


@dataclass(frozen=True)
class _Access:
    """A use of memory by the instruction at a place in the order in which they are issued."""

    place: int
    runs: Runs
    writes: bool


def races(program: HostProgram, sizes: Mapping[str, int]) -> list[Race]:
    """Return what is not ordered in a program at some sizes, each pair of instructions once.

    sizes: as `unroll` takes them. An exchange runs beside its stream from where it is begun until
    it is waited for; at the end the caller reads the outputs.
    """
    flat = unroll(program, sizes)
    issued = list(_with_exchanges(flat.instructions))
    clocks, memory = Clocks([*issued, SetStream(dim(0)), _END]), _Memory(flat, sizes)
    for place, instruction in enumerate(issued):
        memory.take(place, instruction)
    memory.use(len(issued) + 1, frozenset(flat.outputs), writing=False)
    issued += [_END, _END]
    found: dict[tuple[int, int], Race] = {}
    for name, accesses in memory.accesses.items():
        for first, second in _near(accesses):
            if not (first.writes or second.writes) or first.place == second.place:
                continue
            if not clocks.before(first.place, second.place) and _overlap(first, second):
                pair = first.place, second.place
                found[pair] = Race(issued[pair[0]], issued[pair[1]], name)
    return list(found.values())


def _near(accesses: Iterable[_Access]) -> Iterator[tuple[_Access, _Access]]:
    """Yield the pairs of accesses in order of place whose first and last bytes may overlap."""
    open_: list[_Access] = []
    for access in sorted((a for a in accesses if a.runs), key=lambda a: a.runs[0][0]):
        open_ = [a for a in open_ if a.runs[-1][1] > access.runs[0][0]]
        for other in open_:
            yield (other, access) if other.place <= access.place else (access, other)
        open_.append(access)


_END = Synchronize(dim(0))


def _with_exchanges(instructions: tuple[Instruction, ...]) -> Iterator[Instruction]:
    """Yield the instructions with each exchange on a stream of its own, which waits end."""
    numbers = (i.stream.value for i in instructions if isinstance(i, (SetStream, Synchronize)))
    free, current = 1 + max((0, *numbers)), 0
    begun: list[tuple[Collective | Send | Receive, int]] = []
    for instruction in instructions:
        if isinstance(instruction, SetStream):
            current = instruction.stream.value
        if isinstance(instruction, (Collective, Send, Receive)):
            yield from (SetStream(dim(free)), Synchronize(dim(current)), instruction)
            yield SetStream(dim(current))
            begun.append((instruction, free))
            free += 1
        elif isinstance(instruction, Wait):
            over = [entry for entry in begun if _ends(instruction, entry[0])]
            if any(not isinstance(exchange, Collective) for exchange, _ in over):
                over += [e for e in begun if not isinstance(e[0], Collective) and e not in over]
            yield from (Synchronize(dim(stream)) for _, stream in over)
            begun = [entry for entry in begun if entry not in over]
        else:
            yield instruction


def _ends(wait: Wait, exchange: Collective | Send | Receive) -> bool:
    return wait.buffer == (exchange.source if isinstance(exchange, Send) else exchange.target)


class _Memory:
    """Where buffers lie, and who has used the memory of each so far."""

    def __init__(self, program: HostProgram, sizes: Mapping[str, int]) -> None:
        self.program, self.sizes = program, sizes
        self.place = {b.name: (b.name, 0) for b in program.inputs}
        self.accesses: dict[str, list[_Access]] = {}

    def take(self, place: int, instruction: Instruction) -> None:
        """Note what an instruction uses."""
        match instruction:
            case Alias(name, of, offset):
                root, begin = self.place[of]
                size = self.program.buffer[name].dtype.size
                self.place[name] = root, begin + offset.evaluate(self.sizes) * size
            case Allocate(name):
                self.place[name] = name, 0
                self.use(place, frozenset({name}), writing=True)
            case Free(name):
                if self.place[name][0] == name:
                    self.use(place, frozenset({name}), writing=True)
            case Memset(_, once=True):
                pass  # done with the allocation
            case _:
                self.use(place, reads(instruction), writing=False)
                self.use(place, writes(instruction), writing=True)

    def use(self, place: int, names: frozenset[str], *, writing: bool) -> None:
        """Note the use of buffers; indices out of bounds are noted by atomic operations."""
        for name in sorted(names):
            if name in self.place and name != INDEX_ERRORS:
                root, begin = self.place[name]
                runs = tuple((begin + b, begin + e) for b, e in self._runs(name))
                self.accesses.setdefault(root, []).append(_Access(place, runs, writing))

    def _runs(self, name: str) -> Runs:
        buffer = self.program.buffer[name]
        shape = [extent.evaluate(self.sizes) for extent in buffer.shape]
        strides = [stride.evaluate(self.sizes) for stride in buffer.strides]
        if 0 in shape:
            return ()
        length, outer = 1, list[tuple[int, int]]()
        for extent, stride in sorted(zip(shape, strides, strict=True), key=lambda d: d[1]):
            if stride == length:
                length *= extent
            elif extent > 1 and stride:
                outer.append((extent, stride))
        size, count = buffer.dtype.size, 1
        for extent, _ in outer:
            count *= extent
        if count > MOST_RUNS:
            length, outer = length + sum((e - 1) * s for e, s in outer), []
        steps = (range(0, extent * stride, stride) for extent, stride in outer)
        starts = sorted(sum(each) for each in product(*steps))
        return tuple((start * size, (start + length) * size) for start in starts)


def _overlap(left: _Access, right: _Access) -> bool:
    begins = [begin for begin, _ in right.runs]
    for begin, end in left.runs:
        place = bisect_right(begins, end - 1)
        if place and right.runs[place - 1][1] > begin:
            return True
    return False
