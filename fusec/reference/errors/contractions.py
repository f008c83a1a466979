"""Expected errors of GEMMs, in parts that add up over blocks of the summed dim.

With independent variances s and common ones l of the factors: s passes as s_a @ b**2 + a**2 @ s_b,
l as (sqrt(l_a) @ |b|)**2 + (|a| @ sqrt(l_b))**2. Errors of a factor reach a row or a column of the
result, which counts as independent. `order.roundings` returns the roundings of a sum. Some sums are
also computed in f32 and in the kernel's order: if these are further off on average (equal products
are rounded alike), all sums are taken to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import sqrt
from typing import Any

import numpy

from fusec.ir.arrays import np
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, apply_reference
from fusec.ir.graph import Node
from fusec.ir.totals import total
from fusec.reference.errors.common_factors import without_factor
from fusec.reference.errors.estimate import (
    LIMIT,
    SMALLEST,
    SPREAD,
    Estimate,
    add,
    overflowing,
    result,
    spread_alike,
    squared,
    together,
    unit,
)
from fusec.reference.errors.order import Order, performed, roundings
from fusec.reference.errors.repeats import repeats
from fusec.reference.errors.sums import (
    SIZE,
    STEP,
    TAKEN,
    Rules,
    State,
    is_exact,
    least_spacing,
    may_be_exact,
    part_of,
)

Attributes = Mapping[str, Any]

SAMPLED = 16
"""Rows and columns of a GEMM whose sums are also computed in f32."""
FURTHEST = 4.0
"""Expected errors that bound all of the sampled sums if roundings are independent."""
SAMPLED_TERMS = 1 << 21
"""Upper limit on the products of these sums in total."""
FACTOR = "factor"
"""Name of the relative variance that all terms of a row have in common."""
COMPLEX = 4.0
"""Variance of a complex product's roundings over a real one's: two products and a sum per part add
up to less than 2 units of its modulus."""


def contract(
    node: Node, operands: Sequence[Estimate], attributes: Attributes, rules: Rules
) -> Estimate:
    """Return the contraction of whole operands."""
    state = start(node, operands, attributes, rules)
    return finish(node, state, ancestors_of(operands), rules)


def ancestors_of(operands: Sequence[Estimate]) -> tuple[int, ...]:
    """Return each operand's ancestors."""
    return tuple(o.ancestors for o in operands)


def start(node: Node, operands: Sequence[Estimate], attributes: Attributes, rules: Rules) -> State:
    """Return the state of one block of the summed dim; a bias is only added to whole GEMMs."""
    values = [o.value for o in operands]

    def product(a: Array, b: Array, *rest: Array) -> Array:
        return apply_reference(node.op, [a, b, *(rest or values[2:])], attributes)[0]

    dtype, out = node.output.dtype, product(*values)
    count = values[0].shape[-1] if values[0].ndim else 1
    state: State = {"count": np.asarray(count), "out": out}
    if not rules.errors or not dtype.is_rounded:
        return state
    none = [] if _indexed(node) else [np.zeros(v.shape) for v in values[2:]]
    with np.errstate(all="ignore"):
        squares = [o.squares for o in operands[:2]]
        state["squares"] = product(*squares, *none)
        state |= _exact_range(node, operands, out)
        state |= _sample(node, values, rules)
        for place, operand in enumerate(operands[:2]):
            axis = _summed(node, place, operand.value)
            if operand.independent is not None:
                pair = [*squares]
                variance = np.broadcast_to(operand.independent, operand.value.shape)
                pair[place] = variance * repeats(operand.value, (axis,), variance)
                state[f"independent {place}"] = product(*pair, *none)
            if operand.common is not None:
                first = place == 0 and values[1].ndim > 1 and not _indexed(node)
                common, factor = without_factor(operand, axis if first else None)
                pair = [np.abs(v) for v in values[:2]]
                pair[place] = np.broadcast_to(np.sqrt(common), operand.value.shape)
                state[f"common {place}"] = product(*pair, *none)
                if factor is not None:
                    state[FACTOR] = factor
        pair = _variances_near_zero(operands[:2])
        if pair is not None:
            state["both"] = product(*pair, *none)
    if len(operands) > 2 and not _indexed(node):
        bias = spread_alike(operands[2], out.shape)
        state["bias"] = squared(out)
        if bias.independent is not None:
            state["independent 2"] = np.broadcast_to(bias.independent, out.shape)
        if bias.common is not None:
            state["common 2"] = np.broadcast_to(np.sqrt(bias.common), out.shape)
    return state


def _variances_near_zero(operands: Sequence[Estimate]) -> list[Array] | None:
    """Return the variances of two factors if both have elements that their errors dominate.

    Their product is then off by more than either error times the other factor.
    """
    found = list[Array]()
    for operand in operands:
        variance = operand.variance
        if variance is None or not np.any(squared(operand.value) < LIMIT**2 * variance):
            return None
        found.append(np.broadcast_to(variance, operand.value.shape))
    return found


def _summed(node: Node, place: int, factor: Array) -> int:
    """Return the axis of a factor that is summed over."""
    last = place == 0 or factor.ndim == 1 or _is_transposed(node)
    return factor.ndim - 1 if last else factor.ndim - 2


def _is_transposed(node: Node) -> bool:
    return node.op.product is not None and node.op.product.transposed


def _indexed(node: Node) -> bool:
    """Return whether the third operand is an index, not a bias."""
    return len(node.operands) > 2 and node.operands[2].type.dtype.is_integer


def merge(a: State, b: State) -> State:
    """Merge the states of two blocks."""

    def joined(key: str) -> Array:
        if key not in a or key not in b:
            return a[key] if key in a else b[key]
        if key == FACTOR:
            return np.maximum(a[key], b[key])
        return np.minimum(a[key], b[key]) if key == STEP else a[key] + b[key]

    return {key: joined(key) for key in a | b}


def finish(node: Node, state: State, ancestors: Sequence[int], rules: Rules) -> Estimate:
    """Return the GEMM's result from its state."""
    dtype, out, count = node.output.dtype, state["out"], int(state["count"])
    if "squares" not in state:
        return result(out, dtype, None, None)
    with np.errstate(all="ignore"):
        own = _own(node, state, count, dtype, rules)
        independent: Array | None = own
        common: Array | None = None
        met = 0
        for place, known in enumerate(ancestors):
            join = together if met & known else add
            spread, shared = (state.get(f"{kind} {place}") for kind in ("independent", "common"))
            independent = join(independent, spread)
            common = join(common, None if shared is None else np.square(shared))
            met |= known
        assert independent is not None
        if FACTOR in state:
            common = add(common, np.where(np.isfinite(out), squared(out) * state[FACTOR], 0.0))
        if "both" in state:
            independent = independent + LIMIT**2 * state["both"]
        lost = overflowing(out, np.sqrt(count * state["squares"]), dtype)
        if lost.any():
            independent = np.where(lost, np.inf, independent)
    inexact = common is not None or independent.any()
    part = part_of(out, state["squares"])
    return result(out, dtype, independent if inexact else None, common, met, part)


def _own(node: Node, state: State, count: int, dtype: DType, rules: Rules) -> Array:
    """Return the variance of the roundings of the sums themselves."""
    out, squares, u = state["out"], state["squares"], unit(dtype) / 2
    own = np.zeros(np.shape(out))
    for number, order in enumerate(rules.orders):
        closed = roundings(out, squares, count, order, u)
        own = np.maximum(own, closed * _further(state, number, count, order, u))
    if dtype.is_complex:
        own = own * COMPLEX
    own = own + np.square(count * SMALLEST[dtype.compute.part.name])
    if count == 1:
        # A single product has a rounding of its own.
        own = own + squares * (np.square(u) * SPREAD)
    if not any(order.rounds_whole_numbers for order in rules.orders):
        own = np.where(is_exact(state, dtype), 0.0, own)
    if "bias" in state:
        own = own + state["bias"] * (np.square(u) * SPREAD)
    return np.where(np.isfinite(out), own, 0.0)


def _further(state: State, number: int, count: int, order: Order, u: float) -> float:
    """Return the ratio of the variance of computed sums to the expected one, at least 1."""
    if "sample" not in state:
        return 1.0
    expected = roundings(state["sample"], state["sample squares"], count, order, u)
    off = squared(state[f"{TAKEN} {number}"] - state["sample"])
    sure = np.isfinite(off) & (expected > 0)
    if not sure.any():
        return 1.0
    ratio = off[sure] / expected[sure]
    # With so few independent sums, none is further off than four expected errors.
    return max(1.0, float(np.mean(ratio)), float(np.max(ratio)) / FURTHEST**2)


def _exact_range(node: Node, operands: Sequence[Estimate], out: Array) -> State:
    """Return the range in which sums of products are exact: see `sums.lattice`.

    The sum of the sizes of products is at most the product of the norms.
    """
    unknown: State = {SIZE: np.asarray(np.inf), STEP: np.asarray(0.0)}
    values, dtype = [o.value for o in operands[:2]], node.output.dtype
    count = values[0].shape[-1] if values[0].ndim else 1
    if _indexed(node) or not may_be_exact(values, count, dtype):
        return unknown
    sizes, steps = list[Array](), list[Array]()
    for place, operand in enumerate(operands[:2]):
        axis = _summed(node, place, operand.value)
        found = operand.once((dtype.compute, axis), partial(_row_exact_range, operand, axis, dtype))
        if found is None:
            return unknown
        sizes.append(_errors_in_products(node, place, found[0], operand.value))
        steps.append(_errors_in_products(node, place, found[1], operand.value))
    products: State = {SIZE: sizes[0] * sizes[1], STEP: steps[0] * steps[1]}
    return {key: array.reshape(out.shape) for key, array in products.items()}


def _row_exact_range(operand: Estimate, axis: int, dtype: DType) -> tuple[Array, Array] | None:
    """Return the norms of a factor's rows, and the common divisors of their elements."""
    step = least_spacing(operand.value, axis, dtype)
    return None if step is None else (np.sqrt(np.sum(operand.squares, axis=axis)), step)


def _errors_in_products(node: Node, place: int, array: Array, factor: Array) -> Array:
    """Return a property of a factor's rows or columns, aligned with the products."""
    if factor.ndim == 1:
        return array
    other = len(node.operands[1 - place].type.shape or ())
    if other == 1:
        return array
    return array[..., :, None] if place == 0 else array[..., None, :]


def _matrices(node: Node, values: Sequence[Array]) -> tuple[Array, Array]:
    """Return the first pair of matrices of a batch, [M, K] and [K, N]."""
    a, b = values[0], values[1]
    a = a[None, :] if a.ndim == 1 else a[(0,) * (a.ndim - 2)]
    if b.ndim == 1:
        b = b[:, None]
    elif _is_transposed(node):
        b = b.T
    else:
        b = b[(0,) * (b.ndim - 2)]
    return a, b


def _places(extent: int, rules: Rules) -> Array:
    """Return the indices of some rows, on the host."""
    most = max(2, min(SAMPLED, int(sqrt(SAMPLED_TERMS / max(rules.count, 1)))))
    return numpy.linspace(0, extent - 1, min(extent, most)).astype(numpy.int64)


def _sample(node: Node, values: Sequence[Array], rules: Rules) -> State:
    """Return some sums of a GEMM in the type and orders of a kernel.

    Of a batch, those of the first pair: what matters is how often products repeat.
    """
    if not all(v.size for v in values[:2]):
        return {}
    a, b = _matrices(node, values)
    a, b = a[_places(a.shape[0], rules)], b[:, _places(b.shape[1], rules)]
    terms = np.multiply(a[:, :, None], b[None])
    narrow = terms.astype(node.output.dtype.compute.numpy)
    sums = {f"{TAKEN} {k}": performed(narrow, order) for k, order in enumerate(rules.orders)}
    return sums | {"sample": total(terms, (1,)), "sample squares": squared(a) @ squared(b)}
