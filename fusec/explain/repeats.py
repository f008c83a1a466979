"""Repeated runs of segments, such as the layers of a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from fusec.dataclasses import dataclass
from fusec.explain.facts import SegmentFacts

LONGEST_PERIOD = 64
"""Maximum number of segments in a layer."""


@dataclass(frozen=True)
class Repeat:
    """`count` equal runs of `period` segments each, starting at segment number `first`."""

    first: int
    period: int
    count: int

    @property
    def last(self) -> int:
        """Return the number after the last segment."""
        return self.first + self.period * self.count


def kind_of(segment: SegmentFacts) -> Hashable:
    """Return the properties that equal segments share: scheduler, operations and traffic.

    Not the predicted time, which depends on what the previous segment leaves in L2.
    """
    operations = Counter(node.op for node in segment.nodes)
    return segment.scheduler, frozenset(operations.items()), segment.bytes


def repeats_of(segments: Sequence[SegmentFacts]) -> tuple[Repeat, ...]:
    """Return the repeated runs in order; at each position the one that folds most segments."""
    numbers: dict[Hashable, int] = {}
    kinds = [numbers.setdefault(kind_of(s), len(numbers)) for s in segments]
    found: list[Repeat] = []
    at = 0
    while at < len(kinds):
        best = Repeat(at, 1, 1)
        for period in range(1, min(LONGEST_PERIOD, (len(kinds) - at) // 2) + 1):
            repeat = Repeat(at, period, _count(kinds, at, period))
            if repeat.period * (repeat.count - 1) > best.period * (best.count - 1):
                best = repeat
        if best.count > 1:
            found.append(best)
        at = best.last
    return tuple(found)


def _count(kinds: Sequence[int], at: int, period: int) -> int:
    """Return how many times in a row the kinds starting at `at` repeat."""
    pattern, count = kinds[at : at + period], 1
    while kinds[at + count * period : at + (count + 1) * period] == pattern:
        count += 1
    return count


def folded(segments: Sequence[SegmentFacts]) -> dict[int, int]:
    """Return the segment that is shown for each, by number: its counterpart in the first run."""
    shown = {number: number for number in range(len(segments))}
    for repeat in repeats_of(segments):
        for number in range(repeat.first, repeat.last):
            shown[number] = repeat.first + (number - repeat.first) % repeat.period
    return shown
