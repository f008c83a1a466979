"""Slopes of simple functions by an operand, while the others are off by a reach.

Each takes the index of the operand, and the values and reaches of all, and returns the slope at the
far end of the others' reach, where it is largest; None means 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fusec.ops.lazy import np

Arrays = Sequence[Any]
Reach = Callable[[int], Any]


def sums(place: int, values: Arrays, reach: Reach) -> Any:
    """Of sums and differences."""
    return None


def product(place: int, values: Arrays, reach: Reach) -> Any:
    """Of a * b: the slope by a includes their common change."""
    return np.abs(values[1]) + reach(1) if place == 0 else np.abs(values[0])


def quotient(place: int, values: Arrays, reach: Reach) -> Any:
    """Of a / b: infinite where b may be 0."""
    a, b = values
    size = np.abs(b)
    least = np.maximum(size - reach(1), 0.0)
    return 1 / least if place == 0 else np.abs(a) / size / least


def choice(place: int, values: Arrays, reach: Reach) -> Any:
    """Of `where`: the height at which the condition flips, else whether an operand is taken."""
    condition, x, y = values
    if place == 0:
        return np.abs(np.subtract(x, y, dtype=np.result_type(x, y, np.float64)))
    return condition if place == 1 else ~condition
