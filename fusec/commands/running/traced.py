"""Stepwise runs: host programs interpreted in NumPy, and traces of runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fusec.commands.terminal.progress import working
from fusec.foreign import decode_json, decoding, not_a

if TYPE_CHECKING:
    from fusec.driver import Compilation
    from fusec.hostir.steps import Step
    from fusec.run.bound import Bound
    from fusec.run.distributed.links import Links
    from fusec.run.interpret import Observe
    from fusec.run.trace import Slice


def has_steps(program: Compilation) -> bool:
    """Return whether a file divides a tensor over the iterations of a loop."""
    from fusec.ir.sharding import STREAM

    shardings = program.original.shardings.values()
    return any(sharding.along(STREAM) is not None for sharding in shardings)


def noting(slices: list[Slice], rank: int = 0) -> Observe:
    """Return an observer that records the slice of each step of a rank."""
    from fusec.run.trace import slice_of

    def note(step: Step, begin: float, end: float) -> None:
        made = slice_of(step.instruction, step.stream, begin, end, rank)
        if made is not None:
            slices.append(made)

    return note


def slices_of(bound: Bound, rank: int = 0) -> list[Slice]:
    """Return the slices of one run on a GPU, after a warm-up run."""
    from fusec.run.measure import timeline

    bound.run()
    slices: list[Slice] = []
    note = noting(slices, rank)
    for timed in timeline(bound):
        note(timed.step.of, timed.begin, timed.end)
    return slices


def gather_trace(links: Links, path: str, name: str, slices: Sequence[Slice]) -> None:
    """Write a trace of the slices of all ranks, gathered on rank 0; every rank calls it."""
    import numpy as np

    from fusec.run.distributed.gathering import gather_arrays
    from fusec.run.trace import Slice, write_trace

    own = json.dumps([asdict(part) for part in slices]).encode()
    found = gather_arrays(links, {"trace": np.frombuffer(own, np.uint8)})
    if found is not None:
        given = [decode_json(part["trace"].tobytes(), "trace of a rank") for part in found]
        with decoding(not_a("trace of a rank", "a list of slices")):
            every = [Slice(**fields) for part in given for fields in part]
        write_trace(path, name, every)


def interpret(program: Compilation, inputs: Mapping[str, Any], trace: str | None) -> dict[str, Any]:
    """Return the outputs of a program, interpreted step by step without a GPU; trace: a file."""
    from fusec.rank import run_rank
    from fusec.run.trace import write_trace

    slices: list[Slice] = []
    with working("running the host program"):
        outputs = program.timings.measure(
            "interpret", lambda: run_rank(program, inputs, None, 0, observe=noting(slices))
        )
    print(f"{program.original.name}: host program run without a GPU")
    if trace is not None:
        write_trace(trace, program.original.name, slices)
    return outputs
