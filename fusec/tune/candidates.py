"""Selects the records of a space to measure: predicted fast ones, and diverse ones."""

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
"""Maximum predicted time of a record over the lowest; no faster one was found beyond it."""


@dataclass(frozen=True)
class Candidate:
    """Free fields of a record, and its predicted seconds."""

    settings: Settings
    predicted: float


def first_candidates(job: Job, most: int) -> list[Candidate]:
    """Return the cost model's choice, then others of a segment's space, at most `most` in all."""
    space = _estimated(job, {})
    return space[:1] + diverse(space[1:], most - 1, space[:1])


def neighbours(job: Job, settings: Settings, most: int) -> list[Candidate]:
    """Return records that differ from one in a single field, at most `most`."""
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
    """Return candidates, alternately the most dissimilar one and the one predicted fastest.

    Candidates far slower than the fastest are skipped. The first one wins ties.
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
    """Return the largest distance of a field's value from all its values in `others`, up to 1."""
    return max(
        (
            min(_distance(value, o.settings[name]) for o in others if name in o.settings)
            for name, value in candidate.settings.items()
        ),
        default=0.0,
    )


def _distance(value: Setting, other: Setting) -> float:
    """Return 0 for equal values, 1 for distinct ones; less for numbers within a factor of 2."""
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
