"""Sums with small rounding errors even for equal terms: blocked summation of few terms at a time.

In sequential summation, equal terms (an expanded dim) are rounded the same way each time: n doubles
may be off by n / 4 units in the last place, more than a kernel that adds them in parallel. Sums of
eight, and of eight of those again, are off by 2 units per level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

GROUP = 8


def total(array: Any, axes: Sequence[int] | None, *, keepdims: bool = False) -> Any:
    """Return the sum of an array over `axes` (all for None)."""
    given = tuple(range(array.ndim) if axes is None else axes)
    if array.dtype.kind in "fc":
        for axis in given:
            array = _folded(array.swapaxes(axis, 0)).swapaxes(axis, 0)
    return array.sum(axis=given, keepdims=keepdims)


def _folded(array: Any) -> Any:
    """Return an array with one sum along the first axis."""
    while array.shape[0] > 1:
        rows = max(array.shape[0] // GROUP, 1)
        folded = array[:rows] + array[rows : 2 * rows]
        for first in range(2 * rows, array.shape[0], rows):
            part = array[first : first + rows]
            folded[: part.shape[0]] += part
        array = folded
    return array


def running(array: Any, axis: int) -> Any:
    """Return the running sums along an axis."""
    if array.dtype.kind not in "fc":
        return array.cumsum(axis=axis)
    return _running(array.swapaxes(axis, 0)).swapaxes(axis, 0)


def _running(array: Any) -> Any:
    """Return the running sums along the first axis, computed from those of pairs."""
    result = array.copy()
    if array.shape[0] > 1:
        result[1::2] = _running(array[:-1:2] + array[1::2])
        result[2::2] += result[1:-1:2]
    return result
