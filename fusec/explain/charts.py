"""Time by segment as a strip and bars, and a roofline, as data for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, log10
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass, replace
from fusec.explain.facts import Segmentation, SegmentFacts
from fusec.explain.measured import MeasuredTimes, compared
from fusec.explain.repeats import folded, kind_of
from fusec.explain.units import bytes_text, time_text

if TYPE_CHECKING:
    from fusec.segment.protocol import Estimate
    from fusec.target import Target

MOST_BARS = 10
"""Maximum number of kinds of segments with their own bar; the others share one."""
WIDTH, HEIGHT = 420.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 12.0, 12.0, 34.0
"""Size of the roofline in pixels, and the margins of its axes."""


@dataclass(frozen=True)
class Bar:
    """Equal segments: their time and traffic; first: None for the rest.

    measured: seconds, None unless all of them were measured. time_part, measured_part,
    traffic_part: relative to the longest bar.
    """

    label: str
    first: SegmentFacts | None
    count: int
    seconds: float
    bytes: int
    measured: float | None = None
    time_part: float = 0.0
    measured_part: float = 0.0
    traffic_part: float = 0.0


@dataclass(frozen=True)
class Block:
    """A segment in the strip, in order of execution; share: of the total time.

    first: the first segment equal to it, whose colour it has.
    """

    segment: SegmentFacts
    first: SegmentFacts
    share: float
    title: str


@dataclass(frozen=True)
class Dot:
    """A kind of segments in the roofline; radius by its fraction of the time.

    y: by the measured time if there is one, with predicted_y, else by the predicted time.
    """

    first: SegmentFacts
    x: float
    y: float
    radius: float
    title: str
    predicted_y: float | None = None


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: its position, and its label."""

    at: float
    label: str


@dataclass(frozen=True)
class Roofline:
    """Operations per second over operations per byte, both logarithmic.

    roofs: SVG paths with the names of the limits; idle: segments without arithmetic. measured:
    whether any dot is measured.
    """

    dots: tuple[Dot, ...]
    roofs: tuple[tuple[str, str], ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    idle: int
    measured: bool


@dataclass(frozen=True)
class Charts:
    """The overview of a fusion; measured: whether the strip has measured times."""

    measured: bool
    strip: tuple[Block, ...]
    bars: tuple[Bar, ...]
    roofline: Roofline | None


def charts(
    record: Segmentation,
    estimates: Sequence[Estimate],
    target: Target,
    measured: MeasuredTimes | None = None,
) -> Charts:
    """Return the overview; estimates: of the segments, in order."""
    times = measured or MeasuredTimes("")
    return Charts(
        times.cover(record),
        tuple(_strip(record, times)),
        tuple(bars_of(record.segments, times)),
        _roofline(record, estimates, target, times),
    )


def _strip(record: Segmentation, measured: MeasuredTimes) -> Iterator[Block]:
    """Yield the segments with their fractions of the measured, else of the predicted time."""
    kinds: dict[object, SegmentFacts] = {}
    seconds = [s.seconds for s in record.segments]
    if measured.cover(record):
        seconds = [measured.segments[s.name] for s in record.segments]
    whole = sum(seconds) or 1.0
    for segment, own in zip(record.segments, seconds, strict=True):
        first = kinds.setdefault(kind_of(segment), segment)
        yield Block(segment, first, own / whole, _title(segment, measured))


def _title(segment: SegmentFacts, measured: MeasuredTimes) -> str:
    moved = bytes_text(segment.bytes + segment.workspace_bytes)
    time, found = time_text(segment.seconds), measured.of(segment)
    if found is not None:
        time = compared(segment.seconds, found)
    return f"{segment.name} {segment.scheduler}: {time}, {moved}"


def bars_of(segments: Sequence[SegmentFacts], measured: MeasuredTimes | None = None) -> list[Bar]:
    """Return the kinds of segments by decreasing time, the last ones merged."""
    times = measured or MeasuredTimes("")
    kinds: dict[object, list[SegmentFacts]] = {}
    for segment in segments:
        kinds.setdefault(kind_of(segment), []).append(segment)
    bars = [_bar(f"{e[0].name} {e[0].scheduler}", e[0], e, times) for e in kinds.values()]
    bars.sort(key=lambda bar: -_time(bar))
    if len(bars) > MOST_BARS + 1:
        rest = {kind_of(bar.first) for bar in bars[MOST_BARS:] if bar.first is not None}
        others = [s for s in segments if kind_of(s) in rest]
        bars = [*bars[:MOST_BARS], _bar("other segments", None, others, times)]
    longest = max((max(bar.seconds, _time(bar)) for bar in bars), default=0.0) or 1.0
    most = max((bar.bytes for bar in bars), default=0) or 1
    return [
        replace(
            bar,
            time_part=bar.seconds / longest,
            measured_part=(bar.measured or 0.0) / longest,
            traffic_part=bar.bytes / most,
        )
        for bar in bars
    ]


def _time(bar: Bar) -> float:
    """Return the measured time, else the predicted one."""
    return bar.seconds if bar.measured is None else bar.measured


def _bar(
    label: str, first: SegmentFacts | None, each: Sequence[SegmentFacts], times: MeasuredTimes
) -> Bar:
    moved = sum(s.bytes + s.workspace_bytes for s in each)
    found = [seconds for s in each if (seconds := times.of(s)) is not None]
    measured = sum(found) if len(found) == len(each) else None
    return Bar(label, first, len(each), sum(s.seconds for s in each), moved, measured)


def _roofline(
    record: Segmentation, estimates: Sequence[Estimate], target: Target, measured: MeasuredTimes
) -> Roofline | None:
    """Return the roofline of the segments with arithmetic; None without any."""
    points: dict[int, tuple[float, float]] = {}
    found: dict[int, float] = {}
    for number, (segment, estimate) in enumerate(zip(record.segments, estimates, strict=True)):
        operations = (estimate.flops + estimate.tensor_flops) * segment.iterations
        moved = segment.bytes + segment.workspace_bytes
        if operations > 0 and moved > 0 and segment.seconds > 0:
            points[number] = (operations / moved, operations / segment.seconds)
            if seconds := measured.of(segment):
                found[number] = operations / seconds
    if not points:
        return None
    shown = folded(record.segments)
    peaks = {"tensor cores": target.half_flops, "fp32": target.flops}
    low_x, high_x = (
        min(0.1, *(x for x, _ in points.values())),
        max(1e3, *(1.5 * x for x, _ in points.values())),
    )
    low_y = min(target.bandwidth * low_x, *found.values(), *(y for _, y in points.values()))
    high_y = max(1.5 * target.half_flops, *found.values(), 0.0)
    frame = _Frame(low_x, high_x, low_y / 2, high_y)
    whole = sum(s.seconds for s in record.segments)
    dots: list[Dot] = []
    for number, (x, y) in points.items():
        if shown[number] == number:
            segment = record.segments[number]
            alike = sum(s.seconds for k, s in enumerate(record.segments) if shown[k] == number)
            reached = found.get(number)
            title = (
                f"{_title(segment, measured)}, {x:.3g} operations/byte, "
                f"{(y if reached is None else reached) / 1e12:.3g} TFLOP/s"
            )
            radius = 3 + 9 * (alike / whole) ** 0.5
            place = (frame.x(x), frame.y(y if reached is None else reached), radius, title)
            dots.append(Dot(segment, *place, None if reached is None else frame.y(y)))
    roofs = [("bandwidth", frame.line(low_x, target.bandwidth * low_x, target.half_flops))]
    roofs += [(name, frame.flat(peak / target.bandwidth, peak)) for name, peak in peaks.items()]
    dots.sort(key=lambda dot: -dot.radius)
    idle = len(record.segments) - len(points)
    marks = (frame.across(), frame.up())
    return Roofline(tuple(dots), tuple(roofs), *marks, idle, measured=bool(found))


@dataclass(frozen=True)
class _Frame:
    """The logarithmic axes of the roofline."""

    low_x: float
    high_x: float
    low_y: float
    high_y: float

    def x(self, value: float) -> float:
        """Return the x coordinate of an arithmetic intensity in operations per byte."""
        part = log10(value / self.low_x) / log10(self.high_x / self.low_x)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the y coordinate of a throughput in operations per second."""
        part = log10(value / self.low_y) / log10(self.high_y / self.low_y)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)

    def line(self, x: float, y: float, peak: float) -> str:
        """Return the path of the bandwidth limit from a point up to a peak."""
        return f"M{self.x(x):.1f} {self.y(y):.1f}L{self.x(x * peak / y):.1f} {self.y(peak):.1f}"

    def flat(self, x: float, peak: float) -> str:
        """Return the path of a peak from the ridge point on."""
        return f"M{self.x(x):.1f} {self.y(peak):.1f}H{WIDTH - RIGHT:.1f}"

    def across(self) -> tuple[Tick, ...]:
        """Return the tick marks of operations per byte."""
        powers = _powers(self.low_x, self.high_x)
        return tuple(Tick(self.x(10.0**k), f"{10.0**k:g}") for k in powers)

    def up(self) -> tuple[Tick, ...]:
        """Return the tick marks of operations per second."""
        powers = _powers(self.low_y, self.high_y)
        return tuple(Tick(self.y(10.0**k), f"{10.0 ** (k - 12):g}") for k in powers)


def _powers(low: float, high: float) -> range:
    """Return the powers of ten between two numbers, at most about seven of them."""
    first, last = -floor(-log10(low)), floor(log10(high))
    return range(first, last + 1, max(1, (last - first) // 6 + ((last - first) % 6 > 0)))
