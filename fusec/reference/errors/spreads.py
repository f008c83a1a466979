"""Expected errors of variances and means, computed together.

With independent variances s and common ones l of the terms, a sum of squared distances has sum(4 (x
- mean)**2 s) and sum(2 |x - mean| sqrt(l))**2; the effect of the mean's error is of second order. A
single pass (Welford) loses digits if the mean is large: each update is off by a rounding of the
mean times the distance from it, and so is each merge of a tree. If terms are equal, the distances
are between few merges, each of many terms, instead of all over the tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import inf, prod
from typing import Any

from fusec.ir.arrays import np
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array
from fusec.ir.graph import Node, Value
from fusec.ops.reduction.statistics import results_of
from fusec.reference.errors.estimate import (
    LARGEST,
    LIMIT,
    SPREAD,
    Estimate,
    result,
    squared,
    ulp,
    unit,
)
from fusec.reference.errors.order import Order, roundings
from fusec.reference.errors.repeats import alike
from fusec.reference.errors.sums import (
    OFF,
    Rules,
    State,
    addition,
    merged,
    moments,
    part_of,
    passed,
    sum_error,
    sums_of,
    taken,
    widened,
)

NEXT = 1 + 2.0**-20
"""Factor of a mean close to a power of two, which its errors may carry across."""


def start_spread(node: Node, operand: Estimate, axes: tuple[int, ...], rules: Rules) -> State:
    """Return the state of one block of the operand."""
    dtype, x = node.operands[0].type.dtype, operand.value
    count = max(prod(x.shape[a] for a in axes), 1)
    add_up = addition(dtype)
    mean = add_up(x, axes, keepdims=True) / count
    centred = x - mean
    state: State = {"mean": np.squeeze(mean, axis=axes), "m2": add_up(squared(centred), axes)}
    if not rules.errors:
        return state
    squares = squared(centred)
    state["fourth"] = moments(squares, axes)
    # Merged blocks repeat terms in proportion to their size.
    state["alike"] = np.asarray(alike(x, axes))
    state |= taken(x, axes, dtype, rules) | passed(operand, axes)
    for key, found in taken(squares, axes, dtype, rules, OFF).items():
        state[key] = found - state["m2"]
    weighed = passed(operand, axes, 2 * centred)
    return state | {f"cross {k}": v for k, v in weighed.items()}


def merge_spread(a: State, b: State) -> State:
    count = a["count"] + b["count"]
    delta = b["mean"] - a["mean"]
    share = b["count"] / np.maximum(count, 1)
    joined = merged({k: v for k, v in a.items() if k != "mean"}, b)
    joined["mean"] = a["mean"] + delta * share
    joined["m2"] = joined["m2"] + squared(delta) * (a["count"] * share)
    for part, other in ((a, 1 - share), (b, share)):
        # Relative to the mean of both, the terms of a part are further away by this.
        away = np.abs(delta) * other
        if "fourth" in a:
            moved = 6 * part["m2"] * np.square(away) + part["count"] * np.square(np.square(away))
            joined["fourth"] = joined["fourth"] + moved
        if "cross independent" in a:
            more = np.square(2 * away) * part["independent"]
            joined["cross independent"] = joined["cross independent"] + more
        if "cross common" in a:
            joined["cross common"] = joined["cross common"] + 2 * away * part["common"]
    return joined


def finish_spread(
    node: Node, state: State, attributes: Mapping[str, Any], ancestors: int, rules: Rules
) -> tuple[Estimate, ...]:
    dtype, count = node.outputs[0].dtype, int(state["count"])
    free = max(count - attributes.get("correction", 0), 0)
    mean, m2 = Estimate(state["mean"]), Estimate(state["m2"])
    if rules.errors:
        mean, m2 = _spread_errors(state, count, dtype, rules.orders)
    kinds = {
        "mean": mean,
        "m2": m2,
        "var": _over(m2, free),
    }  # fmt: skip
    found = list[Estimate]()
    for value, kind in zip(node.outputs, results_of(node), strict=True):
        if kind == "count":
            found.append(Estimate(_filled(value, state["mean"].shape, count)))
            continue
        each = kinds[kind]
        arrays = (each.value, value.dtype, each.independent, each.common, ancestors, each.part)
        found.append(result(*arrays))
    return tuple(found)


def _over(m2: Estimate, free: int) -> Estimate:
    """Return a variance: a sum of squares over the degrees of freedom."""
    with np.errstate(all="ignore"):
        value = m2.value / np.float64(free)
        over = 1 / free if free else 0.0
        independent, common = (
            None if v is None else v * over**2 for v in (m2.independent, m2.common)
        )
        part = None if m2.part is None else m2.part * over
    return Estimate(value, independent, common, part=part)


def _spread_errors(
    state: State, count: int, dtype: DType, orders: Sequence[Order]
) -> tuple[Estimate, Estimate]:
    """Return the mean and the sum of squared distances with their errors."""
    mean, m2, fourth = state["mean"], state["m2"], state["fourth"]
    size, n, u = np.abs(mean), max(count, 1), unit(dtype) / 2
    squares = m2 + n * np.square(size)
    of_sum = sum_error(mean * n, squares, sums_of(state), count, dtype, orders, whole=False)
    rounding = _of_mean(mean, n, dtype)
    independent = (of_sum + state.get("independent", 0.0)) / n**2 + rounding
    common = np.square(state["common"] / n) if "common" in state else None
    off = independent if common is None else independent + common
    # The roundings of the distances, of their squares and of the sum of these.
    of_squares = reduce(
        np.maximum,
        [
            widened(roundings(m2, fourth, count, order, u), np.square(off_by))
            for order, off_by in zip(orders, sums_of(state, OFF), strict=True)
        ],
    )
    own = np.square(2 * u) * SPREAD * fourth + of_squares
    levels = 1 + max(sum(1 + s.depth for s in order.within(count)) for order in orders)
    own = own + np.square(u) * levels * np.square(size) * m2 * state["alike"]
    own = own + np.square(LIMIT * n * off)
    spread = own + state.get("cross independent", 0.0)
    shared = np.square(state["cross common"]) if "cross common" in state else None
    # The sum of the squares may overflow even if the variance does not.
    wide = np.isfinite(m2) & (2 * m2 >= LARGEST[dtype.compute.part.name])
    spread = np.where(np.isinf(independent) | wide, inf, spread)
    # NaN in double precision comes from terms that are NaN or infinite.
    sure = ~np.isinf(state.get("independent", 0.0))
    independent, common = _certain(np.isnan(mean) & sure, independent, common)
    spread, shared = _certain(np.isnan(m2) & ~np.isfinite(mean) & sure, spread, shared)
    return (
        Estimate(mean, independent, common, part=part_of(mean * n, squares) / n),
        Estimate(m2, spread, shared, part=part_of(m2, fourth)),
    )


def _of_mean(mean: Array, count: int, dtype: DType) -> Array:
    """Return the variance of a mean's last rounding, and of that of 1 / count if it rounds."""
    part, size = dtype.compute.part, np.abs(mean)
    relative = size * unit(dtype) / 2
    # Means of many rows lie between the same powers of two: half a unit is less than `relative`.
    last = np.where(np.isfinite(size), ulp(size * NEXT, part) / 2, size)
    last = last if part.name == "f32" else relative
    inverse = 0.0 if count & (count - 1) == 0 else relative
    return (np.square(last) + np.square(inverse)) * SPREAD


def _certain(where: Array, independent: Array, common: Array | None) -> tuple[Array, Array | None]:
    """Return variances, set to zero where the result is certain."""
    if not np.any(where):
        return independent, common
    kept = None if common is None else np.where(where, 0.0, common)
    return np.where(where, 0.0, independent), kept


def _filled(value: Value, shape: tuple[int, ...], count: int) -> Array:
    kind: Any = value.dtype.numpy
    return np.full(shape if value.rank else (), count, dtype=kind)
