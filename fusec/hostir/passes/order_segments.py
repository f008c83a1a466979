"""Order segments to minimize the peak of temporary memory."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.hostir.arena import aligned
from fusec.hostir.instructions import Free
from fusec.hostir.passes.known import Known
from fusec.hostir.program import HostProgram
from fusec.hostir.sequence import Sequencer, Task
from fusec.hostir.tasks import WorkGraph, reordered

WORTH = 1 / 16
"""Fraction of the memory that another order must save: the original may be deliberate."""


def order_segments(program: HostProgram, known: Known) -> HostProgram:
    """Order segments to minimize the peak of temporary memory."""
    graph = WorkGraph(program)
    if graph.has_streams:
        return program
    sequencer = sequencer_of(graph, known)
    peak = sequencer.peak(range(len(graph.work)))
    if peak <= max((sequencer.least(k) for k in range(len(graph.work))), default=0):
        return program
    found = sequencer.best()
    if peak - found.peak < max(1, WORTH * peak):
        return program
    return replace(program, instructions=reordered(graph, found.tasks))


def sequencer_of(graph: WorkGraph, known: Known) -> Sequencer:
    """Return the search for an order of a program's work; only freed memory counts."""
    program = graph.program
    freed = [i.buffer for i in program.instructions if isinstance(i, Free)]
    numbers = {name: k for k, name in enumerate(freed)}
    sizes = [aligned(max(1, program.buffer[name].bytes(known.sizes))) for name in freed]
    tasks = [
        Task(
            graph.after[k],
            frozenset(numbers[n] for n in work.touches if n in numbers),
            known.scratch.get(graph.segment(k), 0),
        )
        for k, work in enumerate(graph.work)
    ]
    return Sequencer(tasks, sizes)
