"""Assign independent segments to several streams, with the fewest events."""

from __future__ import annotations

from fusec.hostir.instructions import For
from fusec.hostir.passes.known import Known
from fusec.hostir.program import HostProgram
from fusec.hostir.streams import Job, predicted, shared_out, with_streams
from fusec.hostir.tasks import WorkGraph

WORTH = 0.02
"""Fraction of the predicted time that several streams must save."""


def assign_streams(program: HostProgram, known: Known) -> HostProgram:
    """Assign independent segments to several streams, with the fewest events.

    Only where that is predicted to save time: for segments that do not fill the GPU. Programs with
    loops or communication assign their own streams.
    """
    graph = WorkGraph(program)
    if graph.has_streams or any(isinstance(w.instruction, For) or w.exchanges for w in graph.work):
        return program
    names = [graph.segment(k) for k in range(len(graph.work))]
    jobs = [
        Job(known.seconds.get(name, 0.0), known.filled.get(name, 1.0), after)
        for name, after in zip(names, graph.after, strict=True)
    ]
    streams = shared_out(jobs, known.streams, known.event)
    alone = predicted(jobs, [0] * len(jobs), known.event)
    if not any(streams) or predicted(jobs, streams, known.event) > (1 - WORTH) * alone:
        return program
    return with_streams(graph, streams)
