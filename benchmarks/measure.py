"""One row on the device: its buffers, the contenders on them, what is right, and the times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from benchmarks import peers
from benchmarks.rows import Row
from fusec.bench.bound import BoundWork
from fusec.bench.data import Inputs
from fusec.bench.figures import Error, line_of
from fusec.bench.graph import replayed
from fusec.bench.session import OWN, Session, reference_error
from fusec.bench.streaming import VARIANTS, parts_of
from fusec.bench.timer import Contender
from fusec.bench.work import Work

COMPARED = ("eager", "inductor", "inductor_tuned")
"""Peers whose results have the form of the fusion's."""
MOST_ON_HOST = 8 << 20
"""Bytes up to which results are compared with the reference on the host, where PyTorch is not."""
PRODUCER = VARIANTS[0]


@dataclass
class Others:
    """The peers of a row: those that run, by name, why others do not, and errors of all."""

    issues: dict[str, Callable[[], Any]] = field(default_factory=dict[str, Any])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    errors: dict[str, Error] = field(default_factory=dict[str, Error])
    own: Error | None = None
    not_compared: str = ""


def has_torch() -> str:
    """Return why PyTorch cannot be used with the GPU, or nothing."""
    try:
        import torch
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if torch.cuda.is_available() else "PyTorch has no GPU"


def measure(
    session: Session, row: Row, work: Work, names: Sequence[str], repeats: int, *, small: bool
) -> dict[str, Any]:
    """Return what is measured of a row, as docs/bench.md has it."""
    with ExitStack() as stack:
        inputs = Inputs(session.device, row.fusion, work.sizes, given=row.given())
        stack.enter_context(inputs)
        bound = stack.enter_context(BoundWork(session.device, work, inputs))
        reason = has_torch()
        others = Others(missing=dict.fromkeys(names, reason))
        if reason:
            _compare_on_host(row, work, bound, others)
        else:
            from benchmarks.torch_side import on_stream

            stack.enter_context(on_stream(session.device))
            stack.callback(forget)
            others = _torch_others(row, bound, names)
        inputs.fill()
        contenders = [Contender(name, issue) for name, issue in others.issues.items()]
        figures = session.figures(work, bound, [] if small else contenders, repeats)
        figures = replace(
            figures, missing=others.missing, error=others.own,
            not_compared=others.not_compared, peer_errors=others.errors,
        )  # fmt: skip
        found = figures.as_dict(row.name)
        if small:
            found["replay"] = _replays(session, bound, others, repeats)
        found["line"] = line_of(row.name, figures)
        return found


def _compare_on_host(row: Row, work: Work, bound: BoundWork, others: Others) -> None:
    if work.compulsory_bytes <= MOST_ON_HOST:
        others.own = reference_error(row.fusion, bound, work.sizes)
    else:
        others.not_compared = "without PyTorch results of this size are not compared"


def _torch_others(row: Row, bound: BoundWork, names: Sequence[str]) -> Others:
    from benchmarks.torch_side import arguments_of, error_of, expected_of, rounded, view_of

    fusion, others = row.fusion, Others()
    function, arguments = row.torch_function(), arguments_of(row.fusion, bound.inputs)
    outputs = [o.value for o in fusion.outputs]
    dtypes = [v.dtype.name for v in outputs]
    expected = None
    if row.drawn:
        others.not_compared = "random numbers are drawn"
    else:
        expected = expected_of(function, arguments, dtypes)
        bound.issue()
        bound.device.synchronise("running the kernels")
        others.own = error_of([view_of(bound.outputs[v.name]) for v in outputs], expected)
    offer = peers.Offer(row, function, arguments)
    for name in names:
        bound.inputs.fill()
        issue, why = peers.found(name, offer)
        if issue is None:
            others.missing[name] = why
            continue
        others.issues[name] = issue
        if expected is not None and name in COMPARED:
            bound.inputs.fill()
            others.errors[name] = error_of(rounded(issue(), dtypes), expected)
    return others


def forget() -> None:
    """Give back what PyTorch keeps for later."""
    import gc

    import torch

    gc.collect()
    torch.cuda.empty_cache()


def _replays(session: Session, bound: BoundWork, others: Others, repeats: int) -> dict[str, Any]:
    """Return the times of graphs: each contender alone, and behind a kernel that makes its input.

    What that kernel takes alone is taken off.
    """
    device, inputs = session.device, bound.inputs
    first = next(iter(inputs.tensors.values()))
    kept = device.allocate(first.size, "what a producer reads")
    device.copy(kept, first.address, first.size)
    parts = parts_of(PRODUCER, first.size, first.size)
    produce = partial(session.streams.move, PRODUCER, parts.tiles, kept, first.address, parts)
    try:
        issues: dict[str, tuple[Callable[[], Any], Any]] = {OWN: (bound.issue, replayed)}
        if others.issues:
            from benchmarks.torch_side import replayed as replayed_by_torch

            issues |= {n: (issue, replayed_by_torch) for n, issue in others.issues.items()}
        alone = [Contender(n, how(device, issue)) for n, (issue, how) in issues.items()]
        behind = [
            Contender(n, how(device, partial(_both, produce, issue)))
            for n, (issue, how) in issues.items()
        ]
        producer = Contender("producer", replayed(device, produce))
        times = session.timer.race(alone, repeats)
        made, *together = session.timer.race([producer, *behind], repeats)
    finally:
        device.free(kept)
    return {
        "alone_ms": {t.name: round(t.seconds * 1e3, 6) for t in times},
        "producer_ms": round(made.seconds * 1e3, 6),
        "behind_ms": {t.name: round((t.seconds - made.seconds) * 1e3, 6) for t in together},
    }


def _both(first: Callable[[], Any], second: Callable[[], Any]) -> None:
    first()
    second()
