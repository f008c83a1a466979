"""A segmentation as boxes and lines: segments with their operations, tensors between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise

from fusec.dataclasses import dataclass, field, replace
from fusec.explain.facts import Operation, Segmentation, SegmentFacts
from fusec.explain.groups import Group, groups_of
from fusec.explain.layout import Layout, Point, arrange, shelved
from fusec.explain.repeats import Repeat, folded, repeats_of
from fusec.explain.text import count, crossing_text
from fusec.explain.units import bytes_text, time_text

HUES = 8
"""Number of segment colours; with more segments they repeat, and numbers distinguish segments."""
LETTER = 6.7
"""Width of a letter of the drawing's font, in pixels."""
LONGEST = 22
"""Maximum letters of a name in a box."""
MOST_NODES = 160
"""Segments with more operations show only their count by kind."""
MOST_SEGMENTS = 250
MOST_UNFOLDED = 12
"""Maximum number of segments that are all shown, including those of repeated layers."""
PAD = 14.0
HEAD = 44.0
ROW = 34.0
LABEL = 18.0
"""Height of a label between segments."""
PORT = 16.0
"""Distance between the ends of lines on one side of a segment."""


@dataclass(frozen=True)
class Box:
    """A rectangle with its lines of text; `title` is the full text of shortened lines."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]
    title: str
    hue: int

    @property
    def middle(self) -> float:
        """Return the position of centred text."""
        return self.x + self.width / 2


@dataclass(frozen=True)
class Line:
    """A path from box to box in SVG; `label` is shown at `place`."""

    path: str
    kind: str
    title: str
    hue: int
    label: str = ""
    place: Point | None = None


@dataclass(frozen=True)
class Figure:
    """A segment or a group: its frame and its content.

    name: of the segment, or of the group's part of the page, as `g3`. stands_for: the numbers of
    the segments, and of their repeats.
    """

    name: str
    frame: Box
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    stands_for: tuple[int, ...]


@dataclass(frozen=True)
class Drawing:
    """The whole drawing in pixels; repeats: layers that are shown once.

    groups: those that are shown as one box, by the name of their part of the page.
    """

    segments: tuple[Figure, ...]
    lines: tuple[Line, ...]
    width: float
    height: float
    repeats: tuple[Repeat, ...] = ()
    groups: Mapping[str, Group] = field(default_factory=dict[str, Group])


def draw(record: Segmentation, *, operations: bool = True, groups: bool = False) -> Drawing | None:
    """Return the drawing of a segmentation; None if there are too many segments.

    Of many segments, repeated layers are shown once. operations: whether segments show their
    operations. groups: whether segments are shown in groups, as many as fit a screen.
    """
    segments = record.segments
    folds = len(segments) > MOST_UNFOLDED
    repeats = repeats_of(segments) if folds else ()
    shown = folded(segments) if folds else {s.id: s.id for s in segments}
    figure = {s.id: s for s in segments if shown[s.id] == s.id}
    if not groups and len(figure) > MOST_SEGMENTS:
        return None
    inside, gap = (_inside, 80.0) if operations and not groups else (_outside, 40.0)
    boxes = groups_of(figure) if groups else [Group(s.name, (s.id,)) for s in figure.values()]
    alike: dict[int, list[int]] = {}
    for number, first in shown.items():
        alike.setdefault(first, []).append(number)
    inner = dict[int, Figure]()
    for group in boxes:
        first, *others = group.members
        stands_for = tuple(k for member in group.members for k in alike[member])
        if others:
            inner[first] = _grouped(group, [segments[k] for k in stands_for])
        else:
            inner[first] = inside(figure[first], record, stands_for)
    crossing = _contracted(*_crossing(record, shown), boxes)
    return _arranged(inner, boxes, *crossing, gap, repeats)


def _arranged(
    inner: Mapping[int, Figure],
    groups: Sequence[Group],
    between: Mapping[tuple[int, int], Sequence[str]],
    moved: Mapping[tuple[int, int], int],
    gap: float,
    repeats: tuple[Repeat, ...],
) -> Drawing:
    """Return the drawing of boxes, by their first members, and the tensors between them."""
    sizes: dict[Hashable, tuple[float, float]] = {k: _frame_size(d) for k, d in inner.items()}
    outer = shelved(sizes, between, (40.0, gap))
    placed = tuple(_moved(d, _corner(outer.places[k], sizes[k])) for k, d in inner.items())
    lines = _between(outer, between, moved, {g.members[0]: g.name for g in groups})
    labels = (e.place.x + label_width(e.label) / 2 for e in lines if e.place is not None)
    width = max([outer.width + PAD, *labels]) + PAD
    joined = {_group_name(g): g for g in groups if len(g.members) > 1}
    return Drawing(placed, lines, width, outer.height + 2 * PAD, repeats, joined)


def _group_name(group: Group) -> str:
    return f"g{group.members[0]}"


def _crossing(
    record: Segmentation, shown: Mapping[int, int]
) -> tuple[dict[tuple[int, int], list[str]], Counter[tuple[int, int]]]:
    """Return the tensors between visible segments as text, and their bytes.

    Of a repeated layer, those of its first run; none that lead to its next run.
    """
    between: dict[tuple[int, int], list[str]] = {}
    moved = Counter[tuple[int, int]]()
    origin: dict[tuple[int, int], int] = {}
    for tensor in record.crossing:
        for consumer in tensor.consumers:
            pair = (shown[tensor.producer], shown[consumer])
            if pair[0] < pair[1] and origin.setdefault(pair, tensor.producer) == tensor.producer:
                between.setdefault(pair, []).append(crossing_text(tensor))
                moved[pair] += tensor.bytes
    return between, moved


def _contracted(
    between: Mapping[tuple[int, int], list[str]],
    moved: Mapping[tuple[int, int], int],
    groups: Sequence[Group],
) -> tuple[dict[tuple[int, int], list[str]], Counter[tuple[int, int]]]:
    """Return the tensors between groups, given by their first members; none inside of a group."""
    group = {member: g.members[0] for g in groups for member in g.members}
    texts, sizes = dict[tuple[int, int], list[str]](), Counter[tuple[int, int]]()
    for pair, own in between.items():
        outer = (group[pair[0]], group[pair[1]])
        if outer[0] != outer[1]:
            texts.setdefault(outer, []).extend(own)
            sizes[outer] += moved[pair]
    return texts, sizes


def _corner(middle: Point, size: tuple[float, float]) -> Point:
    return Point(middle.x - size[0] / 2 + PAD, middle.y - size[1] / 2 + PAD)


def _frame_size(figure: Figure) -> tuple[float, float]:
    return (figure.frame.width, figure.frame.height)


def _between(
    outer: Layout,
    between: Mapping[tuple[int, int], Sequence[str]],
    moved: Mapping[tuple[int, int], int],
    names: Mapping[int, str],
) -> tuple[Line, ...]:
    """Return the lines between segments, each with its label and its own ports at both ends."""
    ports: dict[tuple[tuple[int, int], int], float] = {}
    share: dict[tuple[int, int], float] = {}
    for end, inner in ((0, 1), (1, -2)):
        sides: dict[int, list[tuple[int, int]]] = {}
        for pair in between:
            sides.setdefault(pair[end], []).append(pair)
        for pairs in sides.values():
            pairs.sort(key=lambda p: (outer.ways[p][inner].x, p))
            for number, pair in enumerate(pairs):
                ports[pair, end] = (number - (len(pairs) - 1) / 2) * PORT
                share[pair] = (number + 1) / (len(pairs) + 1)
    lines: list[Line] = []
    for pair, texts in between.items():
        way = [Point(p.x + PAD, p.y + PAD) for p in outer.ways[pair]]
        way[0] = Point(way[0].x + ports[pair, 0], way[0].y)
        way[-1] = Point(way[-1].x + ports[pair, 1], way[-1].y)
        what = texts[0].partition(" ")[0] if len(texts) == 1 else count(len(texts), "tensor")
        label = f"{what} {bytes_text(moved[pair])}"
        title = f"{names[pair[0]]} to {names[pair[1]]}\n" + "\n".join(texts)
        place = _along(way[-2], way[-1], share[pair])
        lines.append(Line(_path(way), "cross", title, pair[0] % HUES, label, place))
    return tuple(_separate_labels(lines))


def label_width(label: str) -> float:
    """Return the width of a label's pill, in pixels."""
    return 7.3 * len(label) + 10


def _separate_labels(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield lines with non-overlapping labels: a later one moves to the right."""
    taken: list[tuple[float, float, float]] = []
    for line in sorted(lines, key=lambda line: (line.place.x, line.place.y) if line.place else ()):
        assert line.place is not None
        half = label_width(line.label) / 2
        x = max(line.place.x, half + 2)
        for middle, y, other in sorted(taken):
            if abs(y - line.place.y) < LABEL and abs(middle - x) < other + half:
                x = middle + other + half + 2
        taken.append((x, line.place.y, half))
        yield replace(line, place=replace(line.place, x=x))


def _along(start: Point, end: Point, share: float) -> Point:
    """Return a point on the last stretch of a path."""
    bend = share * share * (3 - 2 * share)
    down = 1.5 * share * (1 - share) + share**3
    return Point(start.x + (end.x - start.x) * bend, start.y + (end.y - start.y) * down)


def _path(way: Sequence[Point]) -> str:
    """Return a curve that leaves and enters boxes vertically."""
    parts = [f"M{way[0].x:.1f} {way[0].y:.1f}"]
    for start, end in pairwise(way):
        half = (start.y + end.y) / 2
        parts.append(f"C{start.x:.1f} {half:.1f} {end.x:.1f} {half:.1f} {end.x:.1f} {end.y:.1f}")
    return "".join(parts)


def _moved(figure: Figure, by: Point) -> Figure:
    """Return a segment at its position; the paths inside are moved by the frame's group."""
    return replace(figure, frame=replace(figure.frame, x=by.x, y=by.y))


def _outside(segment: SegmentFacts, record: Segmentation, stands_for: tuple[int, ...]) -> Figure:
    """Return a segment as a frame with its name and figures."""
    del record
    return Figure(segment.name, _frame(segment, stands_for, 0.0, HEAD + 4), (), (), stands_for)


def _grouped(group: Group, segments: Sequence[SegmentFacts]) -> Figure:
    """Return a group as a frame with its name, the number of its segments, and their figures."""
    moved = sum(s.bytes + s.workspace_bytes for s in segments)
    seconds = sum(s.seconds for s in segments)
    figures = f"{count(len(segments), 'segment')}, {bytes_text(moved)}, {time_text(seconds)}"
    short = group.name if len(group.name) <= LONGEST else f"{group.name[: LONGEST - 1]}…"
    width = LETTER * 1.15 * max(len(short), len(figures)) + 2 * PAD
    title = f"{group.name}: {', '.join(s.name for s in segments)}"
    hue = group.members[0] % HUES
    frame = Box("frame", 0.0, 0.0, width, HEAD + 4, (short, figures), title, hue)
    return Figure(_group_name(group), frame, (), (), tuple(s.id for s in segments))


def _frame(segment: SegmentFacts, stands_for: tuple[int, ...], width: float, height: float) -> Box:
    """Return the frame of a segment, at least `width` wide inside, with its name and figures."""
    times = f" ×{len(stands_for)}" if len(stands_for) > 1 else ""
    figures = f"{bytes_text(segment.bytes)}, {time_text(segment.seconds)}"
    title = f"{segment.name} {segment.scheduler}{times}"
    width = max(width, LETTER * 1.15 * max(len(title), len(figures))) + 2 * PAD
    return Box("frame", 0.0, 0.0, width, height, (title, figures), title, segment.id % HUES)


def _inside(segment: SegmentFacts, record: Segmentation, stands_for: tuple[int, ...]) -> Figure:
    hue = segment.id % HUES
    boxes = _boxes(segment, record)
    sizes = {key: (b.width, b.height) for key, b in boxes.items()}
    layout = arrange(sizes, _lines(segment, boxes), (12.0, 20.0))
    frame = _frame(segment, stands_for, layout.width, layout.height + HEAD + 2 * PAD)
    left = (frame.width - layout.width) / 2
    placed = {
        key: replace(
            box,
            x=layout.places[key].x - box.width / 2 + left,
            y=layout.places[key].y - box.height / 2 + HEAD + PAD,
        )
        for key, box in boxes.items()
    }
    ways = (
        (line, [Point(p.x + left, p.y + HEAD + PAD) for p in way])
        for line, way in layout.ways.items()
    )
    lines = tuple(Line(_path(way), "data", _line_title(boxes, line), hue) for line, way in ways)
    return Figure(segment.name, frame, tuple(placed.values()), lines, stands_for)


def _line_title(boxes: Mapping[Hashable, Box], line: tuple[Hashable, Hashable]) -> str:
    return f"{boxes[line[0]].lines[0]} to {boxes[line[1]].lines[0]}"


def _boxes(segment: SegmentFacts, record: Segmentation) -> dict[Hashable, Box]:
    """Return the boxes by key: inputs and outputs by name, operations by number."""
    makers = {c.name: c.producer for c in record.crossing}
    passed = {c.name for c in record.crossing}
    again = {r.name for r in record.rematerialised if segment.id in r.segments}
    boxes: dict[Hashable, Box] = {}
    for name in segment.inputs:
        kind, hue = ("given", segment.id) if name not in makers else ("read", makers[name])
        boxes["in", name] = _box(kind, (name,), f"reads {name}", hue)
    if len(segment.nodes) > MOST_NODES:
        boxes["op", 0] = _summary(segment)
    else:
        for number, node in enumerate(segment.nodes):
            kind = "again" if again & set(node.outputs) else "op"
            text = f"{node.text}{', computed again here' if kind == 'again' else ''}"
            boxes["op", number] = _box(kind, (node.op, ", ".join(node.outputs)), text, segment.id)
    for name in segment.outputs:
        kind = "passed" if name in passed else "result"
        boxes["out", name] = _box(kind, (name,), f"writes {name}", segment.id)
    return boxes


def _summary(segment: SegmentFacts) -> Box:
    kinds = Counter(n.op for n in segment.nodes).most_common()
    lines = [f"{n} {op}" for op, n in kinds[:12]]
    rest = sum(n for _, n in kinds[12:])
    box = _box("op", (*lines, *([f"{rest} others"] if rest else [])), "", segment.id)
    return replace(box, height=16.0 * len(box.lines) + 10)


def _box(kind: str, lines: Sequence[str], title: str, hue: int) -> Box:
    short = tuple(t if len(t) <= LONGEST else t[: LONGEST - 1] + "…" for t in lines)
    width = LETTER * max(map(len, short)) + 14
    height = ROW if len(short) > 1 else 22.0
    return Box(kind, 0.0, 0.0, width, height, short, title or "\n".join(lines), hue % HUES)


def _lines(segment: SegmentFacts, boxes: Mapping[Hashable, Box]) -> list[tuple[Hashable, Hashable]]:
    collapsed = len(segment.nodes) > MOST_NODES
    source: dict[str, Hashable] = {name: ("in", name) for name in segment.inputs}
    found: list[tuple[Hashable, Hashable]] = []
    for number, node in enumerate(segment.nodes):
        own: Hashable = ("op", 0 if collapsed else number)
        found += [(source[n], own) for n in _given(node, source) if source[n] != own]
        source.update(dict.fromkeys(node.outputs, own))
    found += [(source[name], ("out", name)) for name in segment.outputs if name in source]
    return [line for line in found if line[0] in boxes and line[1] in boxes]


def _given(node: Operation, source: Mapping[str, Hashable]) -> list[str]:
    return [name for name in node.inputs if name in source]
