"""Work on several streams: its predicted time, and the events that order it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from fusec.dataclasses import dataclass, replace
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Free,
    Instruction,
    SetStream,
    Synchronize,
)
from fusec.hostir.program import HostProgram
from fusec.hostir.steps import steps_of
from fusec.hostir.tasks import WorkGraph
from fusec.ir.dim import dim


@dataclass(frozen=True)
class Job:
    """A piece of work to assign to a stream.

    seconds: its time when run alone. filled: the fraction of the GPU that it fills. after: the jobs
    before it, by number.
    """

    seconds: float
    filled: float
    after: frozenset[int]


def predicted(jobs: Sequence[Job], streams: Sequence[int], event: float) -> float:
    """Return the predicted seconds of jobs, each on its stream, in their order.

    Concurrent jobs that would exceed the GPU share it. A wait for another stream takes `event`
    seconds.
    """
    now, over = 0.0, dict[int, float]()
    left = {k: job.seconds for k, job in enumerate(jobs[: len(streams)])}
    while left:
        first: dict[int, int] = {}
        for k in left:
            first.setdefault(streams[k], k)
        able = [k for k in first.values() if jobs[k].after <= over.keys()]
        begins = {
            k: max(
                (over[d] + (event if streams[d] != streams[k] else 0) for d in jobs[k].after),
                default=0.0 if streams[k] == 0 else event,
            )
            for k in able
        }
        running = [k for k in able if begins[k] <= now]
        later = min((b for b in begins.values() if b > now), default=None)
        if not running:
            assert later is not None
            now = later
            continue
        rate = 1 / max(1.0, sum(jobs[k].filled for k in running))
        step = min(left[k] for k in running) / rate
        if later is not None:
            step = min(step, later - now)
        now += step
        for k in running:
            left[k] -= step * rate
            if left[k] <= 1e-12:
                del left[k]
                over[k] = now
    ends = [over[k] + (event if streams[k] else 0) for k in over]
    return max(ends, default=0.0)


def shared_out(jobs: Sequence[Job], most: int, event: float) -> list[int]:
    """Return a stream for each job: greedily, where it ends soonest, on few streams."""
    streams: list[int] = []
    for job in jobs:
        used = max(streams, default=0) + 1
        before = {streams[d] for d in job.after}

        def cost(stream: int, before: Collection[int] = before) -> tuple[float, int, int]:
            ends = predicted(jobs, [*streams, stream], event)
            return round(ends, 12), len({*before} - {stream}), stream

        streams.append(min(range(min(used, most) + 1), key=cost))
    return streams


def with_streams(graph: WorkGraph, streams: Sequence[int]) -> HostProgram:
    """Return the program with its work on streams, and the fewest events that keep the order.

    A stream waits for another right after the required work was put on it, so for nothing more. The
    waits of all streams for the caller's at the start, and of the caller's for all at the end, are
    implicit.
    """
    waits = list(_wanted(graph, streams))
    for wait in list(reversed(waits)):
        fewer = [w for w in waits if w is not wait]
        if _keeps_order(graph, _written(graph, streams, fewer)):
            waits = fewer
    return _written(graph, streams, waits)


@dataclass(frozen=True, eq=False)
class _Wait:
    """A stream's wait for another one, placed after a number of pieces of work."""

    stream: int
    other: int
    position: int


def _wanted(graph: WorkGraph, streams: Sequence[int]) -> Iterator[_Wait]:
    """Yield a wait for each stream that produces what a piece of work needs."""
    last: dict[int, int] = {}
    for k, stream in enumerate(streams):
        for other in sorted({streams[d] for d in graph.after[k]} - {stream}):
            made = max(d for d in graph.after[k] if streams[d] == other)
            yield _Wait(stream, other, max(last.get(stream, -1), made) + 1)
        last[stream] = k


def _written(graph: WorkGraph, streams: Sequence[int], waits: Sequence[_Wait]) -> HostProgram:
    """Return the program with its work on streams, and waits."""
    found: list[Instruction] = []
    given: list[Instruction] = []
    current = 0
    numbers = {work.place: k for k, work in enumerate(graph.work)}
    for place, instruction in enumerate(graph.program.instructions):
        k = numbers.get(place)
        if k is None:
            # Memory is allocated where it is used next, and freed where it was used last.
            (found if isinstance(instruction, Free) else given).append(instruction)
            continue
        asked = [(w.stream, Synchronize(dim(w.other))) for w in waits if w.position == k]
        own = ((streams[k], each) for each in (*given, instruction))
        for stream, each in (*asked, *own):
            if stream != current:
                found.append(SetStream(dim(stream)))
                current = stream
            found.append(each)
        given = []
    found += [SetStream(dim(0)), *given] if current else given
    return replace(graph.program, instructions=tuple(found))


def _keeps_order(graph: WorkGraph, program: HostProgram) -> bool:
    """Return whether all work of a program with streams comes after its dependences."""
    steps = list(enumerate(steps_of(program, {}).steps))
    work = [(k, s) for k, s in steps if not isinstance(s.instruction, Allocate | Free | Alias)]
    return all(
        step.over.get(work[d][1].stream, -1) >= work[d][0]
        for (_, step), after in zip(work, graph.after, strict=True)
        for d in after
    )
