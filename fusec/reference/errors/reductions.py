"""Expected errors of reductions, in parts that add up over blocks of the reduced axes.

A state is a dict of arrays; `start` creates that of a block, `merge` joins two, `finish` returns
the result: see `sums`, `products` and `spreads`. An extremum has the largest variance of the
elements that may be the extremum; any and all may flip if uncertain elements decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, prod
from typing import Any

from fusec.dataclasses import replace
from fusec.diagnostics import Unsupported
from fusec.ir.arrays import np
from fusec.ir.evaluate import Array, apply_reference
from fusec.ir.graph import Node
from fusec.ir.roles import Combine
from fusec.reference.errors.estimate import JUMP_PROBABILITY, LIMIT, Estimate, result
from fusec.reference.errors.products import finish_product, start_product
from fusec.reference.errors.spreads import finish_spread, merge_spread, start_spread
from fusec.reference.errors.sums import Rules, State, finish_sum, merged, start_sum

SHORT = 8
"""Terms along one axis up to which that axis is moved first: ten times as fast for two."""


def start(node: Node, operand: Estimate, axes: tuple[int, ...], rules: Rules) -> State:
    """Return the state of one block of the operand."""
    x, dtype, combine = operand.value, node.output.dtype, node.op.combine
    state: State = {"count": np.asarray(prod(x.shape[a] for a in axes))}
    with np.errstate(all="ignore"):
        match combine:
            case Combine.SUM:
                return state | start_sum(operand, axes, dtype, rules)
            case Combine.MOMENTS:
                return state | start_spread(node, operand, axes, rules)
            case Combine.MAXIMUM | Combine.MINIMUM:
                return state | _extremum(node, operand, axes)
            case Combine.PRODUCT:
                return state | start_product(operand, axes, dtype, rules)
            case Combine.SOME | Combine.EVERY:
                return state | _truth(node, operand, axes)
            case _:
                message = f"no error model for reduction `{node.op.name}`"
                raise Unsupported(message, span=node.span)


def merge(node: Node, a: State, b: State) -> State:
    """Merge the states of two blocks."""
    combine = node.op.combine
    with np.errstate(all="ignore"):
        match combine:
            case Combine.MOMENTS:
                return merge_spread(a, b)
            case Combine.MAXIMUM | Combine.MINIMUM:
                larger = combine is Combine.MAXIMUM
                return _merge_extremum(a, b, np.maximum if larger else np.minimum)
            case Combine.SOME | Combine.EVERY:
                pick = np.logical_or if combine is Combine.SOME else np.logical_and
                return {k: a[k] + b[k] if k == "count" else pick(a[k], b[k]) for k in a}
            case Combine.PRODUCT:
                times = {"out", "performed"}
                return {k: a[k] * b[k] if k in times else a[k] + b[k] for k in a}
            case _:
                return merged(a, b)


def finish(
    node: Node, state: State, attributes: Mapping[str, Any], ancestors: int, rules: Rules
) -> tuple[Estimate, ...]:
    """Return the results of a reduction from its state."""
    combine, dtype = node.op.combine, node.output.dtype
    with np.errstate(all="ignore"):
        if combine is Combine.MOMENTS:
            return finish_spread(node, state, attributes, ancestors, rules)
        if combine is Combine.SUM:
            found = finish_sum(state, dtype, rules)
        elif combine in (Combine.MAXIMUM, Combine.MINIMUM):
            found = Estimate(state["out"], state.get("variance"))
        elif combine is Combine.PRODUCT:
            found = finish_product(state, dtype, rules)
        else:
            flips = (
                np.square(JUMP_PROBABILITY * (state["up"] != state["down"]))
                if "up" in state
                else None
            )
            found = Estimate(state["out"], flips)
    settled = result(found.value, dtype, found.independent, found.common, ancestors, found.part)
    return (settled,)


def reduce_estimate(
    node: Node, operand: Estimate, attributes: Mapping[str, Any], rules: Rules
) -> tuple[Estimate, ...]:
    """Return the results of a reduction of a whole operand; values are the reference's."""
    if _is_short(operand, attributes["dims"]):
        operand = _moved(operand, attributes["dims"][0])
        attributes = {**attributes, "dims": (0,)}
    axes = attributes["dims"]
    results = apply_reference(node.op, [operand.value], attributes)
    state = start(node, operand, axes, rules)
    if node.op.combine is not Combine.MOMENTS:
        # The reference decides the value, the state only its error.
        state["out"] = results[0]
    found = finish(node, state, attributes, operand.ancestors, rules)
    return tuple(
        replace(f, value=result(r, v.dtype, None, None).value)
        for v, r, f in zip(node.outputs, results, found, strict=True)
    )


def _is_short(operand: Estimate, axes: tuple[int, ...]) -> bool:
    """Return whether few terms are reduced along one axis: NumPy calls a loop for each result."""
    if len(axes) != 1 or axes[0] == 0 or operand.alike is not None or operand.factor is not None:
        return False
    return operand.value.shape[axes[0]] <= SHORT < operand.value.size


def _moved(operand: Estimate, axis: int) -> Estimate:
    """Return an estimate with an axis moved first, in memory, too."""
    shape = operand.value.shape

    def moved(array: Array | None) -> Array | None:
        if array is None:
            return None
        return np.ascontiguousarray(np.moveaxis(np.broadcast_to(array, shape), axis, 0))

    value = moved(operand.value)
    assert value is not None
    independent, common, part, most = map(
        moved, (operand.independent, operand.common, operand.part, operand.most)
    )
    return replace(
        operand, value=value, independent=independent, common=common, part=part, most=most
    )


def _extremum(node: Node, operand: Estimate, axes: tuple[int, ...]) -> State:
    x, variance = operand.value, operand.variance
    # The reference also defines the extremum of no elements.
    pick = node.op.reference
    state: State = {"out": pick(x, dims=axes)}
    if variance is None:
        return state
    variance = np.broadcast_to(variance, x.shape)
    reach = LIMIT * np.sqrt(variance)
    sign = 1.0 if node.op.combine is Combine.MAXIMUM else -1.0
    far, near = sign * x + reach, sign * x - reach
    sure = np.max(near, axis=axes, keepdims=True, initial=-inf)
    state["variance"] = np.max(np.where(far >= sure, variance, 0.0), axis=axes, initial=0.0)
    state["far"] = np.max(far, axis=axes, initial=-inf)
    state["sure"] = np.squeeze(sure, axis=axes)
    return state


def _merge_extremum(a: State, b: State, pick: Callable[..., Array]) -> State:
    joined: State = {"count": a["count"] + b["count"], "out": pick(a["out"], b["out"])}
    if "variance" not in a:
        return joined
    sure = np.maximum(a["sure"], b["sure"])
    kept = [np.where(s["far"] >= sure, s["variance"], 0.0) for s in (a, b)]
    joined |= {"sure": sure, "far": np.maximum(a["far"], b["far"]), "variance": np.maximum(*kept)}
    return joined


def _truth(node: Node, operand: Estimate, axes: tuple[int, ...]) -> State:
    pick = np.any if node.op.combine is Combine.SOME else np.all
    truth, variance = operand.value.astype(np.bool_), operand.variance
    state: State = {"out": pick(truth, axis=axes)}
    if variance is not None:
        maybe = np.broadcast_to(variance > 0, truth.shape)
        state |= {"up": pick(truth | maybe, axis=axes), "down": pick(truth & ~maybe, axis=axes)}
    return state
