"""Which records of a space are measured: cheap ones, and ones that are unlike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import log2

from fusec.dataclasses import dataclass
from fusec.ir.annotations import Setting
from fusec.schedule.registry import find_scheduler
from fusec.segment.protocol import Estimate
from fusec.target import find
from fusec.tune.job import Job, Settings

DEAREST = 2.5
"""How many times the lowest price a record may have: beyond, no error of a price has hidden one."""


@dataclass(frozen=True)
class Candidate:
    """Free fields of a record, and the seconds that its price says."""

    settings: Settings
    predicted: float


def first_candidates(job: Job, most: int) -> list[Candidate]:
    """Return what price chooses, then others of a segment's space, at most so many in all."""
    space = _estimated(job, {})
    return space[:1] + diverse(space[1:], most - 1, space[:1])


def neighbours(job: Job, settings: Settings, most: int) -> list[Candidate]:
    """Return records that differ from one in a single field, at most so many."""
    found: dict[tuple[object, ...], Candidate] = {}
    for name in settings:
        others = {n: v for n, v in settings.items() if n != name}
        for candidate in _estimated(job, others):
            found.setdefault(tuple(candidate.settings.items()), candidate)
    own = tuple(settings.items())
    return diverse([c for key, c in found.items() if key != own], most, [])


def diverse(
    candidates: Iterable[Candidate], most: int, taken: Collection[Candidate]
) -> list[Candidate]:
    """Return some candidates: in turn the one that is most unlike the others, and the cheapest.

    What is far dearer than the cheapest is left out. Among equals the first one is taken.
    """
    left = sorted(candidates, key=lambda c: c.predicted)
    lowest = min((c.predicted for c in (*left[:1], *taken)), default=0.0)
    left = [c for c in left if c.predicted <= DEAREST * lowest]
    chosen: list[Candidate] = []
    while left and len(chosen) < most:
        others = [*taken, *chosen]
        unlike = max(left, key=lambda c: _novelty(c, others)) if others else left[0]
        chosen.append(left[0] if len(chosen) % 2 else unlike)
        left.remove(chosen[-1])
    return chosen


def _novelty(candidate: Candidate, others: Sequence[Candidate]) -> float:
    """Return how far the value of some field is from all that it has elsewhere, up to 1."""
    return max(
        (
            min(_distance(value, o.settings[name]) for o in others if name in o.settings)
            for name, value in candidate.settings.items()
        ),
        default=0.0,
    )


def _distance(value: Setting, other: Setting) -> float:
    """Return 0 for equal values and 1 for others; numbers within a doubling lie between."""
    if type(value) is int and type(other) is int and value > 0 and other > 0:
        return min(1.0, abs(log2(value / other)))
    return float(value != other)


def _estimated(job: Job, settings: Settings) -> list[Candidate]:
    target = find(job.target)
    space = find_scheduler(job.scheduler).estimated_space(job.fusion, target, settings)
    return [
        Candidate(record.settings, estimate.seconds(target))
        for record, estimate in space
        if isinstance(estimate, Estimate)
    ]
