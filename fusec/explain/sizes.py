"""Ranges of a dim's sizes with the same segments and schedulers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from fusec.activity import activity
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.explain.facts import Choice, ChosenSegment
from fusec.files import with_sizes
from fusec.ir.graph import Fusion
from fusec.target import Target

LARGEST = 2**40
"""The largest size in a range."""


@dataclass(frozen=True)
class _Found:
    """The choice at a size; two choices agree if their parts and refusals do."""

    parts: tuple[ChosenSegment, ...]
    refused: str | None
    seconds: float

    def agrees(self, other: _Found) -> bool:
        return self.parts == other.parts and (self.refused is None) == (other.refused is None)


def ranges_of(items: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return `B=1..65536` options as a dict; FusecError if one is not a range."""
    ranges: dict[str, tuple[int, int]] = {}
    for item in items:
        name, _, text = (part.strip() for part in item.partition("="))
        low, dots, high = text.partition("..")
        try:
            if not name or not dots or max(len(low), len(high)) > 20:
                raise ValueError
            ranges[name] = (int(low, 0), int(high, 0))
        except ValueError:
            raise FusecError(
                f"--sizes {item}: expected NAME=FIRST..LAST", help="e.g. --sizes B=1..65536"
            ) from None
    return ranges


def choices(program: Compilation, name: str, first: int, last: int) -> Iterator[Choice]:
    """Yield the choices between two sizes of a dim, the other dims at their default sizes.

    The ends and every power of two between them are examined; if two neighbours differ, bisection
    finds the exact size at which the choice changes.
    """
    from fusec import target

    step = _step_of(program.original, name, first, last)
    gpu = target.find(program.options.target)
    known: dict[int, _Found] = {}

    def at(size: int) -> _Found:
        if size not in known:
            update(f"sizes of {name}: segmenting at {name}={size}")
            known[size] = _found(program, name, size, gpu)
        return known[size]

    low = -(-first // step)
    with activity(f"sizes of {name}") as update:
        for begin, end in _stretches(low, last // step, lambda k: at(k * step)):
            here, there = at(begin * step), at(end * step)
            seconds = None if here.refused else (here.seconds, there.seconds)
            yield Choice(name, begin * step, end * step, here.parts, here.refused, seconds)


def _step_of(fusion: Fusion, name: str, first: int, last: int) -> int:
    facts = {d.name: d for d in fusion.dims}
    if name not in facts:
        known = ", ".join(n for n in facts if "." not in n) or "none: every size is a number"
        raise FusecError(f"--sizes: `{fusion.name}` has no dim `{name}`", help=f"dims: {known}")
    if not 0 <= first <= last <= LARGEST:
        raise FusecError(
            f"--sizes {name}={first}..{last}: expected 0 <= FIRST <= LAST <= {LARGEST}",
            help=f"e.g. --sizes {name}=1..65536",
        )
    step = facts[name].multiple_of
    if -(-first // step) > last // step:
        raise FusecError(f"--sizes {name}={first}..{last}: no multiple of {step} is in this range")
    return step


def _found(program: Compilation, name: str, size: int, gpu: Target) -> _Found:
    try:
        sized = with_sizes(program.original, {name: size})
        segmented = Compilation(sized, program.options).segmented
    except FusecError as error:
        return _Found((), error.diagnostic.message, 0.0)
    parts = (ChosenSegment(s.scheduler, _names(s.fusion)) for s in segmented.segments)
    return _Found(tuple(parts), None, sum(segmented.times(gpu)))


def _names(segment: Fusion) -> tuple[str, ...]:
    return tuple(o.value.name for o in segment.outputs)


def _stretches(low: int, high: int, at: Callable[[int], _Found]) -> Iterator[tuple[int, int]]:
    """Yield the longest runs of integers with one choice, from `low` to `high`."""
    begin = low
    for mark in _marks(low, high):
        while not at(begin).agrees(at(mark)):
            same, other = begin, mark
            while other - same > 1:
                middle = (same + other) // 2
                if at(begin).agrees(at(middle)):
                    same = middle
                else:
                    other = middle
            yield begin, same
            begin = other
    yield begin, high


def _marks(low: int, high: int) -> Iterable[int]:
    powers = (1 << k for k in range(high.bit_length()))
    return [*(p for p in powers if low < p < high), high]
