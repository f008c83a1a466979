"""Copies between layouts, as rows of bytes that lie evenly apart, as the driver takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from fusec.hostir.program import Buffer
from fusec.ir.evaluate import Sizes
from fusec.run.arrays import layout_of


@dataclass(frozen=True)
class Rows:
    """Rows to copy: where the first ones begin, their width, number and distances, in bytes."""

    target: int
    source: int
    width: int
    height: int = 1
    target_pitch: int = 0
    source_pitch: int = 0


def rows_of(target: Buffer, source: Buffer, sizes: Sizes) -> tuple[Rows, ...]:
    """Return what copies the elements of a tensor into one of the same shape."""
    shape, to = layout_of(target, sizes)
    _, origin = layout_of(source, sizes)
    if 0 in shape:
        return ()
    item = target.dtype.size
    dims = list(_merged(zip(shape, to, origin, strict=True)))
    width = item
    if dims and dims[-1][1:] == (1, 1):
        width *= dims.pop()[0]
    height, to_step, origin_step = dims[-1] if dims else (1, 0, 0)
    if min(to_step, origin_step) * item < width:
        height = 1  # rows lie on one another: one at a time
    else:
        dims.pop()
    found: list[Rows] = []
    for at in product(*(range(extent) for extent, _, _ in dims)):
        starts = [item * sum(i * d[k] for i, d in zip(at, dims, strict=True)) for k in (1, 2)]
        pitches = (item * to_step, item * origin_step) if height > 1 else (0, 0)
        found.append(Rows(starts[0], starts[1], width, height, *pitches))
    return tuple(found)


def _merged(dims: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield (extent, both strides) of dims, those as one that lie as one in both layouts."""
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
