"""Measured times of a fusion, which its page shows next to the predicted ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass, field
from fusec.explain.units import time_text

if TYPE_CHECKING:
    from fusec.explain.facts import Segmentation, SegmentFacts
    from fusec.run.measure import KernelTime


@dataclass(frozen=True)
class MeasuredTimes:
    """Measured seconds; how: number of runs and device, as text.

    segments: by name, the measured ones. whole: of the fusion, None if it was not measured as a
    whole. limit: of kernels that only move the compulsory traffic, None if not measured. launches:
    of each kernel of a segment, by the names of both, if they were measured separately.
    """

    how: str
    segments: Mapping[str, float] = field(default_factory=dict[str, float])
    whole: float | None = None
    limit: float | None = None
    launches: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )

    def kernels_text(self, segment: SegmentFacts) -> str:
        """Return the times of a segment's kernels if it has several; else an empty text."""
        times = self.launches.get(segment.name, {})
        return ", ".join(f"{n} {time_text(s)}" for n, s in times.items()) if len(times) > 1 else ""

    def of(self, segment: SegmentFacts) -> float | None:
        """Return the measured seconds of a segment, None if it was not measured."""
        return self.segments.get(segment.name)

    def cover(self, record: Segmentation) -> bool:
        """Return whether every segment was measured."""
        return all(s.name in self.segments for s in record.segments)


def of_launches(
    record: Segmentation,
    kernels: Sequence[KernelTime],
    whole: float,
    how: str,
    limit: float | None = None,
) -> MeasuredTimes:
    """Return the times of segments as sums of their launches; 0 for a segment without kernels."""
    launches: dict[str, dict[str, float]] = {segment.name: {} for segment in record.segments}
    for kernel in kernels:
        own = launches[kernel.segment]
        own[kernel.kernel] = own.get(kernel.kernel, 0.0) + kernel.seconds
    times = {name: sum(own.values()) for name, own in launches.items()}
    return MeasuredTimes(how, times, whole, limit, launches)


def recorded(record: Segmentation) -> MeasuredTimes | None:
    """Return the recorded tuning times for these sizes and target; None without any."""
    exact = {
        s.name: s.tuned
        for s in record.segments
        if s.tuned is not None and s.tuned.exact and not s.overrides and s.iterations == 1
    }
    if not exact:
        return None
    devices = ", ".join(dict.fromkeys(f"{t.device}, {t.date}" for t in exact.values()))
    times = {name: t.us * 1e-6 for name, t in exact.items()}
    whole = sum(times.values()) if len(times) == len(record.segments) else None
    return MeasuredTimes(f"by segment, recorded on {devices}", times, whole)


def compared(predicted: float, measured: float) -> str:
    """Return `37.2 us, predicted 36.5 us (98 %)`."""
    ratio = f" ({100 * predicted / measured:.0f} %)" if measured else ""
    return f"{time_text(measured)}, predicted {time_text(predicted)}{ratio}"
