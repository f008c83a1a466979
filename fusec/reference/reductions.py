"""Error bounds of reductions, in parts that add up over blocks of the reduced axes.

A state is a dict of arrays; `start` makes it of a block, `merge` joins two, `finish` gives the
result. With u the unit in the last place of the accumulator and n the number of terms:

- sum, mean: sum of the bounds + u * growth(n) * sum|x|; see `overflowing`.
- max, min: the extremes of x + bound and of x - bound.
- prod: the terms' relative bounds and n roundings. Partial products of some order (by thread, by
  vector lane, by block) may leave the range of the accumulator even where the result does not: at
  most all factors above 1 meet, or all below 1. See `product_range`.
- any, all: the results with doubtful elements taken either way.
- var, welford: sum of 2 |x - mean| b + b**2, n * (bound of the mean)**2, and
  u * growth(n) * sqrt(m2 * (m2 + n mean**2)): a single pass loses digits when the mean is large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log, sqrt
from typing import Any

import numpy as np

from fusec.diagnostics import Unsupported
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, apply_reference, storage
from fusec.ir.graph import Node, Value
from fusec.ir.totals import distinct_terms, total
from fusec.reference.bounds import (
    LARGEST,
    SMALLEST,
    Bounded,
    add_bounds,
    convert_bounded,
    overflowing,
    rounding,
    settle_bounded,
    unit,
)
from fusec.reference.complex_bounds import squared

State = dict[str, Array]

SUMS = frozenset({"sum", "mean"})
SPREADS = frozenset({"var", "var_mean", "welford"})
NORMAL = {"f32": 2.0**-126, "f64": 2.0**-1022}
MERGEABLE = SUMS | SPREADS | {"max", "min", "prod", "any", "all"}


def growth(count: int, distinct: int | None = None) -> float:
    """Return the error of a sum of `count` terms in ulps of sum|x|, whatever the order.

    At most half an ulp for each addition; the roundings of a long serial sum walk at random, which
    stays below sqrt(count) / 2 ulps with more than four standard deviations to spare. Terms that
    repeat are rounded the same way each time, so that only `distinct` of them walk; at most all are
    off by half an ulp of a sum half as large on average.
    """
    walk = sqrt(count)
    if distinct is not None and 0 < distinct < count:
        walk = max(walk, min(count / sqrt(distinct), count / 2))
    return min(max(count - 1, 0), 4 + walk) / 2


_COUNTS = frozenset({"count", "distinct"})


def start(node: Node, operand: Bounded, axes: tuple[int, ...]) -> State:
    """Return the state of one block of the operand."""
    x, name = operand.value, node.op.name
    state: State = {
        "count": np.asarray(_count(x.shape, axes)),
        "distinct": np.asarray(distinct_terms(x, axes)),
    }
    bound = None if operand.bound is None else np.broadcast_to(operand.bound, x.shape)
    with np.errstate(all="ignore"):
        if name in SUMS:
            state |= _sums(x, bound, axes, node.output.dtype)
        elif name in SPREADS:
            state |= _spread(x, bound, axes, node.outputs[0].dtype)
        elif name in ("max", "min"):
            # The reference also knows the extremum of nothing.
            pick = node.op.reference
            state["out"] = pick(x, dims=axes)
            if bound is not None:
                state |= {"up": pick(x + bound, dims=axes), "down": pick(x - bound, dims=axes)}
        elif name == "prod":
            state["out"] = np.prod(x, axis=axes, dtype=storage(node.output.dtype))
            if node.output.dtype.is_float:
                state |= _logarithms(x, axes)
            if bound is not None:
                state["relative"] = np.sum(bound / np.abs(x), axis=axes)
        elif name in ("any", "all"):
            pick = np.any if name == "any" else np.all
            maybe = False if bound is None else bound > 0
            truth = x.astype(np.bool_)
            state |= {
                "up": pick(truth | maybe, axis=axes),
                "down": pick(truth & ~np.asarray(maybe), axis=axes),
            }
            state["out"] = pick(truth, axis=axes)
        else:
            raise Unsupported(f"no error bound is known for reduction `{name}`", span=node.span)
    return state


def merge(node: Node, a: State, b: State) -> State:
    """Return the state of two blocks together."""
    name = node.op.name
    pick = {"max": np.maximum, "min": np.minimum, "any": np.logical_or, "all": np.logical_and}
    with np.errstate(all="ignore"):
        if name in SPREADS:
            return _merge_spread(a, b)
        if name in pick:
            return {k: (a[k] + b[k] if k in _COUNTS else pick[name](a[k], b[k])) for k in a}
        product = {"out"} if name == "prod" else set[str]()
        return {k: a[k] * b[k] if k in product else a[k] + b[k] for k in a}


def finish(node: Node, state: State, attributes: Mapping[str, Any]) -> tuple[Bounded, ...]:
    """Return the results of a reduction from its state, with the reference's values left out."""
    name, count = node.op.name, int(state["count"])
    dtype = node.output.dtype
    with np.errstate(all="ignore"):
        if name in SUMS:
            total, bound = state["out"], _sum_bound(node, state, count)
            if name == "mean":
                total = total / count if count else total * np.nan
                bound = add_bounds(
                    None if bound is None else bound / max(count, 1), rounding(total, dtype, 1)
                )
            return (settle_bounded(node, node.output, total, bound, None),)
        if name in SPREADS:
            return _finish_spread(node, state, count, attributes)
        out, bound = state["out"], None
        if name == "prod":
            bound = _product_bound(state, count, dtype) if dtype.is_float else None
        elif "up" in state:
            up, down = (np.asarray(state[k], np.float64) for k in ("up", "down"))
            bound = np.maximum(np.abs(up - out), np.abs(out - down))
            bound = np.where(np.isnan(bound), 0.0, bound)
            bound = bound if bound.any() else None
        return (settle_bounded(node, node.output, out, bound, None),)


def reduce_bounded(
    node: Node, operand: Bounded, attributes: Mapping[str, Any]
) -> tuple[Bounded, ...]:
    """Return the results of a reduction of a whole operand; values are the reference's."""
    taken = convert_bounded(node.operands[0], operand, node.compute_dtypes[0])
    results = apply_reference(node.op, [taken.value], attributes)
    state = start(node, taken, attributes["dims"])
    if node.op.name not in SPREADS:
        # The reference decides the value, the state only how far it may be off.
        state["out"] = results[0]
        if node.op.name == "mean":
            state["out"] = results[0] * max(int(state["count"]), 1)
        return finish(node, state, attributes)
    bounded = finish(node, state, attributes)
    return tuple(
        settle_bounded(node, v, r, b.bound, None)
        for v, r, b in zip(node.outputs, results, bounded, strict=True)
    )


def _count(shape: Sequence[int], axes: tuple[int, ...]) -> int:
    count = 1
    for axis in axes:
        count *= shape[axis]
    return count


def _addition(dtype: DType) -> Callable[..., Array]:
    """Return the sum to take: doubles are enough for f32 in any order."""
    return total if dtype.part.name == "f64" else np.sum


def _logarithms(x: Array, axes: tuple[int, ...]) -> State:
    """Return sums over the logarithms of factors; a zero makes no product larger or smaller."""
    logs = np.log(np.where(x == 0, 1.0, np.abs(x)))
    return {
        "growing": np.sum(np.maximum(logs, 0.0), axis=axes),
        "shrinking": np.sum(np.maximum(-logs, 0.0), axis=axes),
    }


def _product_bound(state: State, count: int, dtype: DType) -> Array:
    """Return the bound of products in any order: at most all factors above 1 meet, or all below."""
    out, growing, shrinking = (state[k] for k in ("out", "growing", "shrinking"))
    relative = state.get("relative", np.zeros(out.shape)) + count * unit(dtype)
    reach = growing + relative, shrinking + relative
    bound = np.abs(out) * relative
    bound = np.where(np.isnan(bound), np.inf, bound) + product_range(*reach, count, dtype)
    # One that is infinite in any order, and meets no 0, is sure.
    infinite = growing - shrinking - relative > log(LARGEST[dtype.compute.name])
    return np.where(infinite & (out != 0) & ~meets_no_number(*reach, dtype), 0.0, bound)


def of_neighbours(x: Array, axis: int, initial: Sequence[Array]) -> tuple[Array, Array]:
    """Return the same for products of neighbours up to each factor: a scan forms no others."""
    one = np.ones_like(x.take([0], axis)) if x.shape[axis] else x
    factors = np.concatenate([one, *(one * value for value in initial), x], axis)
    sums = np.cumsum(np.log(np.where(factors == 0, 1.0, np.abs(factors))), axis)
    rise = np.maximum.accumulate(sums - np.minimum.accumulate(sums, axis), axis)
    fall = np.maximum.accumulate(np.maximum.accumulate(sums, axis) - sums, axis)
    own = range(1 + len(initial), factors.shape[axis])
    return rise.take(own, axis), fall.take(own, axis)


def product_range(largest: Array, smallest: Array, count: Array | int, dtype: DType) -> Array:
    """Return what partial products add to the error when they overflow or become denormal."""
    name = dtype.compute.name
    lost = np.maximum(count, 1) * SMALLEST[name] * np.exp(largest)
    error = np.where(smallest > -log(NORMAL[name]), lost, 0.0)
    return np.where(largest > log(LARGEST[name]), np.inf, error)


def meets_no_number(largest: Array, smallest: Array, dtype: DType) -> Array:
    """Return where one partial product may be infinite and another 0: their product is NaN."""
    name = dtype.compute.name
    return (largest > log(LARGEST[name])) & (smallest > -log(NORMAL[name]))


def _sums(x: Array, bound: Array | None, axes: tuple[int, ...], dtype: DType) -> State:
    add = _addition(dtype)
    state: State = {"out": add(x.astype(storage(dtype), copy=False), axes)}
    if dtype.is_rounded:
        state["magnitude"] = np.asarray(np.sum(np.abs(x), axis=axes, dtype=np.float64))
    if bound is not None:
        state["bounds"] = np.sum(bound, axis=axes)
    return state


def _sum_bound(node: Node, state: State, count: int) -> Array | None:
    dtype, magnitude = node.output.dtype, state.get("magnitude")
    own: Array | None = None
    if magnitude is not None and count > 1:
        own = magnitude * (unit(dtype) * growth(count, int(state["distinct"])))
        own = np.where(np.isfinite(own), own, 0.0)
        lost = overflowing(state["out"], magnitude, dtype, whole=node.op.name == "sum")
        own = np.where(lost, np.inf, own)
    return add_bounds(state.get("bounds"), own)


def _spread(x: Array, bound: Array | None, axes: tuple[int, ...], dtype: DType) -> State:
    count = max(_count(x.shape, axes), 1)
    add = _addition(dtype)
    mean = add(x, axes, keepdims=True) / count
    centred = x - mean
    state: State = {
        "mean": np.squeeze(mean, axis=axes),
        "m2": add(squared(centred), axes),
        "magnitude": np.sum(np.abs(x), axis=axes),
    }
    if bound is not None:
        state["bounds"] = np.sum(bound, axis=axes)
        state["cross"] = np.sum((2 * np.abs(centred) + bound) * bound, axis=axes)
    return state


def _merge_spread(a: State, b: State) -> State:
    count = a["count"] + b["count"]
    delta = b["mean"] - a["mean"]
    share = b["count"] / np.maximum(count, 1)
    joined: State = {k: a[k] + b[k] for k in a if k != "mean"}
    joined["mean"] = a["mean"] + delta * share
    joined["m2"] = joined["m2"] + squared(delta) * (a["count"] * share)
    if "cross" in a:
        for part, other in ((a, 1 - share), (b, share)):
            joined["cross"] = joined["cross"] + 2 * np.abs(delta) * other * part["bounds"]
    return joined


def _finish_spread(
    node: Node, state: State, count: int, attributes: Mapping[str, Any]
) -> tuple[Bounded, ...]:
    dtype, mean, m2 = node.outputs[0].dtype, state["mean"], state["m2"]
    u, grow = unit(dtype), growth(count, int(state["distinct"]))
    own = 5 if mean.dtype.kind == "c" else 4
    slip = state["magnitude"] * (u * grow)
    mean_bound = (slip + state.get("bounds", 0.0)) / max(count, 1) + np.abs(mean) * u
    error = (
        state.get("cross", 0.0) + count * mean_bound**2
        + u * grow * np.sqrt(m2 * (m2 + count * squared(mean))) + own * u * m2
    )  # fmt: skip
    # The sum of the terms, or of the squares, overflows where mean or variance does not.
    lost = overflowing(mean * count, state["magnitude"], dtype, whole=False)
    mean_bound = np.where(lost, np.inf, mean_bound)
    lost |= np.isfinite(m2) & (2 * m2 >= LARGEST[dtype.compute.part.name])
    error = np.where(lost, np.inf, error)
    correction = attributes.get("correction", 0)
    free = max(count - correction, 0)
    results: dict[str, tuple[Array, Array]] = {
        "mean": (mean, mean_bound),
        "m2": (m2, error),
        "var": (m2 / free if free else m2 / np.float64(0), error / free if free else error * 0),
    }
    return tuple(
        settle_bounded(node, value, *results[kind], None)
        if kind != "count"
        else Bounded(_filled(value, mean.shape, count))
        for value, kind in zip(node.outputs, _spread_results(node), strict=True)
    )


def _filled(value: Value, shape: tuple[int, ...], count: int) -> Array:
    kind: Any = value.dtype.numpy
    return np.full(shape if value.rank else (), count, dtype=kind)


def _spread_results(node: Node) -> tuple[str, ...]:
    names = {"avg": "mean", "mean": "mean", "var": "var", "var_sum": "m2", "n": "count"}
    return tuple(names.get(_result_name(node, v), "var") for v in node.outputs)


def _result_name(node: Node, value: Value) -> str:
    return node.op.results[node.outputs.index(value)]
