"""Why schedulers do not take segments and groups, as texts: what is near, and each reason once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fusec.explain.facts import Refused, Segmentation, SegmentFacts, Taken


def takers_of(record: Segmentation, decision: Taken) -> set[str]:
    """Return the schedulers of the segments that a decision is about."""
    return {s.scheduler for s in record.segments if s.name in decision.subject}


def worth_reporting(
    refusals: Sequence[Refused], takers: Collection[str] = (), every: bool = False
) -> list[Refused]:
    """Return the refusals that say something: near ones, and those of the schedulers given."""
    return [r for r in refusals if every or r.near or r.scheduler in takers]


def reasons(decision: Taken, takers: Collection[str] = (), *, every: bool = False) -> list[str]:
    """Return the reasons of a decision, schedulers that give the same one together."""
    if decision.refusals:
        found = worth_reporting(decision.refusals, takers, every)
        return alike(found) or ["no scheduler supports the whole group"]
    return [decision.because] if decision.because else []


def refused(segment: SegmentFacts) -> list[str]:
    """Return why other schedulers that take such segments do not take this one."""
    return alike(worth_reporting(segment.refusals))


def unrelated(segment: SegmentFacts) -> list[str]:
    """Return why the schedulers do not take a segment that take none of its kind."""
    return alike(r for r in segment.refusals if not r.near)


def alike(refusals: Iterable[Refused]) -> list[str]:
    """Return `names: reason` for each reason, the schedulers that give the same one together."""
    given: dict[str, list[str]] = {}
    for refusal in refusals:
        given.setdefault(f"{refusal.reason} ({refusal.rule})", []).append(refusal.scheduler)
    return [f"{', '.join(schedulers)}: {reason}" for reason, schedulers in given.items()]
