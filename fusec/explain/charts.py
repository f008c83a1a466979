"""Where the time goes: a strip and bars by segment, and a roofline, as data for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, log10
from typing import TYPE_CHECKING

from fusec.explain.facts import Segmentation, SegmentFacts
from fusec.explain.repeats import folded, kind_of
from fusec.explain.units import bytes_text, time_text

if TYPE_CHECKING:
    from fusec.segment.protocol import Estimate
    from fusec.target import Target

MOST_BARS = 10
"""Kinds of segments with bars of their own; the others share one."""
WIDTH, HEIGHT = 420.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 12.0, 12.0, 34.0
"""The roofline in pixels, and the margins of its axes."""


@dataclass(frozen=True)
class Bar:
    """Equal segments: their time and traffic; first: None of the rest.

    time_part, traffic_part: relative to the longest bar.
    """

    label: str
    first: SegmentFacts | None
    count: int
    seconds: float
    bytes: int
    time_part: float = 0.0
    traffic_part: float = 0.0


@dataclass(frozen=True)
class Block:
    """A segment in the strip, in order of execution; share: of the predicted time.

    first: the first segment equal to it, whose colour it has.
    """

    segment: SegmentFacts
    first: SegmentFacts
    share: float
    title: str


@dataclass(frozen=True)
class Dot:
    """A kind of segments in the roofline; radius by its part of the time."""

    first: SegmentFacts
    x: float
    y: float
    radius: float
    title: str


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: its place, and its label."""

    at: float
    label: str


@dataclass(frozen=True)
class Roofline:
    """Operations per second over operations per byte, both logarithmic.

    roofs: SVG paths with the names of the limits; idle: segments without arithmetic.
    """

    dots: tuple[Dot, ...]
    roofs: tuple[tuple[str, str], ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    idle: int


@dataclass(frozen=True)
class Charts:
    """The overview of a fusion."""

    strip: tuple[Block, ...]
    bars: tuple[Bar, ...]
    roofline: Roofline | None


def charts(record: Segmentation, estimates: Sequence[Estimate], target: Target) -> Charts:
    """Return the overview; estimates: of the segments, in order."""
    whole = sum(s.seconds for s in record.segments) or 1.0
    kinds: dict[object, SegmentFacts] = {}
    strip = tuple(
        Block(s, kinds.setdefault(kind_of(s), s), s.seconds / whole, _title(s))
        for s in record.segments
    )
    return Charts(strip, tuple(bars_of(record.segments)), _roofline(record, estimates, target))


def _title(segment: SegmentFacts) -> str:
    moved = bytes_text(segment.bytes + segment.workspace_bytes)
    return f"{segment.name} {segment.scheduler}: {time_text(segment.seconds)}, {moved}"


def bars_of(segments: Sequence[SegmentFacts]) -> list[Bar]:
    """Return the kinds of segments with the most time first, the last ones together."""
    kinds: dict[object, list[SegmentFacts]] = {}
    for segment in segments:
        kinds.setdefault(kind_of(segment), []).append(segment)
    bars = [_bar(f"{e[0].name} {e[0].scheduler}", e[0], e) for e in kinds.values()]
    bars.sort(key=lambda bar: -bar.seconds)
    if len(bars) > MOST_BARS + 1:
        rest = {kind_of(bar.first) for bar in bars[MOST_BARS:] if bar.first is not None}
        others = [s for s in segments if kind_of(s) in rest]
        bars = [*bars[:MOST_BARS], _bar("other segments", None, others)]
    longest = max((bar.seconds for bar in bars), default=0.0) or 1.0
    most = max((bar.bytes for bar in bars), default=0) or 1
    return [
        replace(bar, time_part=bar.seconds / longest, traffic_part=bar.bytes / most) for bar in bars
    ]


def _bar(label: str, first: SegmentFacts | None, each: Sequence[SegmentFacts]) -> Bar:
    moved = sum(s.bytes + s.workspace_bytes for s in each)
    return Bar(label, first, len(each), sum(s.seconds for s in each), moved)


def _roofline(
    record: Segmentation, estimates: Sequence[Estimate], target: Target
) -> Roofline | None:
    """Return the roofline of the segments that compute something; None without any."""
    points: dict[int, tuple[float, float]] = {}
    for number, (segment, estimate) in enumerate(zip(record.segments, estimates, strict=True)):
        operations = (estimate.flops + estimate.tensor_flops) * segment.iterations
        moved = segment.bytes + segment.workspace_bytes
        if operations > 0 and moved > 0 and segment.seconds > 0:
            points[number] = (operations / moved, operations / segment.seconds)
    if not points:
        return None
    shown = folded(record.segments)
    peaks = {"tensor cores": target.half_flops, "fp32": target.flops}
    low_x, high_x = (
        min(0.1, *(x for x, _ in points.values())),
        max(1e3, *(x for x, _ in points.values())),
    )
    low_y = min(target.bandwidth * low_x, *(y for _, y in points.values()))
    frame = _Frame(low_x, high_x, low_y / 2, 1.5 * target.half_flops)
    whole = sum(s.seconds for s in record.segments)
    dots: list[Dot] = []
    for number, (x, y) in points.items():
        if shown[number] == number:
            segment = record.segments[number]
            alike = sum(s.seconds for k, s in enumerate(record.segments) if shown[k] == number)
            title = (
                f"{segment.name} {segment.scheduler}: {x:.3g} operations/byte, "
                f"{y / 1e12:.3g} TFLOP/s, {time_text(alike)}"
            )
            radius = 3 + 9 * (alike / whole) ** 0.5
            dots.append(Dot(segment, frame.x(x), frame.y(y), radius, title))
    roofs = [("bandwidth", frame.line(low_x, target.bandwidth * low_x, target.half_flops))]
    roofs += [(name, frame.flat(peak / target.bandwidth, peak)) for name, peak in peaks.items()]
    dots.sort(key=lambda dot: -dot.radius)
    idle = len(record.segments) - len(points)
    return Roofline(tuple(dots), tuple(roofs), frame.across(), frame.up(), idle)


@dataclass(frozen=True)
class _Frame:
    """The logarithmic axes of the roofline."""

    low_x: float
    high_x: float
    low_y: float
    high_y: float

    def x(self, value: float) -> float:
        """Return where a number of operations per byte is."""
        part = log10(value / self.low_x) / log10(self.high_x / self.low_x)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return where a number of operations per second is."""
        part = log10(value / self.low_y) / log10(self.high_y / self.low_y)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)

    def line(self, x: float, y: float, peak: float) -> str:
        """Return the path of the bandwidth from a place up to a peak."""
        return f"M{self.x(x):.1f} {self.y(y):.1f}L{self.x(x * peak / y):.1f} {self.y(peak):.1f}"

    def flat(self, x: float, peak: float) -> str:
        """Return the path of a peak from where the bandwidth reaches it."""
        return f"M{self.x(x):.1f} {self.y(peak):.1f}H{WIDTH - RIGHT:.1f}"

    def across(self) -> tuple[Tick, ...]:
        """Return the marks of operations per byte."""
        powers = _powers(self.low_x, self.high_x)
        return tuple(Tick(self.x(10.0**k), f"{10.0**k:g}") for k in powers)

    def up(self) -> tuple[Tick, ...]:
        """Return the marks of operations per second."""
        powers = _powers(self.low_y, self.high_y)
        return tuple(Tick(self.y(10.0**k), f"{10.0 ** (k - 12):g}") for k in powers)


def _powers(low: float, high: float) -> range:
    """Return the powers of ten between two numbers, at most about seven of them."""
    first, last = -floor(-log10(low)), floor(log10(high))
    return range(first, last + 1, max(1, (last - first) // 6 + ((last - first) % 6 > 0)))
