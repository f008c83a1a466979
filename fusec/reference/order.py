"""In what order a sum is taken, what its roundings add up to, and the sum itself in that order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2, prod
from typing import Any

import numpy as np

from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array


@dataclass(frozen=True)
class Stage:
    """Terms added `chain` at a time one after the other, their results in a tree of `depth`."""

    chain: int
    depth: int = 0


@dataclass(frozen=True)
class Order:
    """The order of a sum: each stage adds what the one before it has left; a tree adds the rest.

    group: products that a matrix unit adds at once, cutting off what lies below the largest of
    them instead of rounding; 1 where every product is added by itself. Chains count groups.
    """

    stages: tuple[Stage, ...]
    group: int = 1

    def within(self, count: int) -> tuple[Stage, ...]:
        """Return the stages that `count` terms go through, the rest of the tree included."""
        left, found = ceil(count / self.group), list[Stage]()
        for stage in self.stages:
            if left <= 1:
                break
            chain = min(max(stage.chain, 1), left)
            left = ceil(left / chain)
            depth = min(stage.depth, ceil(log2(left))) if left > 1 else 0
            left = ceil(left / 2**depth)
            found.append(Stage(chain, depth))
        if left > 1:
            found.append(Stage(1, ceil(log2(left))))
        return tuple(found)

    def then(self, other: Order) -> Order:
        """Return the order of sums whose terms are sums in this order."""
        return Order((*self.stages, *other.stages), self.group)


UNKNOWN = (1024, 32, 1)
"""Lengths of the chains that are assumed where no plan says how a sum is taken."""
TILE = 16
"""Products along K that one instruction of a matrix unit adds (PTX wgmma of 16-bit types)."""


def unknown(count: int, factors: Sequence[DType] = ()) -> tuple[Order, ...]:
    """Return the orders assumed where no plan gives one; `factors`: types, of a contraction."""
    if not factors:
        return tuple(Order((Stage(chain),)) for chain in UNKNOWN)
    if all(d.is_half for d in factors):
        return (Order((Stage(max(ceil(count / TILE), 1)),), TILE),)
    return Order((Stage(max(count, 1)),)), Order(())


def roundings(total: Array, squares: Array, count: Array | int, order: Order, unit: float) -> Array:
    """Return the variance of the roundings of sums of `count` terms, one rounding within `unit`.

    Partial sums of k terms, of mean m and variance s, are k m and a walk of variance k s; each is
    rounded by unit**2 / 3 of its square. Chains of c sums of w terms add m**2 w c**2 / 3 + s c / 2
    for each term, trees of depth d 2 m**2 w (2**d - 1) + s d. What a matrix unit cuts off has one
    sign: it drifts. Of several counts the order is that of the largest.
    """
    stages = order.within(int(np.max(count, initial=0)))
    terms = np.maximum(count, 1)
    steady, walking, width = np.zeros(()), np.zeros(()), np.minimum(order.group, terms)
    for stage in stages:
        # A sum of fewer terms ends within a stage.
        chain = np.clip(terms / width, 1, stage.chain)
        steady = steady + width * np.square(chain) / 3 * (stage.chain > 1)
        walking = walking + chain / 2 * (stage.chain > 1)
        width = width * chain
        wide = np.minimum(width * 2.0**stage.depth, np.maximum(terms, width))
        steady = steady + 2 * (wide - width)
        walking = walking + np.log2(wide / width)
        width = wide
    square = np.square(np.abs(total))
    mean, spread = square / terms, np.maximum(squares - square / terms, 0)
    variance = (mean * steady + spread * walking) * (unit**2 / 3)
    if order.group > 1:
        steps = unit * stages[0].chain if stages else unit
        variance = variance + steps**2 * (square / 4 + spread / 3)
    return np.where(terms > 1, variance, 0.0)


def performed(terms: Array, order: Order) -> Array:
    """Return sums over axis 1 of terms [before, count, after], in the terms' own precision.

    The terms that meet in a chain lie apart, as those of a thread do.
    """
    # NumPy adds along an axis in a row unless it is the one that lies along memory.
    terms = np.ascontiguousarray(terms)
    for stage in order.within(terms.shape[1]):
        terms = _chained(terms, stage.chain)
        for _ in range(stage.depth):
            terms = _halved(terms)
    while terms.shape[1] > 1:
        terms = _halved(terms)
    return (
        terms[:, 0] if terms.shape[1] else np.zeros((terms.shape[0], terms.shape[2]), terms.dtype)
    )


def _chained(terms: Array, chain: int) -> Array:
    chain = min(chain, terms.shape[1])
    if chain <= 1 or not terms.size:
        return terms[:, :1] if not terms.size else terms
    before, count, after = terms.shape
    chains = ceil(count / chain)
    whole = count // chains * chains
    parts = terms[:, :whole].reshape(before, whole // chains, chains, after)
    if chains * after > 1:
        result = np.add.reduce(parts, axis=1)
    else:
        result = np.add.accumulate(parts.reshape(before, whole), axis=1)[:, -1:, None]
    if whole < count:
        result[:, : count - whole] += terms[:, whole:]
    return result


def _halved(terms: Array) -> Array:
    count = terms.shape[1]
    if count < 2:
        return terms
    half = ceil(count / 2)
    result = terms[:, :half].copy()
    result[:, : count - half] += terms[:, half:]
    return result


def as_terms(array: Array, axes: Sequence[int]) -> Array:
    """Return an array as [before, count, after] with the axes summed over in the middle."""
    axes = tuple(axes)
    if not axes:
        return array.reshape(-1, 1, 1)
    first, last = min(axes), max(axes)
    kept = [a for a in range(array.ndim) if a not in axes]
    if len(axes) < last - first + 1:
        array = np.transpose(array, (*kept, *axes))
        first, last = len(kept), array.ndim - 1
    shape: Any = array.shape
    return array.reshape(
        prod(shape[:first]), prod(shape[first : last + 1]), prod(shape[last + 1 :])
    )
