"""Positions of elements that are within their errors of each other: which may be selected.

A kernel may select another position than the reference where errors decide (argmax, argsort,
top-k). It is correct if its element may have the value there: the intervals of both overlap. So a
tie of a few elements is verified like any other result, and a position of another element differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusec.dataclasses import dataclass
from fusec.ir.arrays import host, np
from fusec.ir.evaluate import Array
from fusec.reference.errors.order import as_terms

OPEN_RIVALS = 0.5
"""Fraction of a row that may be selected above which a position is considered unknown."""
FEW = 32
"""Positions in a row up to which its elements are counted separately for each."""


@dataclass(frozen=True)
class Rivals:
    """Rows of elements as intervals [low, high], and [least, most] of the value at each position.

    low, high: [rows, elements]; least, most: [rows, positions]. axis: of the positions, if a row
    has several along it; None if each row has one.
    """

    low: Array
    high: Array
    least: Array
    most: Array
    axis: int | None = None

    def judged(self, found: Array) -> tuple[Array, Array]:
        """Return (which positions may be selected, which are unknown: most elements qualify)."""
        rows = self._rows(found)
        inside = (rows >= 0) & (rows < self.low.shape[1])
        at = np.where(inside, rows, 0).astype(np.int64)
        low, high = (np.take_along_axis(a, at, 1) for a in (self.low, self.high))
        # NaN is in no interval: it may be selected.
        right = inside & ~((high < self.least) | (low > self.most))
        return self._restored(right, found), self._restored(self._open(), found)

    def _open(self) -> Array:
        """Return at which positions most elements of the row may be selected."""
        rows, positions = self.least.shape
        counts = np.empty((rows, positions), np.int64)
        if positions <= FEW:
            for k in range(positions):
                least, most = self.least[:, k : k + 1], self.most[:, k : k + 1]
                counts[:, k] = np.sum((self.high >= least) & (self.low <= most), axis=1)
        else:
            low, high = np.sort(self.low, axis=1), np.sort(self.high, axis=1)
            for row in range(rows):
                counts[row] = np.searchsorted(low[row], self.most[row], side="right")
                counts[row] -= np.searchsorted(high[row], self.least[row])
        return counts > OPEN_RIVALS * self.low.shape[1]

    def _rows(self, found: Array) -> Array:
        if self.axis is None:
            return found.reshape(-1, 1)
        return np.moveaxis(found, self.axis, -1).reshape(len(self.low), -1)

    def _restored(self, rows: Array, found: Array) -> Array:
        if self.axis is None:
            return rows.reshape(found.shape)
        moved = np.moveaxis(found, self.axis, -1).shape
        return np.moveaxis(rows.reshape(moved), -1, self.axis)

    def on_the_host(self) -> Rivals:
        """Return the same with arrays on the host."""
        low, high, least, most = map(host, (self.low, self.high, self.least, self.most))
        return Rivals(low, high, least, most, self.axis)


def rivals_of_extremum(x: Array, reach: Array, dims: Sequence[int], sign: float) -> Rivals:
    """Return the rivals of the position of the largest element (sign 1) or the smallest (-1)."""
    rows, reaches = in_rows(x, dims) * sign, in_rows(reach, dims)
    low, high = rows - reaches, rows + reaches
    least = np.max(np.where(np.isnan(low), -np.inf, low), axis=1, keepdims=True)
    return Rivals(low, high, least, np.full_like(least, np.inf))


def rivals_in_order(x: Array, reach: Array, axis: int, ends: tuple[Array, Array]) -> Rivals:
    """Return the rivals of positions in an order along an axis.

    ends: the lower ends of all intervals in that order, and the upper ends.
    """

    def rows(array: Array) -> Array:
        moved = np.moveaxis(array, axis, -1)
        return moved.reshape(-1, moved.shape[-1])

    return Rivals(rows(x - reach), rows(x + reach), rows(ends[0]), rows(ends[1]), axis)


def in_rows(x: Array, dims: Sequence[int]) -> Array:
    """Return the reduced elements as rows."""
    terms: Any = as_terms(x, dims)
    return np.moveaxis(terms, 1, 2).reshape(-1, terms.shape[1])
