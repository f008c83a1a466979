"""Expected errors of products of all elements: relative variances add.

Partial products of some order (by thread, by vector lane, by block) may leave the range of the
accumulator even where the result does not: at most all factors above 1 meet, or all below.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log, prod

from fusec.ir.arrays import np, running_extremum
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, storage
from fusec.reference.estimate import (
    LARGEST,
    LIMIT,
    SMALLEST,
    SPREAD,
    Estimate,
    squared,
    unit,
)
from fusec.reference.repeats import alike
from fusec.reference.sums import Rules, State, passed

NORMAL = {"f32": 2.0**-126, "f64": 2.0**-1022}


def start_product(operand: Estimate, axes: tuple[int, ...], dtype: DType, rules: Rules) -> State:
    x = operand.value.astype(storage(dtype), copy=False)
    state: State = {"out": np.prod(x, axis=axes)}
    if not rules.errors or not dtype.is_rounded:
        return state
    if dtype.is_float:
        logs = np.log(np.where(x == 0, 1.0, np.abs(x)))
        # A zero makes no product larger or smaller.
        state["growing"] = np.sum(np.maximum(logs, 0.0), axis=axes)
        state["shrinking"] = np.sum(np.maximum(-logs, 0.0), axis=axes)
    terms = x.astype(dtype.compute.numpy)
    state["performed"] = np.multiply.reduce(terms, axis=axes)
    # Products of equal factors are rounded alike.
    state["roundings"] = np.asarray(alike(x, axes) * prod(x.shape[a] for a in axes))
    return state | passed(operand, axes, 1 / x)


def finish_product(state: State, dtype: DType, rules: Rules) -> Estimate:
    out, count = state["out"], int(state["count"])
    if "performed" not in state:
        return Estimate(out)
    off = np.square(np.abs(state["performed"] - out))
    steps = max(float(state["roundings"]) - 1, 0.0) * np.square(unit(dtype) / 2) * SPREAD
    relative = steps + state.get("independent", np.zeros(()))
    independent = squared(out) * relative + np.where(np.isfinite(off), off, 0.0)
    common = squared(out) * np.square(state["common"]) if "common" in state else None
    if not dtype.is_float:
        return Estimate(out, independent, common)
    slack = LIMIT * np.sqrt(relative + np.square(state.get("common", np.zeros(()))))
    reach = state["growing"] + slack, state["shrinking"] + slack
    independent = np.where(np.isnan(independent), inf, independent)
    independent = independent + np.square(product_range(*reach, count, dtype) / LIMIT)
    # One that is infinite in any order, and meets no 0, is sure.
    infinite = state["growing"] - state["shrinking"] - slack > log(LARGEST[dtype.compute.name])
    sure = infinite & (out != 0) & ~meets_no_number(*reach, dtype)
    return Estimate(out, np.where(sure, 0.0, independent), common)


def of_neighbours(x: Array, axis: int, initial: Sequence[Array]) -> tuple[Array, Array]:
    """Return the same for products of neighbours up to each factor: a scan forms no others."""
    one = np.ones_like(x.take([0], axis)) if x.shape[axis] else x
    factors = np.concatenate([one, *(one * value for value in initial), x], axis)
    sums = np.cumsum(np.log(np.where(factors == 0, 1.0, np.abs(factors))), axis)
    rise = running_extremum(np.maximum, sums - running_extremum(np.minimum, sums, axis), axis)
    fall = running_extremum(np.maximum, running_extremum(np.maximum, sums, axis) - sums, axis)
    own = range(1 + len(initial), factors.shape[axis])
    return rise.take(own, axis), fall.take(own, axis)


def product_range(largest: Array, smallest: Array, count: Array | int, dtype: DType) -> Array:
    """Return what partial products add to the error when they overflow or become denormal."""
    name = dtype.compute.name
    lost = np.maximum(count, 1) * SMALLEST[name] * np.exp(largest)
    error = np.where(smallest > -log(NORMAL[name]), lost, 0.0)
    return np.where(largest > log(LARGEST[name]), inf, error)


def meets_no_number(largest: Array, smallest: Array, dtype: DType) -> Array:
    """Return where one partial product may be infinite and another 0: their product is NaN."""
    name = dtype.compute.name
    return (largest > log(LARGEST[name])) & (smallest > -log(NORMAL[name]))
