"""Run passes in order, with some left out, stopped early, observed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter

from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion

ROUNDS = 4
"""A round that changed something is followed by another, since what one pass leaves may be what an
earlier one looks for; real graphs settle in two."""


@dataclass(frozen=True)
class Pass:
    """A named function from fusion to fusion that returns its argument where it changes nothing."""

    name: str
    run: Callable[[Fusion], Fusion]
    doc: str


Observer = Callable[[Pass, Fusion, Fusion, float], None]
"""Called after each pass with (pass, fusion before, fusion after, seconds)."""


def run_passes(
    pipeline: Sequence[Pass],
    fusion: Fusion,
    *,
    without: Collection[str] = (),
    stop_after: str | None = None,
    observer: Observer | None = None,
) -> Fusion:
    """Return the fusion after `pipeline`, repeated until nothing changes.

    `without` names passes to leave out; `stop_after` ends the first round after that pass.
    """
    left_out = {known_name(pipeline, name) for name in without}
    last = None if stop_after is None else known_name(pipeline, stop_after)
    for _ in range(ROUNDS):
        start = fusion
        for step in pipeline:
            if step.name not in left_out:
                fusion = _observed(step, fusion, observer)
            if step.name == last:
                return fusion
        if fusion is start:
            break
    return fusion


def _observed(step: Pass, fusion: Fusion, observer: Observer | None) -> Fusion:
    if observer is None:
        return step.run(fusion)
    began = perf_counter()
    after = step.run(fusion)
    observer(step, fusion, after, perf_counter() - began)
    return after


def known_name(pipeline: Iterable[Pass], name: str) -> str:
    """Return a pass's name, hyphens accepted; FusecError for one that does not exist."""
    names = [step.name for step in pipeline]
    plain = name.replace("-", "_")
    if plain in names:
        return plain
    close = difflib.get_close_matches(plain, names, n=1)
    help = f"did you mean `{close[0]}`?" if close else "one of " + ", ".join(names)
    raise FusecError(f"unknown pass `{name}`", help=help)
