"""Splitting a region that is too long for one kernel where the least traffic would cross."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.segment.groups import Groups
from fusec.segment.piece import Piece
from fusec.segment.segmented import tensor_bytes

LEAST_PART = 4
"""Each half has at least this fraction (1/4) of the pieces."""


def find_waist(groups: Groups, pieces: Sequence[Piece]) -> int:
    """Return how many pieces the first half has: the narrowest split point near the middle.

    pieces: in topological order. Values that others read, too, are written in any case.
    """
    fusion, final = groups.graph.fusion, groups.graph.final
    place = {piece: k for k, piece in enumerate(pieces)}
    change = [0] * (len(pieces) + 1)
    for k, piece in enumerate(pieces):
        for value in piece.made:
            readers = groups.readers.get(value, {})
            inside = [place[p] for p in readers if p in place]
            last = max(inside, default=k)
            if last > k:
                stored = value in final or len(inside) < len(readers)
                moved = (1 if stored else 2) * tensor_bytes(value, fusion.hints)
                change[k + 1] += moved
                change[last + 1] -= moved
    crossing = [0]
    for step in change[1:-1]:
        crossing.append(crossing[-1] + step)
    least = max(1, len(pieces) // LEAST_PART)
    places = range(least, len(pieces) - least + 1)
    middle = len(pieces) // 2
    return min(places, key=lambda k: (crossing[k], abs(k - middle)))
