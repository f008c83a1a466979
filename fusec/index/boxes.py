"""Boxes of elements: unions, intersections and differences, as numbers of elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import gcd, lcm

Range = tuple[int, int, int]
"""start, end, step: as in Python's range."""

Box = tuple[Range, ...]

MOST_CLASSES = 256
"""Maximum number of residue classes that ranges along one axis are divided into."""
MOST_PARTS = 20_000
"""Maximum number of distinct sets of boxes that cells of a union may be in."""


def extent(where: Range) -> int:
    """Return the number of elements of a range."""
    start, end, step = where
    return max(0, -(-(end - start) // step))


def volume(box: Box) -> int:
    """Return the number of elements of a box."""
    count = 1
    for start, end, step in box:
        count *= max(0, -(-(end - start) // step))
    return count


def whole(shape: Iterable[int]) -> Box:
    """Return the box of all elements of a tensor."""
    return tuple((0, e, 1) for e in shape)


def clipped(where: Range, low: int, end: int) -> Range:
    """Return the part of a range between two bounds."""
    start, stop, step = where
    if start < low:
        start += -(-(low - start) // step) * step
    return (start, max(start, min(stop, end)), step)


def scaled(where: Range, by: int, offset: int) -> Range:
    """Return the range of by * i + offset, for the elements i of a non-empty range."""
    start, _, step = where
    last = start + (extent(where) - 1) * step
    if by == 0:
        return (offset, offset + 1, 1)
    first, last = sorted((start * by + offset, last * by + offset))
    return (first, last + 1, abs(step * by) if last > first else 1)


def without(box: Box, hole: Box) -> list[Box]:
    """Return disjoint boxes of the elements of a box outside of a dense one."""
    found: list[Box] = []
    rest = box
    for axis, (low, end, _) in enumerate(hole):
        for part in (clipped(rest[axis], -(1 << 62), low), clipped(rest[axis], end, 1 << 62)):
            if extent(part):
                found.append((*rest[:axis], part, *rest[axis + 1 :]))
        rest = (*rest[:axis], clipped(rest[axis], low, end), *rest[axis + 1 :])
        if not extent(rest[axis]):
            return [box]
    return found


def union(boxes: Iterable[Box]) -> tuple[int, int]:
    """Return lower and upper bounds on the number of elements in a union of boxes.

    The two are equal unless there are too many boxes, or steps, to count.
    """
    sizes = {b: volume(b) for b in boxes}
    given = sorted(b for b, size in sizes.items() if size)
    if not given:
        return 0, 0
    volumes = [sizes[b] for b in given]
    if len(given) == 1:
        return volumes[0], volumes[0]
    unknown = max(volumes), sum(volumes)
    # The number of cells in the same boxes along the axes so far; bit k represents box k.
    parts = {(1 << len(given)) - 1: 1}
    for axis in range(len(given[0])):
        along = _parts([b[axis] for b in given])
        if along is None or len(parts) * len(along) > MOST_PARTS:
            return unknown
        both = dict[int, int]()
        for mask, count in parts.items():
            for other, times in along.items():
                if mask & other:
                    both[mask & other] = both.get(mask & other, 0) + count * times
        parts = both
    total = sum(parts.values())
    return total, total


def _parts(ranges: Sequence[Range]) -> dict[int, int] | None:
    """Return how many positions along an axis are in the same ranges; None if steps are many."""
    period = lcm(*(step for _, _, step in ranges))
    if period > MOST_CLASSES:
        return None
    found = dict[int, int]()
    for residue in range(period):
        dense = [_in_class(r, residue, period) for r in ranges]
        cuts = sorted({x for r in dense if r is not None for x in r})
        for low, high in pairwise(cuts):
            mask = sum(1 << k for k, r in enumerate(dense) if r and r[0] <= low and high <= r[1])
            if mask:
                found[mask] = found.get(mask, 0) + high - low
    return found


def _in_class(where: Range, residue: int, period: int) -> tuple[int, int] | None:
    """Return the k for which period * k + residue is in a range, as a dense range, or None."""
    start, end, step = where
    if (residue - start) % gcd(step, period):
        return None
    low, high = -((residue - start) // period), -((residue - end) // period)
    return (low, high) if low < high else None
