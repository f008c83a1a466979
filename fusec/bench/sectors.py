"""Memory moves in sectors of 32 bytes: how many distinct ones a tensor lies in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from fusec.ir.evaluate import Array

SECTOR = 32
MOST_RUNS = 1 << 22
"""Runs of memory that are looked at one by one, at a time."""

Axes = list[tuple[int, int]]
"""(extent, stride in bytes), the smallest stride first."""


def sectors(shape: Sequence[int], strides: Sequence[int], size: int, offset: int = 0) -> int:
    """Return the distinct sectors of a tensor's elements.

    strides in elements of `size` bytes, never negative; offset: of the first element from the
    beginning of a sector, in bytes. A dim of stride 0 is one element that is read again.
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
    """Return the sectors of runs of bytes that begin along some axes."""
    if axes:
        extent, stride = axes[-1]
        reach = run + sum((e - 1) * s for e, s in axes[:-1])
        if stride % SECTOR == 0 and offset % SECTOR + reach <= stride:
            return extent * _count(run, axes[:-1], offset)
    total, last = 0, -1
    for first, end in _runs(run, axes, offset):
        # In order of their beginnings: each counts from behind all sectors before it.
        known = np.maximum.accumulate(np.concatenate([[last], end]))
        total += int(np.maximum(0, end - np.maximum(first, known[:-1] + 1) + 1).sum())
        last = int(known[-1])
    return total


def _runs(run: int, axes: Axes, offset: int) -> Iterator[tuple[Array, Array]]:
    """Yield the first and the last sector of every run, in order and in pieces of bounded size.

    Only axes that leave no run of an outer step before one of an inner step are taken in pieces.
    """
    inner, outer = list(axes), Axes()
    while inner and prod(e for e, _ in inner) > MOST_RUNS:
        extent, stride = inner[-1]
        if run + sum((e - 1) * s for e, s in inner[:-1]) > stride:
            break
        outer.append((extent, stride))
        inner.pop()
    starts = np.zeros(1, np.int64)
    for extent, stride in inner:
        starts = (np.arange(extent, dtype=np.int64)[:, None] * stride + starts).reshape(-1)
    starts.sort()
    for base in _bases(outer):
        first = starts + (base + offset)
        yield first // SECTOR, (first + (run - 1)) // SECTOR


def _bases(outer: Axes) -> Iterator[int]:
    """Yield the beginnings along axes of which the first has the largest stride."""
    if not outer:
        yield 0
        return
    (extent, stride), *rest = outer
    for step in range(extent):
        for base in _bases(rest):
            yield step * stride + base
