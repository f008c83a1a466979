"""Passes over host programs that run segments, each a function in a file of its name."""

from __future__ import annotations

from collections.abc import Callable, Collection

from fusec.hostir.passes.assign_streams import assign_streams
from fusec.hostir.passes.known import Known
from fusec.hostir.passes.late_joins import late_joins
from fusec.hostir.passes.late_waits import late_waits
from fusec.hostir.passes.order_segments import order_segments
from fusec.hostir.passes.slice_buffers import slice_buffers
from fusec.hostir.program import HostProgram
from fusec.options import ASKED
from fusec.passes.pipeline import Observer, Pass, run_passes

__all__ = ["PIPELINE", "Known", "Observer", "Pass", "run_pipeline"]


HostPass = Callable[[HostProgram, Known], HostProgram]

_PASSES: tuple[HostPass, ...] = (
    slice_buffers,  # first: the order depends on what memory loops need
    order_segments,
    assign_streams,  # after the order of one stream is known
    late_joins,
    late_waits,
)


def pipeline(known: Known) -> tuple[Pass[HostProgram], ...]:
    """Return the passes in order, for what is known."""
    return tuple(_pass(run, known) for run in _PASSES)


def _pass(run: HostPass, known: Known) -> Pass[HostProgram]:
    doc = (run.__doc__ or "").partition("\n")[0]
    return Pass(run.__name__, lambda program: run(program, known), doc)


PIPELINE = pipeline(Known())
"""The passes where nothing is known: their names and what they do."""


def run_pipeline(
    program: HostProgram,
    known: Known,
    *,
    without: Collection[str] = (),
    asked: Collection[str] = (),
    stop_after: str | None = None,
    observer: Observer[HostProgram] | None = None,
) -> HostProgram:
    """Return the program after all passes but those in `without`; of ASKED, those in `asked`.

    `stop_after` names the last pass to run.

    `observer` is called after each pass with the programs before and after (the same object where
    nothing changed) and the seconds that it took.
    """
    names = {run.__name__ for run in _PASSES}
    left_out = {*without, *(names & ASKED.keys() - {*asked})}
    steps = pipeline(known)
    return run_passes(steps, program, without=left_out, stop_after=stop_after, observer=observer)
