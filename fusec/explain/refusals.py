"""Reasons of schedulers to reject segments and groups, as texts: near ones, each reason once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fusec.explain.facts import Refused, Segmentation, SegmentFacts, Taken


def takers_of(record: Segmentation, decision: Taken) -> set[str]:
    """Return the schedulers of the segments that a decision is about."""
    return {s.scheduler for s in record.segments if s.name in decision.subject}


def worth_reporting(
    refusals: Sequence[Refused], takers: Collection[str] = (), every: bool = False
) -> list[Refused]:
    """Return the informative refusals: near ones, and those of the given schedulers."""
    return [r for r in refusals if every or r.near or r.scheduler in takers]


def reasons(decision: Taken, takers: Collection[str] = (), *, every: bool = False) -> list[str]:
    """Return the reasons of a decision, merging schedulers with the same reason."""
    if decision.refusals:
        found = worth_reporting(decision.refusals, takers, every)
        return alike(found) or ["no scheduler supports the whole group"]
    return [decision.because] if decision.because else []


def refused(segment: SegmentFacts) -> list[str]:
    """Return why other schedulers for this kind of segment reject this one."""
    return alike(worth_reporting(segment.refusals))


def unrelated(segment: SegmentFacts) -> list[str]:
    """Return why schedulers that do not support this kind of segment reject it."""
    return alike(r for r in segment.refusals if not r.near)


def alike(refusals: Iterable[Refused]) -> list[str]:
    """Return `names: reason` for each reason, merging schedulers with the same reason."""
    given: dict[str, list[str]] = {}
    for refusal in refusals:
        given.setdefault(f"{refusal.reason} ({refusal.rule})", []).append(refusal.scheduler)
    return [f"{', '.join(schedulers)}: {reason}" for reason, schedulers in given.items()]
