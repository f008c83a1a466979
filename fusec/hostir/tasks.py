"""The dependence graph of a host program's instructions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fusec.dataclasses import dataclass
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    For,
    Free,
    GetStream,
    Instruction,
    Post,
    Receive,
    Send,
    SetStream,
    Share,
    Synchronize,
    Unshare,
    Wait,
    reads,
    writes,
)
from fusec.hostir.lifetimes import roots_of, uses
from fusec.hostir.program import HostProgram
from fusec.properties import cached_property


@dataclass(frozen=True)
class Work:
    """An instruction that has an effect, by its place in the program.

    reads, writes: the memory whose contents it uses or changes, by the buffer that was allocated.
    """

    place: int
    instruction: Instruction
    reads: frozenset[str]
    writes: frozenset[str]

    @property
    def touches(self) -> frozenset[str]:
        """Return the memory that it reads or writes."""
        return self.reads | self.writes

    @property
    def exchanges(self) -> bool:
        """Return whether ranks synchronize in it: all must run such work in one order."""
        kinds = Collective | Send | Receive | Wait | Share | Unshare
        return any(isinstance(i, kinds) for i in _flat(self))


class WorkGraph:
    """The work of a program in its order, and the dependences of each piece."""

    def __init__(self, program: HostProgram) -> None:
        """Analyse the program; each loop is one piece of work."""
        self.program = program
        every = _nested(program.instructions)
        self.roots = roots_of(every, [b.name for b in program.inputs])
        used: dict[int, set[str]] = {}
        for k, name in uses(program.instructions):
            used.setdefault(k, set()).add(name)
        self.work = tuple(
            self._work(k, i, used.get(k, set[str]()))
            for k, i in enumerate(program.instructions)
            if not isinstance(i, Allocate | Free | Alias)
        )

    def _work(self, place: int, instruction: Instruction, used: set[str]) -> Work:
        changed = used if isinstance(instruction, Wait) else writes(instruction)
        return Work(place, instruction, self._roots(reads(instruction)), self._roots(changed))

    def _roots(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(self.roots[n] for n in names if n in self.roots)

    @cached_property
    def after(self) -> tuple[frozenset[int], ...]:
        """Return for each piece of work, in order, the pieces that must come before it.

        Of a chain of them, at least the last.
        """
        read: dict[str, list[int]] = {}
        written: dict[str, int] = {}
        exchange: int | None = None
        found: list[frozenset[int]] = []
        for k, work in enumerate(self.work):
            before = {written[n] for n in work.touches if n in written}
            before.update(j for n in work.writes for j in read.pop(n, ()))
            written |= dict.fromkeys(work.writes, k)
            for name in work.reads - work.writes:
                read.setdefault(name, []).append(k)
            if work.exchanges:
                before |= set() if exchange is None else {exchange}
                exchange = k
            found.append(frozenset(before))
        return tuple(found)

    @property
    def has_streams(self) -> bool:
        """Return whether streams are selected outside of loops, or awaited after them."""
        kinds = GetStream | SetStream | Synchronize
        every = [w.instruction for w in self.work]
        loops = (i for i in every if isinstance(i, For) and i.streams)
        open_ = any(not isinstance(i.body[-1], Synchronize) for i in loops)
        return open_ or any(isinstance(i, kinds) for i in every)

    def segment(self, number: int) -> str:
        """Return the segment that a piece of work runs; empty for other work."""
        instruction = self.work[number].instruction
        return instruction.segment if isinstance(instruction, Post) else ""


def reordered(graph: WorkGraph, order: Sequence[int]) -> tuple[Instruction, ...]:
    """Return the program's instructions with its work in another order.

    Memory that is freed is allocated just before its first use and freed after its last; a view
    comes just before its use. All other allocations stay at the beginning.
    """
    program = graph.program
    freed = {i.buffer for i in program.instructions if isinstance(i, Free)}
    first: list[Instruction] = []
    late: dict[str, Allocate | Alias] = {}
    for i in program.instructions:
        if isinstance(i, Allocate | Alias):
            if graph.roots[i.buffer] in freed:
                late[i.buffer] = i
            else:
                first.append(i)
    last = {root: k for k in order for root in graph.work[k].touches}
    body: list[Instruction] = []
    for k in order:
        names = _named(graph.work[k].instruction)
        needed = _with_wholes(names, late)
        body += [late.pop(n) for n in list(late) if n in needed]
        body.append(graph.work[k].instruction)
        body += [Free(n) for n in sorted(freed) if last.get(n) == k]
    return (*first, *body)


def _with_wholes(names: Iterable[str], given: Mapping[str, Allocate | Alias]) -> set[str]:
    """Return some buffers and those that they are views of."""
    found = set[str]()
    for name in names:
        while name in given and name not in found:
            found.add(name)
            view = given[name]
            name = view.of if isinstance(view, Alias) else name
    return found


def _named(instruction: Instruction) -> frozenset[str]:
    inner = instruction.body if isinstance(instruction, For) else ()
    wholes = {i.of for i in _nested(inner) if isinstance(i, Alias)}
    waited = {instruction.buffer} if isinstance(instruction, Wait) else set[str]()
    return reads(instruction) | writes(instruction) | wholes | waited


def _flat(work: Work) -> Iterator[Instruction]:
    yield from _nested((work.instruction,))


def _nested(instructions: Iterable[Instruction]) -> Iterator[Instruction]:
    """Yield instructions, each loop before those of its body."""
    for instruction in instructions:
        yield instruction
        if isinstance(instruction, For):
            yield from _nested(instruction.body)
