"""Error bounds of elementwise operations.

Each operand is moved up and down by its own bound; the larger change of the result counts, plus the
operation's accuracy in units in the last place of the compute type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from fusec.ir.evaluate import Array, apply_reference, storage
from fusec.ir.graph import Node
from fusec.reference.between import between
from fusec.reference.bounds import (
    Bounded,
    add_bounds,
    distance,
    either,
    either_way,
    meeting,
    narrowing,
    rounding,
    settle_bounded,
    truth,
)
from fusec.reference.complex_bounds import complex_error, directions, steepness, unjudged


def cast_bounds(node: Node, operand: Bounded, attributes: Mapping[str, Any]) -> Bounded:
    source, target = node.operands[0].type.dtype, node.output.dtype
    if target.kind == "bool" and source.kind != "bool":
        return truth(operand)
    (raw,) = apply_reference(node.op, [operand.value], attributes)
    if source.is_rounded and not target.is_rounded:
        change, doubt = _variation(node, [operand], 0, raw, attributes)
        return settle_bounded(node, node.output, raw, change, either(operand.doubt, doubt))
    if not target.is_rounded:
        return settle_bounded(node, node.output, raw, operand.bound, operand.doubt)
    wide = np.asarray(raw, storage(target))
    bound = add_bounds(operand.bound, narrowing(wide, source, target))
    return settle_bounded(node, node.output, wide, bound, operand.doubt)


RESOLUTION = 2.0**-52
"""Distance of doubles, relative to them."""


def _variation(
    node: Node, operands: Sequence[Bounded], index: int, value: Array, attributes: Mapping[str, Any]
) -> tuple[Array | None, Array | None]:
    operand = operands[index]
    if operand.bound is None:
        return None, None
    moved = list[Array]()
    for sign in directions(operand.value):
        arrays = [o.value for o in operands]
        arrays[index] = _shift(operand.value, operand.bound, sign)
        (result, *_) = apply_reference(node.op, arrays, attributes)
        moved.append(distance(result, value))
    change, doubt = reduce(np.fmax, moved), None
    if operand.value.dtype.kind == "c":
        change = change * steepness(value)
    if change.size and np.isnan(np.max(sum(moved))):
        doubt = np.isnan(sum(moved))
        change = np.where(np.isnan(change), np.inf, change)
    if not node.output.dtype.is_rounded:
        doubt = either(doubt, change > 0)
    elif node.op.discontinuous:
        # A smooth stretch changes alike on both sides but for the reference's own rounding.
        alike = np.fmin(moved[0], moved[1]) + np.abs(value) * RESOLUTION
        doubt = either(doubt, change > 8 * alike)
    inside, most = between(node, [o.value for o in operands], operand.bound, index)
    if inside is not None and inside.any():
        change = np.where(inside, np.fmax(change, most), change)
    return change, doubt if doubt is not None and doubt.any() else None


def _shift(value: Array, bound: Array, sign: complex) -> Array:
    with np.errstate(all="ignore"):
        if value.dtype.kind == "b":
            return value ^ (bound > 0)
        if value.dtype.kind in "iu":
            step = np.ceil(np.where(np.isfinite(bound), bound, 1.0)).astype(value.dtype)
            return value + step if sign == 1 else value - step
        if sign in (1, -1):
            return value + bound if sign == 1 else value - bound
        return value + bound * sign


def _addcmul_terms(a: Array, b: Array, c: Array, alpha: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.abs(a) + np.abs(alpha * b * c)


def _lerp_terms(start: Array, end: Array, weight: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.abs(start) + np.abs(weight) * (np.abs(start) + np.abs(end))


def _lgamma_terms(x: Array, result: Array) -> Array:
    """Return what lgamma rounds: below zero it is log(pi / |x sin(pi x)|) - lgamma(-x).

    CUDA bounds the error in units of the result only outside the interval in which these cancel
    (CUDA C++ Programming Guide, Mathematical Functions). A relative error of the logarithm's
    operand is an absolute one of its result, hence the 1.
    """
    with np.errstate(all="ignore"):
        logarithm = np.log(np.pi / np.abs(x * np.sin(np.pi * x)))
        cancelling = 1 + np.abs(logarithm) + np.abs(logarithm - result)
    return np.where((x < 0) & np.isfinite(result), cancelling, result)


def _terms(node: Node, values: Sequence[Array], result: Array) -> Array:
    """Return what the roundings of an operation are relative to."""
    if node.op.name == "lgamma":
        return _lgamma_terms(values[0], result)
    return _CANCELLING[node.op.name](*values) if node.op.name in _CANCELLING else result


_CANCELLING: Mapping[str, Callable[..., Array]] = {
    "addcmul": _addcmul_terms,
    "lerp": _lerp_terms,
}
"""Operations whose roundings are relative to terms that may cancel in the result."""
_LINEAR = frozenset({"add", "sub", "neg", "real", "imag", "complex"})
_EXACT = frozenset(
    {"neg", "abs", "relu", "minimum", "maximum", "where", "clamp", "threshold", "sign"}
    | {"ceil", "floor", "round", "trunc"}
)
"""Operations whose float results need no rounding."""


_COMPARING = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_OVERFLOWING = frozenset({"sigmoid", "silu"})
"""Operations by way of exp(-x): where that is infinite the kernel's result is 0."""
_VANISHED = {"f32": 2.0**-120, "f64": 2.0**-1012}


def pointwise_bounds(
    node: Node, operands: Sequence[Bounded], attributes: Mapping[str, Any]
) -> tuple[Bounded, ...]:
    values = [o.value for o in operands]
    (raw,) = apply_reference(node.op, values, attributes)
    if node.op.name in _COMPARING:
        return (_compared(node, operands, raw),)
    if node.op.discontinuous:
        operands = _moved_together(operands)
    floating = node.output.dtype.is_rounded
    bounds, doubts = list[Array | None](), [o.doubt for o in operands]
    for index, operand in enumerate(operands):
        if operand.bound is None:
            continue
        if floating and node.op.name in _LINEAR:
            change, doubt = operand.bound, None
        elif floating and node.op.name == "mul":
            other = operands[1 - index]
            # Off are both factors: once, the bounds' own product counts, too.
            most = np.abs(other.value)
            if index == 0 and other.bound is not None:
                most = most + other.bound
            change, doubt = _product(operand.bound, most), None
        else:
            change, doubt = _variation(node, operands, index, raw, attributes)
        bounds.append(change)
        doubts.append(doubt)
    own = complex_error(node, values, raw)
    if own is None:
        ulps = 0.0 if node.op.name in _EXACT else _accuracy(node)
        terms = _terms(node, values, raw)
    else:
        ulps, terms = own
    bound = add_bounds(*bounds, rounding(terms, node.output.dtype, ulps))
    if own is not None and ulps:
        bound = unjudged(node, values, raw, bound)
    if node.op.name in _OVERFLOWING:
        small = np.abs(raw)
        vanished = small < _VANISHED[node.output.dtype.compute.name]
        bound = add_bounds(bound, np.where(vanished, small, 0.0)) if vanished.any() else bound
    if node.op.name == "nextafter" and bound is not None:
        # From infinity a float steps to the largest float, far from the largest double.
        bound = np.where(np.isinf(values[0]) & np.isfinite(raw), np.inf, bound)
    return (settle_bounded(node, node.output, raw, bound, either(*doubts)),)


def _compared(node: Node, operands: Sequence[Bounded], raw: Array) -> Bounded:
    slack = add_bounds(*(o.bound for o in operands))
    doubt, (first, second) = either(*(o.doubt for o in operands)), node.operands
    if slack is None or first is second:
        # A value is compared with itself, wherever it lies.
        return Bounded(raw, None, doubt)
    return either_way(raw, meeting(operands[0].value, operands[1].value, slack), doubt)


def _moved_together(operands: Sequence[Bounded]) -> Sequence[Bounded]:
    """Return operands with bounds that reach a jump which none but all of them together reach.

    The one that brings it nearest, twice as far, comes as far as both.
    """
    inexact = sum(o.bound is not None for o in operands)
    if inexact < 2:
        return operands
    return [
        o if o.bound is None else Bounded(o.value, inexact * o.bound, o.doubt) for o in operands
    ]


def _product(bound: Array, other: Array) -> Array:
    with np.errstate(all="ignore"):
        change = bound * np.abs(other)
    if change.size and np.isnan(np.max(change)):
        change = np.where(np.isnan(change), np.where(bound == 0, 0.0, np.inf), change)
    return change


def _accuracy(node: Node) -> float:
    """Return the declared error of an operation in the type that it computes in."""
    wide = node.op.accuracy_f64 is not None and "f64" in {d.name for d in node.compute_dtypes}
    return node.op.accuracy_f64 if wide and node.op.accuracy_f64 else node.op.accuracy
