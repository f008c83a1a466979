"""Alternative definitions that the plan of a segment uses while its fusion keeps the nodes.

A scheduler costs them with its plans; each is compared with the plan that computes the nodes as
they are defined, and undone where that is predicted to be faster (Fuser#1243).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fusec.ir.graph import Fusion
from fusec.segment.offers import proposal_of
from fusec.segment.protocol import Estimate, Redefining, Redefinition, Refusal, Scheduler
from fusec.segment.segmented import Decision, Segment
from fusec.target import Target

LEAST_GAIN = 0.05
"""The part of the time that another definition must save: predictions are no better than that."""
LEAST_UNDONE = 0.2
"""The part of the time that the original definition must save.

Measured schedules and the fitted costs of row kernels are those of plans with these definitions.
"""


def with_cheaper_plan(
    segment: Segment,
    fusion: Fusion,
    schedulers: Sequence[Scheduler],
    target: Target,
    is_scheduled: bool,
    log: list[Decision],
) -> Segment:
    """Return a segment without the definitions of its plan that cost time, and log both times.

    schedulers: of kernels, its own among them, which alone is asked where it accepts the original
    definition. is_scheduled: whether the user sets schedules, which are of plans with these
    definitions.
    """
    scheduler = next((s for s in schedulers if s.name == segment.scheduler), None)
    if not isinstance(scheduler, Redefining):
        return segment
    for name, offered in _of_plan(scheduler, segment.fusion, fusion, target).items():
        values = tuple(r.value for r in offered)
        about, by = f"{name}: {offered[0].because}", f"by {offered[0].original}"
        original = replace(segment.fusion, as_defined=segment.fusion.as_defined | {name})
        ours = segment.estimate
        other = _cheapest(scheduler, schedulers, original, target)
        if ours is None or other is None:
            log.append(Decision("redefine", values, about))
            continue
        ours_seconds, other_seconds = ours.seconds(target), other[1].seconds(target)
        kernel = "" if other[0] == segment.scheduler else f" ({other[0]})"
        times = f"{_us(ours_seconds)}, {by} {_us(other_seconds)}{kernel}"
        if other_seconds < ours_seconds * (1 - LEAST_UNDONE) and not is_scheduled:
            log.append(Decision("undo", values, f"{name}: {times}"))
            segment = replace(segment, scheduler=other[0], fusion=original, estimate=other[1])
        else:
            log.append(Decision("redefine", values, f"{about}; {times}"))
    return segment


def _cheapest(
    own: Scheduler, schedulers: Sequence[Scheduler], segment: Fusion, target: Target
) -> tuple[str, Estimate] | None:
    """Return the cheapest scheduler of a segment and its estimate: its own where that accepts."""
    found: list[tuple[str, Estimate]] = []
    for scheduler in (own, *(s for s in schedulers if s is not own)):
        proposal = proposal_of(scheduler, segment, target)
        if not isinstance(proposal, Refusal):
            found.append((scheduler.name, proposal))
            if scheduler is own:
                break
    return min(found, key=lambda f: f[1].seconds(target), default=None)


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
