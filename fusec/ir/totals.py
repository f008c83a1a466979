"""Sums whose rounding stays small however alike the terms are: few are added one after the other.

In a row, equal terms (an expanded dim) are rounded the same way each time: n doubles may be off by
n / 4 units in the last place, more than a kernel that adds them in parallel. Sums of eight, and of
those again, are off by 2 units for each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

GROUP = 8
ROWS = 16
"""Sums of which the terms are looked at to tell how many differ."""
TERMS = 1 << 14
"""Terms of each of them that are looked at."""
FEW = 4
"""Times that a value occurs on average from which on terms count as repeated, not met by chance."""


def total(array: Any, axes: Sequence[int] | None, *, keepdims: bool = False) -> Any:
    """Return the sum of an array over `axes` (all for None)."""
    given = tuple(range(array.ndim) if axes is None else axes)
    if array.dtype.kind in "fc":
        for axis in given:
            array = _folded(array.swapaxes(axis, 0)).swapaxes(axis, 0)
    return array.sum(axis=given, keepdims=keepdims)


def is_constant(array: Any, axis: int) -> bool:
    """Return whether an array is the same all along an axis, to judge by three places."""
    extent = array.shape[axis]
    ends = (array.take(k, axis) for k in (extent // 2, extent - 1))
    return extent > 0 and all(bool((array.take(0, axis) == end).all()) for end in ends)


def distinct_terms(array: Any, axes: Sequence[int]) -> int:
    """Return how many terms of each sum differ, of some sums the fewest, to judge by some terms.

    Those of an expanded dim do not, and of a mask there are two.
    """
    import numpy as np

    summed = [axis % array.ndim for axis in axes]
    kept = [axis for axis in range(array.ndim) if axis not in summed]
    rows = array.transpose(kept + summed)
    count = prod(array.shape[axis] for axis in summed)
    fewest = prod(1 if is_constant(array, axis) else array.shape[axis] for axis in summed)
    sums = rows.shape[: len(kept)]
    for number in range(0, prod(sums), -(-prod(sums) // ROWS) or 1):
        row = rows[(*np.unravel_index(number, sums), ...)]
        terms = row.flat[:: -(-count // TERMS) or 1]
        terms.sort()
        found = int((terms[1:] != terms[:-1]).sum()) + min(terms.size, 1)
        fewest = min(fewest, found if found * FEW <= terms.size else count)
    return fewest


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
    """Return the running sums along the first axis: those of pairs, and between them one more."""
    result = array.copy()
    if array.shape[0] > 1:
        result[1::2] = _running(array[:-1:2] + array[1::2])
        result[2::2] += result[1:-1:2]
    return result
