"""Passes over host programs that run segments, each a function in a file of its name.

A pass is imported for the first program that it may change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib import import_module

from fusec.hostir.instructions import Alias, Allocate, For, Free, Wait
from fusec.hostir.passes.known import Known
from fusec.hostir.program import HostProgram
from fusec.options import ASKED
from fusec.passes.pipeline import Observer, Pass, run_passes

__all__ = ["PIPELINE", "Known", "Observer", "Pass", "run_pipeline"]


HostPass = Callable[[HostProgram, Known], HostProgram]


def _has_loop(program: HostProgram) -> bool:
    return any(isinstance(i, For) for i in program.instructions)


def _has_order(program: HostProgram) -> bool:
    """Return whether a program has several pieces of work, or a loop."""
    kinds = Allocate | Free | Alias
    work = [i for i in program.instructions if not isinstance(i, kinds)]
    return len(work) > 1 or _has_loop(program)


def _waits(program: HostProgram) -> bool:
    return _has_loop(program) or any(isinstance(i, Wait) for i in program.instructions)


_PASSES: dict[str, Callable[[HostProgram], bool]] = {
    "slice_buffers": _has_loop,  # first: the order depends on the memory that loops need
    "order_segments": _has_order,
    "assign_streams": _has_order,  # after the order on one stream is fixed
    "sink_joins": _has_loop,
    "sink_waits": _waits,
}
"""The passes in order, each with whether it may change a program."""


def pipeline(known: Known) -> tuple[Pass[HostProgram], ...]:
    """Return the passes in order, given the known facts."""
    return tuple(_pass(name, known) for name in _PASSES)


def find_pass(name: str) -> HostPass:
    """Return a pass by its name."""
    return getattr(import_module(f"{__name__}.{name}"), name)


def _pass(name: str, known: Known) -> Pass[HostProgram]:
    def run(program: HostProgram) -> HostProgram:
        return find_pass(name)(program, known) if _PASSES[name](program) else program

    return Pass(name, run)


PIPELINE = pipeline(Known())
"""The passes without known facts: their names."""


def run_pipeline(
    program: HostProgram,
    known: Known,
    *,
    without: Collection[str] = (),
    asked: Collection[str] = (),
    stop_after: str | None = None,
    observer: Observer[HostProgram] | None = None,
) -> HostProgram:
    """Return the program after all passes except `without`; opt-in passes run if in `asked`.

    `stop_after` names the last pass to run.

    `observer` is called after each pass with the programs before and after (the same object if
    nothing changed) and the seconds that it took.
    """
    left_out = {*without, *(_PASSES.keys() & ASKED.keys() - {*asked})}
    steps = pipeline(known)
    return run_passes(steps, program, without=left_out, stop_after=stop_after, observer=observer)
