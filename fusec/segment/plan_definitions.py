"""Alternative definitions that the plan of a segment uses while its fusion keeps the nodes.

A scheduler estimates them as part of its plans; each is compared with the plan that computes the
nodes as written, and undone if that is predicted to be faster (Fuser#1243).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fusec.dataclasses import dataclass, replace
from fusec.ir.graph import Fusion
from fusec.segment.canonical import canonical
from fusec.segment.offers import proposal_of, with_names
from fusec.segment.protocol import (
    Estimate,
    Redefining,
    Redefinition,
    Refusal,
    Scheduler,
    is_redefining,
)
from fusec.segment.segmented import Decision, Segment, SegmentedFusion
from fusec.target import Target

LEAST_GAIN = 0.05
"""Fraction of the time that another definition must save: the accuracy of predictions."""
LEAST_UNDONE = 0.2
"""Fraction of the time that the original definition must save.

Measured schedules and the fitted costs of row kernels are those of plans with these definitions.
"""


class PlanDefinitions:
    """Compares plans with and without their alternative definitions, once for each structure."""

    def __init__(self, schedulers: Sequence[Scheduler], target: Target) -> None:
        """Start with nothing compared. schedulers: of kernels."""
        self.schedulers = tuple(schedulers)
        self.target = target
        self._known: dict[object, _Compared] = {}

    def with_cheaper(
        self, found: SegmentedFusion, is_scheduled: bool, log: list[Decision]
    ) -> SegmentedFusion:
        """Return the segments without the definitions of plans that cost time, and log them."""
        segments = tuple(self._cheaper(s, found.fusion, is_scheduled, log) for s in found.segments)
        return replace(found, segments=segments)

    def _cheaper(
        self, segment: Segment, fusion: Fusion, is_scheduled: bool, log: list[Decision]
    ) -> Segment:
        own = segment.fusion.structure(offsets=False)
        key = segment.scheduler, own, segment.estimate, is_scheduled
        known = self._known.get(key)
        if known is None:
            said: list[Decision] = []
            compared = with_cheaper_plan(
                segment, fusion, self.schedulers, self.target, is_scheduled, said
            )
            known = self._known[key] = _Compared(segment, compared, tuple(said))
        log += known.decisions_of(segment)
        return known.result_for(segment)


@dataclass(frozen=True)
class _Compared:
    """A segment before and after the comparison, and the decisions about it."""

    before: Segment
    after: Segment
    decisions: tuple[Decision, ...]

    def result_for(self, segment: Segment) -> Segment:
        """Return another segment of the same structure after the comparison."""
        if self.after is self.before:
            return segment
        fusion = replace(segment.fusion, as_defined=self.after.fusion.as_defined)
        after = self.after
        return replace(segment, scheduler=after.scheduler, fusion=fusion, estimate=after.estimate)

    def decisions_of(self, segment: Segment) -> Iterable[Decision]:
        """Return the decisions about a segment of the same structure, with its own names."""
        if segment is self.before or not self.decisions:
            return self.decisions
        pairs = zip(_names(self.before), _names(segment), strict=True)
        names = {a: b for a, b in pairs if a != b}
        return tuple(
            replace(
                decision,
                subject=tuple(names.get(n, n) for n in decision.subject),
                because=with_names(decision.because, names),
            )
            for decision in self.decisions
        )


def _names(segment: Segment) -> list[str]:
    return [v.name for v in canonical(segment.fusion).values]


def with_cheaper_plan(
    segment: Segment,
    fusion: Fusion,
    schedulers: Sequence[Scheduler],
    target: Target,
    is_scheduled: bool,
    log: list[Decision],
) -> Segment:
    """Return a segment without the definitions of its plan that cost time, and log both times.

    schedulers: of kernels, including its own, the only one called if it accepts the original
    definition. is_scheduled: whether the user sets schedules, which are for plans with these
    definitions.
    """
    scheduler = next((s for s in schedulers if s.name == segment.scheduler), None)
    if not is_redefining(scheduler):
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
