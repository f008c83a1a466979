"""Alternative definitions that the plan of a segment uses while its fusion keeps the nodes.

A scheduler costs them with its plans; each is compared with the plan that computes the nodes as
they are defined, and undone where that is predicted to be faster (Fuser#1243).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fusec.ir.graph import Fusion
from fusec.segment.offers import proposal_of
from fusec.segment.protocol import Redefining, Redefinition, Refusal
from fusec.segment.segmented import Decision, Segment
from fusec.target import Target

LEAST_GAIN = 0.05
"""The part of the time that another definition must save: predictions are no better than that."""


def with_cheaper_plan(
    segment: Segment,
    fusion: Fusion,
    scheduler: Redefining | None,
    target: Target,
    is_scheduled: bool,
    log: list[Decision],
) -> Segment:
    """Return a segment without the definitions of its plan that cost time, and log both times.

    scheduler: the segment's, None where it has no alternative definitions. is_scheduled: whether
    the user sets schedules, which are of plans with these definitions.
    """
    if scheduler is None:
        return segment
    for name, offered in _of_plan(scheduler, segment.fusion, fusion, target).items():
        values = tuple(r.value for r in offered)
        original = replace(segment.fusion, as_defined=segment.fusion.as_defined | {name})
        ours = proposal_of(scheduler, segment.fusion, target)
        other = proposal_of(scheduler, original, target)
        about, by = f"{name}: {offered[0].because}", f"by {offered[0].original}"
        if isinstance(ours, Refusal):  # accepted at other sizes, or for a pin
            log.append(Decision("redefine", values, about))
            continue
        if isinstance(other, Refusal):
            log.append(Decision("redefine", values, f"{about}; {by}: {other.because}"))
            continue
        ours_seconds, other_seconds = ours.seconds(target), other.seconds(target)
        times = f"{_us(ours_seconds)}, {by} {_us(other_seconds)}"
        if other_seconds < ours_seconds * (1 - LEAST_GAIN) and not is_scheduled:
            log.append(Decision("undo", values, f"{name}: {times}"))
            segment = replace(segment, fusion=original, estimate=other)
        else:
            log.append(Decision("redefine", values, f"{about}; {times}"))
    return segment


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us"


def _of_plan(
    scheduler: Redefining, segment: Fusion, fusion: Fusion, target: Target
) -> Mapping[str, list[Redefinition]]:
    """Return the definitions that a segment's plan uses, by name."""
    found: dict[str, list[Redefinition]] = {}
    for offered in scheduler.redefinitions(segment, fusion, target):
        if offered.rule is None and offered.name not in segment.as_defined:
            found.setdefault(offered.name, []).append(offered)
    return found
