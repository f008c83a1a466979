"""Layout of the boxes and lines of a drawing: layers from top to bottom, few crossings."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import pairwise

from fusec.dataclasses import dataclass, field

SWEEPS = 6
SHELF = 640.0
"""The width of a row of parts, in pixels."""


@dataclass(frozen=True)
class Point:
    """A point in a drawing, in pixels from its upper left corner."""

    x: float
    y: float


@dataclass(frozen=True)
class Layout:
    """The centre of each box, a path for each line, and the size of the whole."""

    places: Mapping[Hashable, Point]
    ways: Mapping[tuple[Hashable, Hashable], tuple[Point, ...]]
    width: float
    height: float


@dataclass
class _Layers:
    """Boxes in rows; a line over several rows bends at an empty box in each of them."""

    sizes: dict[Hashable, tuple[float, float]]
    rows: list[list[Hashable]]
    above: dict[Hashable, list[Hashable]] = field(default_factory=dict[Hashable, list[Hashable]])
    below: dict[Hashable, list[Hashable]] = field(default_factory=dict[Hashable, list[Hashable]])
    bends: dict[tuple[Hashable, Hashable], list[Hashable]] = field(
        default_factory=dict[tuple[Hashable, Hashable], list[Hashable]]
    )


def arrange(
    sizes: Mapping[Hashable, tuple[float, float]],
    lines: Iterable[tuple[Hashable, Hashable]],
    gap: tuple[float, float],
) -> Layout:
    """Return the layout of an acyclic graph; `gap` is the space between boxes, across and down."""
    unique = list(dict.fromkeys(lines))
    layers = _layered(sizes, unique)
    _order(layers)
    xs = _across(layers, gap[0])
    ys, talls, height = _down(layers, gap[1])
    left = min((xs[b] - layers.sizes[b][0] / 2 for b in xs), default=0.0)
    right = max((xs[b] + layers.sizes[b][0] / 2 for b in xs), default=0.0)
    places = {box: Point(xs[box] - left, ys[box]) for box in xs}
    ways: dict[tuple[Hashable, Hashable], tuple[Point, ...]] = {}
    for line in unique:
        start, end = places[line[0]], places[line[1]]
        out = Point(start.x, start.y + sizes[line[0]][1] / 2)
        into = Point(end.x, end.y - sizes[line[1]][1] / 2)
        bends = (
            Point(places[b].x, places[b].y + side * talls[b] / 2)
            for b in layers.bends[line]
            for side in (-1, 1)
        )
        ways[line] = (out, *bends, into)
    return Layout({b: places[b] for b in sizes}, ways, right - left, height)


def shelved(
    sizes: Mapping[Hashable, tuple[float, float]],
    lines: Iterable[tuple[Hashable, Hashable]],
    gap: tuple[float, float],
) -> Layout:
    """Return the layout with unconnected parts next to each other, in rows of SHELF."""
    unique = list(dict.fromkeys(lines))
    places: dict[Hashable, Point] = {}
    ways: dict[tuple[Hashable, Hashable], tuple[Point, ...]] = {}
    left = top = tall = width = 0.0
    for part in _connected(sizes, unique):
        own = [line for line in unique if line[0] in part]
        layout = arrange({box: sizes[box] for box in part}, own, gap)
        if left and left + layout.width > SHELF:
            left, top, tall = 0.0, top + tall + gap[1], 0.0
        places.update({b: Point(p.x + left, p.y + top) for b, p in layout.places.items()})
        for line, way in layout.ways.items():
            ways[line] = tuple(Point(p.x + left, p.y + top) for p in way)
        width, tall = max(width, left + layout.width), max(tall, layout.height)
        left += layout.width + gap[0]
    return Layout(places, ways, width, top + tall)


def _connected(
    boxes: Iterable[Hashable], lines: Iterable[tuple[Hashable, Hashable]]
) -> list[dict[Hashable, None]]:
    """Return the connected components, in the order of their first boxes."""
    part: dict[Hashable, dict[Hashable, None]] = {box: {box: None} for box in boxes}
    for start, end in lines:
        small, large = sorted((part[start], part[end]), key=len)
        if small is not large:
            large.update(small)
            part.update(dict.fromkeys(small, large))
    return list({id(part[box]): part[box] for box in part}.values())


def _layered(
    sizes: Mapping[Hashable, tuple[float, float]], lines: Sequence[tuple[Hashable, Hashable]]
) -> _Layers:
    """Put each box below its predecessors; boxes without any go just above their first use."""
    before: dict[Hashable, list[Hashable]] = {box: [] for box in sizes}
    after: dict[Hashable, list[Hashable]] = {box: [] for box in sizes}
    for start, end in lines:
        before[end].append(start)
        after[start].append(end)
    row = _depths(before, after)
    for box in sizes:
        if not before[box] and after[box]:
            row[box] = min(row[b] for b in after[box]) - 1
    layers = _Layers(dict(sizes), [[] for _ in range(max(row.values(), default=-1) + 1)])
    for box, level in row.items():
        layers.rows[level].append(box)
    for start, end in lines:
        bends: list[Hashable] = [
            ("bend", start, end, level) for level in range(row[start] + 1, row[end])
        ]
        for level, bend in enumerate(bends, row[start] + 1):
            layers.sizes[bend] = (0.0, 0.0)
            layers.rows[level].append(bend)
        layers.bends[start, end] = bends
        chain = (start, *bends, end)
        for upper, lower in pairwise(chain):
            layers.below.setdefault(upper, []).append(lower)
            layers.above.setdefault(lower, []).append(upper)
    return layers


def _depths(
    before: Mapping[Hashable, list[Hashable]], after: Mapping[Hashable, list[Hashable]]
) -> dict[Hashable, int]:
    waiting = {box: len(sources) for box, sources in before.items()}
    ready = [box for box, number in waiting.items() if not number]
    depth = dict.fromkeys(ready, 0)
    while ready:
        box = ready.pop()
        for later in after[box]:
            depth[later] = max(depth.get(later, 0), depth[box] + 1)
            waiting[later] -= 1
            if not waiting[later]:
                ready.append(later)
    assert len(depth) == len(before), "a graph with a cycle has no layers"
    return depth


def _order(layers: _Layers) -> None:
    """Sort each row by the mean position of its neighbours, alternately downwards and upwards."""
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        rows = layers.rows if downwards else layers.rows[::-1]
        near = layers.above if downwards else layers.below
        place: dict[Hashable, float] = {}
        for row in rows:
            own = {box: k / max(1, len(row)) for k, box in enumerate(row)}
            wanted = {
                box: _mean([place[b] for b in near.get(box, ()) if b in place], own[box])
                for box in row
            }
            row.sort(key=wanted.__getitem__)
            place.update({box: k / max(1, len(row)) for k, box in enumerate(row)})


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _across(layers: _Layers, gap: float) -> dict[Hashable, float]:
    """Return the middles: close to their neighbours' mean, in row order, with minimum gaps."""
    xs: dict[Hashable, float] = {}
    for row in layers.rows:
        xs.update(_spread(layers, row, [0.0] * len(row), gap))
    for sweep in range(2 * SWEEPS):
        downwards = sweep % 2 == 0
        for row in layers.rows if downwards else layers.rows[::-1]:
            near = layers.above if downwards else layers.below
            other = layers.below if downwards else layers.above
            wanted = [
                _mean([xs[b] for b in near.get(box) or other.get(box) or ()], xs[box])
                for box in row
            ]
            xs.update(_spread(layers, row, wanted, gap))
    return xs


def _spread(
    layers: _Layers, row: Sequence[Hashable], wanted: Sequence[float], gap: float
) -> dict[Hashable, float]:
    """Return the positions closest to the wanted ones, in least squares, with minimum gaps."""
    offsets, reach = list[float](), 0.0
    for number, box in enumerate(row):
        half = layers.sizes[box][0] / 2
        reach += half + (gap if number else 0.0)
        offsets.append(reach)
        reach += half
    # Boxes that touch each other move as one: their sum and number.
    blocks: list[list[float]] = []
    for target, offset in zip(wanted, offsets, strict=True):
        blocks.append([target - offset, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, number = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += number
    starts = [total / number for total, number in blocks for _ in range(int(number))]
    return {b: s + o for b, s, o in zip(row, starts, offsets, strict=True)}


def _down(
    layers: _Layers, gap: float
) -> tuple[dict[Hashable, float], dict[Hashable, float], float]:
    """Return the middle of each box, the height of its row, and that of all rows."""
    ys, talls, top = dict[Hashable, float](), dict[Hashable, float](), 0.0
    for row in layers.rows:
        tall = max((layers.sizes[box][1] for box in row), default=0.0)
        ys.update(dict.fromkeys(row, top + tall / 2))
        talls.update(dict.fromkeys(row, tall))
        top += tall + gap
    return ys, talls, max(0.0, top - gap)
