"""Counts the distinct 32-byte memory sectors of a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fusec.ir.evaluate import Array

SECTOR = 32
MOST_RUNS = 1 << 22
"""Runs of contiguous memory that are processed at a time."""

Axes = list[tuple[int, int]]
"""(extent, stride in bytes), the smallest stride first."""


def sectors(shape: Sequence[int], strides: Sequence[int], size: int, offset: int = 0) -> int:
    """Return the distinct sectors of a tensor's elements.

    strides in elements of `size` bytes, never negative; offset: of the first element from the start
    of a sector, in bytes. A dim of stride 0 reads the same element repeatedly.
    """
    if 0 in shape:
        return 0
    axes = [(e, s * size) for e, s in zip(shape, strides, strict=True) if e > 1 and s]
    axes.sort(key=lambda axis: (axis[1], axis[0]))
    run = size
    while axes and axes[0][1] <= run:
        extent, stride = axes.pop(0)
        run += (extent - 1) * stride
    return _count(run, axes, offset)


def _count(run: int, axes: Axes, offset: int) -> int:
    """Return the number of sectors of runs of bytes that start along some axes."""
    if axes:
        extent, stride = axes[-1]
        reach = run + sum((e - 1) * s for e, s in axes[:-1])
        if stride % SECTOR == 0 and offset % SECTOR + reach <= stride:
            return extent * _count(run, axes[:-1], offset)
    total, last = 0, -1
    for first, end in _runs(run, axes, offset):
        # Runs are sorted by start: each counts only sectors after all previous ones.
        known = np.maximum.accumulate(np.concatenate([[last], end]))
        total += int(np.maximum(0, end - np.maximum(first, known[:-1] + 1) + 1).sum())
        last = int(known[-1])
    return total


def _runs(run: int, axes: Axes, offset: int) -> Iterator[tuple[Array, Array]]:
    """Yield the first and the last sector of every run, in order, in chunks of bounded size.

    Axes whose steps interleave with the runs of another one stay in one chunk.
    """
    starts, reach = np.full(1, offset, np.int64), run
    rest = list(axes)
    while rest and (
        len(starts) * rest[0][0] <= MOST_RUNS or any(s < r for r, s in _reaches(reach, rest))
    ):
        extent, stride = rest.pop(0)
        starts = (np.arange(extent, dtype=np.int64)[:, None] * stride + starts).reshape(-1)
        reach += (extent - 1) * stride
    starts.sort()
    for piece in _pieces(starts, rest):
        yield piece // SECTOR, (piece + (run - 1)) // SECTOR


def _reaches(reach: int, axes: Axes) -> Iterator[tuple[int, int]]:
    """Yield for each axis the extent in bytes of one of its steps, and its stride."""
    for extent, stride in axes:
        yield reach, stride
        reach += (extent - 1) * stride


def _pieces(starts: Array, axes: Axes) -> Iterator[Array]:
    """Yield starts along further axes, with as many steps of the last one at a time as fit."""
    if not axes:
        yield starts
        return
    *inner, (extent, stride) = axes
    steps = 1 if inner else max(1, MOST_RUNS // len(starts))
    for begin in range(0, extent, steps):
        at = np.arange(begin, min(begin + steps, extent), dtype=np.int64)[:, None] * stride
        yield from _pieces((at + starts).reshape(-1), inner)
