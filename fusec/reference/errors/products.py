"""Expected errors of products of all elements: relative variances add.

Partial products may leave the range of the accumulator in some order (by thread, by vector lane, by
block) even if the result does not: at worst all factors above 1 come first, or all below.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log, prod

from fusec.ir.arrays import np, running_extremum
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, storage
from fusec.reference.errors.estimate import (
    LARGEST,
    LIMIT,
    SMALLEST,
    SPREAD,
    Estimate,
    squared,
    unit,
)
from fusec.reference.errors.repeats import LOOKED_AT, alike
from fusec.reference.errors.sums import Rules, State, passed

NORMAL = {"f32": 2.0**-126, "f64": 2.0**-1022}
LOGARITHMS = 1e-12
"""Largest relative rounding error of a sum of logarithms itself."""
INFINITE, UNDEFINED, ZERO = "infinite", "undefined", "zero"
"""Names of whether some factor is certainly infinite, NaN or 0."""
SEEN = 32
"""Minimum number of sampled factors for an estimate of how many are equal."""


def start_product(operand: Estimate, axes: tuple[int, ...], dtype: DType, rules: Rules) -> State:
    x = operand.value.astype(storage(dtype), copy=False)
    state: State = {"out": np.prod(x, axis=axes)}
    if not rules.errors or not dtype.is_rounded:
        return state
    if dtype.is_float:
        # Infinities and NaN have no logarithm, and a zero makes no product larger or smaller.
        logs = np.log(np.where((x == 0) | ~np.isfinite(x), 1.0, np.abs(x)))
        state |= _not_finite(operand, x, axes)
        state["growing"] = np.sum(np.maximum(logs, 0.0), axis=axes)
        state["shrinking"] = np.sum(np.maximum(-logs, 0.0), axis=axes)
    terms = x.astype(dtype.compute.numpy)
    state["performed"] = np.multiply.reduce(terms, axis=axes)
    rounds = rounding_factors(x)
    count = np.sum(rounds, axis=axes)
    state["roundings"] = count * np.minimum(alike_factors(x, axes, rounds), count)
    return state | passed(operand, axes, 1 / x)


def _not_finite(operand: Estimate, x: Array, axes: tuple[int, ...]) -> State:
    """Return which products have a factor that is certainly infinite, NaN or 0."""
    variance = np.zeros(()) if operand.variance is None else operand.variance
    found = np.isinf(x), np.isnan(x), (x == 0) & (variance == 0)
    certain = np.isfinite(variance)
    names = (INFINITE, UNDEFINED, ZERO)
    return {n: np.any(f & certain, axis=axes) for n, f in zip(names, found, strict=True)}


def finish_product(state: State, dtype: DType, rules: Rules) -> Estimate:
    out, count = state["out"], int(state["count"])
    if "performed" not in state:
        return Estimate(out)
    off = np.square(np.abs(state["performed"] - out))
    steps = np.maximum(state["roundings"] - 1, 0.0) * np.square(unit(dtype) / 2) * SPREAD
    own = state.get("independent", np.zeros(()))
    relative = steps + own
    independent = squared(out) * relative + np.where(np.isfinite(off), off, 0.0)
    common = squared(out) * np.square(state["common"]) if "common" in state else None
    if not dtype.is_float:
        return Estimate(out, independent, common)
    factors = own + np.square(state.get("common", np.zeros(())))
    slack = LIMIT * np.sqrt(steps + factors)
    slack = slack + LOGARITHMS * (state["growing"] + state["shrinking"])
    reach = np.where(state[INFINITE], inf, state["growing"] + slack), state["shrinking"] + slack
    independent = np.where(np.isnan(independent), inf, independent)
    independent = independent + np.square(product_range(*reach, count, dtype) / LIMIT)
    # A product that is infinite in any order, and meets no 0, is certain; so is NaN in any order.
    infinite = state["growing"] - state["shrinking"] - slack > log(LARGEST[dtype.compute.name])
    infinite = (infinite | state[INFINITE]) & (LIMIT * np.sqrt(factors) < 1)
    sure = infinite & (out != 0) & ~np.isnan(out) & ~meets_no_number(*reach, dtype)
    sure = sure | state[UNDEFINED] | (state[INFINITE] & state[ZERO])
    common = None if common is None else np.where(sure, 0.0, common)
    return Estimate(out, np.where(sure, 0.0, independent), common)


def rounding_factors(x: Array) -> Array:
    """Return which factors cause a rounding: real powers of two are multiplied exactly."""
    if x.dtype.kind == "c":
        return np.ones(x.shape, np.bool_)
    mantissa, _ = np.frexp(np.abs(x))
    return (mantissa != 0.5) & (x != 0)


def alike_factors(x: Array, axes: tuple[int, ...], rounds: Array) -> float:
    """Return how many of the factors that round are equal on average: these are rounded alike.

    rounds: `rounding_factors(x)`. If a sample has too few such factors, all may be equal.
    """
    sampled = prod(x.shape[a] for a in axes) > LOOKED_AT
    if sampled and x.size and float(np.mean(rounds)) * LOOKED_AT < SEEN:
        return inf
    return alike(x, axes, rounds.astype(np.float64))


def of_neighbours(x: Array, axis: int, initial: Sequence[Array]) -> tuple[Array, Array]:
    """Return the same for products of consecutive factors up to each: a scan forms no others."""
    one = np.ones_like(x.take([0], axis)) if x.shape[axis] else x
    factors = np.concatenate([one, *(one * value for value in initial), x], axis)
    sums = np.cumsum(np.log(np.where(factors == 0, 1.0, np.abs(factors))), axis)
    rise = running_extremum(np.maximum, sums - running_extremum(np.minimum, sums, axis), axis)
    fall = running_extremum(np.maximum, running_extremum(np.maximum, sums, axis) - sums, axis)
    own = range(1 + len(initial), factors.shape[axis])
    return rise.take(own, axis), fall.take(own, axis)


def product_range(largest: Array, smallest: Array, count: Array | int, dtype: DType) -> Array:
    """Return the error from partial products that overflow or become denormal."""
    name = dtype.compute.name
    lost = np.maximum(count, 1) * SMALLEST[name] * np.exp(largest)
    error = np.where(smallest > -log(NORMAL[name]), lost, 0.0)
    return np.where(largest > log(LARGEST[name]), inf, error)


def meets_no_number(largest: Array, smallest: Array, dtype: DType) -> Array:
    """Return where one partial product may be infinite and another 0: their product is NaN."""
    name = dtype.compute.name
    return (largest > log(LARGEST[name])) & (smallest > -log(NORMAL[name]))
