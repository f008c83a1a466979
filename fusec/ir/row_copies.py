"""Copies between layouts, as evenly spaced rows of bytes, the form that the driver copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from fusec.dataclasses import dataclass


@dataclass(frozen=True)
class Rows:
    """Rows to copy: the start of the first ones, their width, number and pitches, in bytes."""

    target: int
    source: int
    width: int
    height: int = 1
    target_pitch: int = 0
    source_pitch: int = 0


_Dims = tuple[tuple[int, int, int], ...]
"""Extents, each with the strides of the target and of the source, in elements."""


@dataclass(frozen=True)
class RowCopies:
    """The copies between two layouts of a shape, one driver call each.

    width: bytes of a row. outer: the dims that the calls iterate over; last: the rows of one call.
    """

    item: int
    width: int
    outer: _Dims
    last: tuple[int, int, int]

    def __len__(self) -> int:
        return prod(extent for extent, _, _ in self.outer)

    def __iter__(self) -> Iterator[Rows]:
        height, to, origin = self.last
        pitches = (self.item * to, self.item * origin) if height > 1 else (0, 0)
        for at in product(*(range(extent) for extent, _, _ in self.outer)):
            begins = [
                self.item * sum(i * d[k] for i, d in zip(at, self.outer, strict=True))
                for k in (1, 2)
            ]
            yield Rows(begins[0], begins[1], self.width, height, *pitches)


def row_copies(
    shape: Sequence[int], target: Sequence[int], source: Sequence[int], item: int
) -> RowCopies:
    """Return the copies between two layouts, given by strides in elements of `item` bytes."""
    if 0 in shape:
        return RowCopies(item, 0, ((0, 0, 0),), (1, 0, 0))
    dims = list(_merged(zip(shape, target, source, strict=True)))
    width = item
    if dims and dims[-1][1:] == (1, 1):
        width *= dims.pop()[0]
    last = dims[-1] if dims else (1, 0, 0)
    if min(last[1:]) * item < width:
        last = (1, 0, 0)  # rows overlap: one call each
    else:
        dims.pop()
    return RowCopies(item, width, tuple(dims), last)


def _merged(dims: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield (extent, both strides) of dims, merging dims that are contiguous in both layouts."""
    last: tuple[int, int, int] | None = None
    for extent, to, origin in dims:
        if extent == 1:
            continue
        if last is not None and last[1:] == (extent * to, extent * origin):
            last = last[0] * extent, to, origin
            continue
        if last is not None:
            yield last
        last = extent, to, origin
    if last is not None:
        yield last
