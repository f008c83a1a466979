"""Run passes in order, with some disabled, stopped early, observed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from time import perf_counter
from typing import Any, Generic, TypeVar

from fusec.codes.usage import UNKNOWN_PASS
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError

T = TypeVar("T")

ROUNDS = 4
"""A round with changes is followed by another one, since a pass may create patterns that an earlier
one matches; real graphs converge in two."""


@dataclass(frozen=True)
class Pass(Generic[T]):
    """A named function, as from fusion to fusion: it returns its argument if nothing changes."""

    name: str
    run: Callable[[T], T]


Observer = Callable[[Pass[T], T, T, float], None]
"""Called after each pass with (pass, value before, value after, seconds)."""


def run_passes(
    pipeline: Sequence[Pass[T]],
    value: T,
    *,
    without: Collection[str] = (),
    stop_after: str | None = None,
    observer: Observer[T] | None = None,
) -> T:
    """Return the value after `pipeline`, repeated until nothing changes.

    `without` names passes to disable; `stop_after` ends the first round after that pass.
    """
    left_out = {known_name(pipeline, name) for name in without}
    last = None if stop_after is None else known_name(pipeline, stop_after)
    settled: set[str] = set()  # passes that change nothing of the value
    for _ in range(ROUNDS):
        for step in pipeline:
            if step.name not in left_out and step.name not in settled:
                before, value = value, _observed(step, value, observer)
                settled = {*settled, step.name} if value is before else set()
            if step.name == last:
                return value
    return value


def _observed(step: Pass[T], value: T, observer: Observer[T] | None) -> T:
    if observer is None:
        return step.run(value)
    began = perf_counter()
    after = step.run(value)
    observer(step, value, after, perf_counter() - began)
    return after


def known_name(pipeline: Iterable[Pass[Any]], name: str) -> str:
    """Return a pass's name, hyphens accepted; FusecError for one that does not exist."""
    return one_of([step.name for step in pipeline], name)


def one_of(names: Collection[str], name: str) -> str:
    """Return the pass name that `name` refers to; FusecError if there is none."""
    plain = name.replace("-", "_")
    if plain in names:
        return plain
    import difflib

    close = difflib.get_close_matches(plain, names, n=1)
    help = f"did you mean `{close[0]}`?" if close else "one of " + ", ".join(names)
    raise FusecError(f"unknown pass `{name}`", help=help, code=UNKNOWN_PASS)
