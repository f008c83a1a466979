"""Expected errors of sums: of their terms, and of their own roundings.

With independent variances s and common ones l of the terms, a sum has sum(s) and sum(sqrt(l))**2,
what the roundings of its order add up to (`order.roundings`), and the square of the error of the
same sum really taken in that order: roundings of terms that repeat are not independent. Sums of
whole numbers below 2**24 are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, storage
from fusec.ir.totals import total
from fusec.reference.estimate import Estimate, add, overflowing, squared, unit
from fusec.reference.order import Order, as_terms, performed, roundings

State = dict[str, Array]

WHOLE = {"f32": 2.0**24, "f64": 2.0**53}
"""Up to which all whole numbers are floats."""
TAKEN = "taken"
PARTS = 64
"""Equal parts of a reduction of which one may be lost: see `Estimate.part`."""


@dataclass(frozen=True)
class Rules:
    """How the sums of a node are taken, and whether errors are wanted at all.

    orders: that of the node's sums, or those that it may be; count: how many terms it has in all.
    """

    orders: tuple[Order, ...]
    count: int
    errors: bool = True


def addition(dtype: DType) -> Callable[..., Array]:
    """Return the sum to take: doubles are enough for f32 in any order."""
    return total if dtype.part.name == "f64" else np.sum


def moments(x: Array, axes: tuple[int, ...]) -> Array:
    """Return sum(|x|**2)."""
    if x.dtype.kind == "c":
        return np.sum(squared(x), axis=axes)
    terms = as_terms(x, axes)
    before, count, after = terms.shape
    if before == after == 1:
        squares = np.dot(terms.reshape(count), terms.reshape(count))
    elif after == 1:
        squares = np.einsum("bn,bn->b", terms[..., 0], terms[..., 0])
    else:
        squares = np.einsum("bna,bna->ba", terms, terms)
    return np.asarray(squares).reshape([e for a, e in enumerate(x.shape) if a not in axes])


def passed(operand: Estimate, axes: tuple[int, ...], weight: Array | None = None) -> State:
    """Return the sums of the terms' errors, weighed."""
    state: State = {}
    shape = operand.value.shape
    if operand.independent is not None:
        variance = np.broadcast_to(operand.independent, shape)
        terms = variance if weight is None else variance * squared(weight)
        state["independent"] = np.sum(terms, axis=axes)
    if operand.common is not None:
        sigma = np.broadcast_to(np.sqrt(operand.common), shape)
        state["common"] = np.sum(sigma if weight is None else sigma * np.abs(weight), axis=axes)
    return state


def taken(x: Array, axes: tuple[int, ...], dtype: DType, rules: Rules, name: str = TAKEN) -> State:
    """Return the sum in the type that a kernel takes it in, and in the orders that it may have."""
    compute = dtype.compute
    kind = compute.numpy if x.dtype.kind == "c" else compute.part.numpy
    terms = as_terms(x.astype(kind, copy=False), axes)
    kept = [e for a, e in enumerate(x.shape) if a not in axes]
    return {
        f"{name} {number}": performed(terms, order).reshape(kept)
        for number, order in enumerate(rules.orders)
    }


def whole_magnitude(x: Array, axes: tuple[int, ...]) -> Array:
    """Return sum(|x|) of whole numbers, infinity of others: a look at a few tells most."""
    few = x.reshape(-1)[:256] if x.flags.c_contiguous else x[tuple(slice(0, 4) for _ in x.shape)]
    if x.dtype.kind == "c" or not (few == np.rint(few)).all() or not (x == np.rint(x)).all():
        return np.asarray(inf)
    return np.sum(np.abs(x), axis=axes)


def start_sum(operand: Estimate, axes: tuple[int, ...], dtype: DType, rules: Rules) -> State:
    x = operand.value.astype(storage(dtype), copy=False)
    state: State = {"out": addition(dtype)(x, axes)}
    if not rules.errors or not dtype.is_rounded:
        return state | (passed(operand, axes) if rules.errors else {})
    state["whole"] = whole_magnitude(x, axes)
    state["squares"] = moments(x, axes)
    return state | taken(x, axes, dtype, rules) | passed(operand, axes)


def finish_sum(state: State, dtype: DType, rules: Rules) -> Estimate:
    out = state["out"]
    independent, common = state.get("independent"), state.get("common")
    common = None if common is None else np.square(common)
    if "squares" not in state:
        return Estimate(out, independent, common)
    count, squares = int(state["count"]), state["squares"]
    exact = state["whole"] <= WHOLE[dtype.compute.part.name]
    own = sum_error(out, squares, sums_of(state), count, dtype, rules.orders)
    own = np.where(exact, 0.0, own)
    part = part_of(out, squares)
    inexact = independent is not None or bool(own.any())
    return Estimate(out, add(independent, own) if inexact else None, common, part=part)


def part_of(out: Array, squares: Array) -> Array:
    """Return what one of the equal parts of a sum is expected to be, given sum(x) and sum(x**2)."""
    return np.sqrt(squares / PARTS + np.square(np.abs(out) / PARTS))


def sums_of(state: State, name: str = TAKEN) -> list[Array]:
    """Return the sums really taken, in every order."""
    return [array for key, array in state.items() if key.startswith(name)]


def sum_error(
    out: Array, squares: Array, found: Sequence[Array], count: Array | int, dtype: DType,
    orders: Sequence[Order], *, whole: bool = True,
) -> Array:  # fmt: skip
    """Return the variance of a sum's own roundings; `found` are the sums really taken in `orders`.

    Infinite where sums of some order overflow; `whole`: the sum itself is the result.
    """
    own = np.zeros(np.shape(out))
    for order, sums in zip(orders, found, strict=True):
        closed = roundings(out, squares, count, order, unit(dtype) / 2)
        off = squared(sums - out)
        own = np.maximum(own, closed + np.where(np.isfinite(off), off, 0.0))
    own = np.where(np.isfinite(out), own, 0.0)
    lost = overflowing(out, np.sqrt(count * squares), dtype, whole=whole)
    return np.where(lost, inf, own) if lost.any() else own
