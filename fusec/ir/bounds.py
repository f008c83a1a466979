"""First-order running error: how far a correct kernel may stray from the reference, per element.

Every value carries a bound on the difference between what a kernel computes and the reference
(None: no difference) and a mask of elements that a jump (a compare, a floor) puts in doubt.

- Pointwise: each operand is moved up and down by its own bound; the larger change of the result
  counts, plus the operation's accuracy in units in the last place of the compute type.
- A half result is rounded in the kernel and in the reference: its bound is the distance to the
  roundings of value - bound and value + bound, nothing for most elements.
- Movement moves bounds. Reductions are in `fusec.ir.reductions`.
- Contraction: the operands' bounds through |a| @ |b|, plus `contraction_growth`.
- Of a complex number the bound is on the modulus of the difference: see `complex_bounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import sqrt
from typing import Any

import numpy as np

from fusec.diagnostics import Unsupported
from fusec.ir.complex_bounds import complex_error, directions, steepness, unjudged
from fusec.ir.dtype import DType
from fusec.ir.evaluate import (
    Array,
    apply_reference,
    convert_operand,
    round_to,
    settle,
    storage,
)
from fusec.ir.graph import Node, Operand, Value
from fusec.ir.periods import wrapping

SMALLEST = {"f32": 2.0**-149, "f64": 2.0**-1074}
HALF_MARGIN = 2.0
"""Bounds are widened by this factor where they decide between two roundings of a half value."""


@dataclass(frozen=True)
class Bounded:
    """A value with its error bound and the elements in doubt; None stands for zeros."""

    value: Array
    bound: Array | None = None
    doubt: Array | None = None

    @property
    def exact(self) -> bool:
        """Return whether no element can differ."""
        return self.bound is None and self.doubt is None


def unit(dtype: DType) -> float:
    """Return the largest unit in the last place relative to a value, for the type computed in.

    Doubled for f64, in which the reference itself rounds.
    """
    compute = dtype.compute
    return 2 * compute.epsilon * (2 if compute.part.name == "f64" else 1)


def add_bounds(*bounds: Array | None) -> Array | None:
    """Return the sum of bounds."""
    present = [b for b in bounds if b is not None]
    if not present:
        return None
    total = present[0]
    for bound in present[1:]:
        total = total + bound
    return total


def either(*masks: Array | None) -> Array | None:
    """Return the union of masks."""
    present = [m for m in masks if m is not None]
    if not present:
        return None
    union = present[0]
    for mask in present[1:]:
        union = union | mask
    return union


def rounding(value: Array, dtype: DType, ulps: float) -> Array | None:
    """Return the bound of one operation of `ulps` accuracy in the compute type of `dtype`."""
    if not ulps or not dtype.is_rounded:
        return None
    with np.errstate(all="ignore"):
        term = np.abs(value)
        term *= ulps * unit(dtype)
        term += ulps * SMALLEST[dtype.compute.part.name]
    if term.size and not np.isfinite(np.max(term)):
        term = np.where(np.isfinite(value), term, 0.0)
    return term


def distance(moved: Array, value: Array) -> Array:
    """Return |moved - value|, 0 where both are the same infinity or NaN; NaN where one is NaN."""
    with np.errstate(all="ignore"):
        if moved.dtype.kind == "b" or value.dtype.kind == "b":
            return np.asarray(moved != value, dtype=np.float64)
        wide = np.complex128 if "c" in (moved.dtype.kind, value.dtype.kind) else np.float64
        change = np.abs(np.asarray(moved, wide) - np.asarray(value, wide))
        if change.size and np.isnan(np.max(change)):
            same = (moved == value) | (np.isnan(moved) & np.isnan(value))
            change = np.where(same, 0.0, change)
    return change


def convert_bounded(operand: Operand, held: Bounded, dtype: DType) -> Bounded:
    """Return an operand converted to the type its operation computes in."""
    value = convert_operand(operand, held.value, dtype)
    source, bound = operand.type.dtype, held.bound
    if source == dtype or operand.is_scalar or not dtype.is_rounded:
        return Bounded(value, bound, held.doubt)
    return Bounded(value, add_bounds(bound, narrowing(value, source, dtype)), held.doubt)


def narrowing(value: Array, source: DType, target: DType) -> Array | None:
    """Return the bound of a conversion to f32 or f64 (parts) that may round."""
    if source.is_integer and source.bits > 24 and target.compute.part.name == "f32":
        large = np.abs(value) > 2.0**24
        return np.abs(value) * large * unit(target) / 2 if large.any() else None
    if source.part.name == "f64" and target.compute.part.name == "f32":
        return rounding(value, target, 0.5)
    return None


def bounded_node(
    node: Node, operands: Sequence[Bounded], attributes: Mapping[str, Any]
) -> tuple[Bounded, ...]:
    """Return the results of a node other than a reduction; operands as the graph holds them."""
    if node.op.name == "cast":
        return (_cast(node, operands[0], attributes),)
    dtypes = node.compute_dtypes
    taken = [
        convert_bounded(o, b, d) for o, b, d in zip(node.operands, operands, dtypes, strict=True)
    ]
    rule = _RULES.get(node.op.family)
    if rule is None:
        raise Unsupported(f"no error bound is known for operation `{node.op.name}`", span=node.span)
    return rule(node, taken, attributes)


def settle_bounded(
    node: Node, value: Value, raw: Array, bound: Array | None, doubt: Array | None
) -> Bounded:
    """Return a raw result as it is held, with the bound of its rounding to a half type."""
    held = settle(node, value, raw)
    dtype = value.dtype
    if bound is None or not dtype.is_half:
        return Bounded(held, bound, doubt)
    with np.errstate(all="ignore"):
        # Only values within reach of a rounding boundary can differ at all.
        reach = bound * HALF_MARGIN
        upper = distance(round_to(raw + reach, dtype), held)
        lower = distance(round_to(raw - reach, dtype), held)
    jump = np.fmax(upper, lower)
    if jump.size and np.isnan(np.max(jump)):
        jump = np.where(np.isnan(jump), np.inf, jump)
    return Bounded(held, jump, doubt)


def _cast(node: Node, operand: Bounded, attributes: Mapping[str, Any]) -> Bounded:
    source, target = node.operands[0].type.dtype, node.output.dtype
    (raw,) = apply_reference(node.op, [operand.value], attributes)
    truth = target.kind == "bool" and source.kind != "bool"
    jumps = not target.is_rounded and (source.is_rounded or truth)
    if jumps:
        change, doubt = _variation(node, [operand], 0, raw, attributes)
        return settle_bounded(node, node.output, raw, change, either(operand.doubt, doubt))
    if not target.is_rounded:
        return settle_bounded(node, node.output, raw, operand.bound, operand.doubt)
    wide = np.asarray(raw, storage(target))
    bound = add_bounds(operand.bound, narrowing(wide, source, target))
    return settle_bounded(node, node.output, wide, bound, operand.doubt)


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
        # A smooth stretch changes alike on both sides, a jump lies on one.
        doubt = either(doubt, change > 8 * np.fmin(moved[0], moved[1]))
    wraps, most = wrapping(node, [o.value for o in operands], operand.bound, index)
    if wraps is not None and wraps.any():
        change = np.where(wraps, np.fmax(change, most), change)
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
    return np.abs(a) + np.abs(alpha * b * c)


def _lerp_terms(start: Array, end: Array, weight: Array) -> Array:
    return np.abs(start) + np.abs(weight) * (np.abs(start) + np.abs(end))


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


_OVERFLOWING = frozenset({"sigmoid", "silu"})
"""Operations by way of exp(-x): where that is infinite the kernel's result is 0."""
_VANISHED = {"f32": 2.0**-120, "f64": 2.0**-1012}


def _pointwise(
    node: Node, operands: Sequence[Bounded], attributes: Mapping[str, Any]
) -> tuple[Bounded, ...]:
    values = [o.value for o in operands]
    (raw,) = apply_reference(node.op, values, attributes)
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
        terms = _CANCELLING[node.op.name](*values) if node.op.name in _CANCELLING else raw
    else:
        ulps, terms = own
    bound = add_bounds(*bounds, rounding(terms, node.output.dtype, ulps))
    if own is not None and ulps:
        bound = unjudged(node, values, raw, bound)
    if node.op.name in _OVERFLOWING:
        small = np.abs(raw)
        vanished = small < _VANISHED[node.output.dtype.compute.name]
        bound = add_bounds(bound, np.where(vanished, small, 0.0)) if vanished.any() else bound
    return (settle_bounded(node, node.output, raw, bound, either(*doubts)),)


def _product(bound: Array, other: Array) -> Array:
    with np.errstate(all="ignore"):
        change = bound * np.abs(other)
    if change.size and np.isnan(np.max(change)):
        change = np.where(np.isnan(change), np.where(bound == 0, 0.0, np.inf), change)
    return change


def _movement(
    node: Node, operands: Sequence[Bounded], attributes: Mapping[str, Any]
) -> tuple[Bounded, ...]:
    dtype = node.output.dtype
    data = [o.type.dtype == dtype and not o.is_scalar for o in node.operands]
    taken = [
        b if o.type.dtype == dtype or not o.is_scalar
        else Bounded(convert_operand(o, b.value, dtype))
        for o, b in zip(node.operands, operands, strict=True)
    ]  # fmt: skip

    def move(arrays: Sequence[Array | None], zero: Any) -> tuple[Array | None, ...]:
        if all(a is None for a in arrays):
            return (None,) * len(node.outputs)
        filled: list[Any] = []
        for array, is_data, operand in zip(arrays, data, taken, strict=True):
            if not is_data and operand.value.ndim:
                filled.append(operand.value)
            elif array is None or not is_data:
                filled.append(np.full(operand.value.shape, zero))
            else:
                filled.append(np.broadcast_to(array, operand.value.shape))
        return apply_reference(node.op, filled, attributes)

    results = apply_reference(node.op, [t.value for t in taken], attributes)
    bounds = move([t.bound for t in taken], 0.0)
    doubts = move([t.doubt for t in taken], False)
    return tuple(
        Bounded(settle(node, v, r), b, None if d is None else np.asarray(d, np.bool_))
        for v, r, b, d in zip(node.outputs, results, bounds, doubts, strict=True)
    )


def _exact(
    node: Node, operands: Sequence[Bounded], attributes: Mapping[str, Any]
) -> tuple[Bounded, ...]:
    results = apply_reference(node.op, [o.value for o in operands], attributes)
    return tuple(Bounded(settle(node, v, r)) for v, r in zip(node.outputs, results, strict=True))


def contraction_growth(count: int) -> tuple[float, float]:
    """Return the error of a contraction over `count` products in ulps of |a| @ |b| and of |a @ b|.

    Roundings of partial sums walk at random, sqrt(count) in total with a margin; tensor cores cut
    off instead of rounding, once per 16 products, which shifts a sum that grows steadily.
    """
    return min(max(count, 1), 4 + sqrt(count)), count / 32


def contraction_bound(
    operation: Any, operands: Sequence[Bounded], product: Array, magnitude: Array, count: int,
    dtype: DType, *, own: bool = True,
) -> Array | None:  # fmt: skip
    """Return the bound of `operation` (a contraction of arrays) given |a| @ |b| and a @ b.

    `own` adds the rounding of the summation itself.
    """
    terms: list[Array | None] = []
    for index, operand in enumerate(operands):
        if operand.bound is None:
            continue
        arrays = [np.abs(o.value) for o in operands]
        arrays[index] = np.broadcast_to(operand.bound, operand.value.shape)
        for other in range(2, len(operands)):
            if other != index:
                arrays[other] = np.zeros_like(arrays[other])
        if index >= 2:
            arrays[0] = np.zeros_like(arrays[0])
        terms.append(operation(arrays))
    if own and dtype.is_complex:
        # Two products and their sum for each part; the products may cancel.
        random, steady = contraction_growth(count)
        terms.append(1.5 * unit(dtype) * (random + steady + 1) * magnitude)
    elif own and dtype.is_float:
        random, steady = contraction_growth(count)
        terms.append(unit(dtype) * (random * magnitude + steady * np.abs(product)))
    return add_bounds(*terms)


def _contraction(
    node: Node, operands: Sequence[Bounded], attributes: Mapping[str, Any]
) -> tuple[Bounded, ...]:
    def operation(arrays: Sequence[Array]) -> Array:
        return apply_reference(node.op, arrays, attributes)[0]

    dtype = node.output.dtype
    product = operation([o.value for o in operands])
    magnitude = operation([np.abs(o.value) for o in operands]) if dtype.is_rounded else product
    count = operands[0].value.shape[-1] if operands[0].value.ndim else 1
    bound = contraction_bound(operation, operands, product, magnitude, count, dtype)
    # A jump of an operand is part of its bound; it does not put whole rows in doubt.
    return (settle_bounded(node, node.output, product, bound, None),)


_RULES = {
    "pointwise": _pointwise,
    "complex": _pointwise,
    "movement": _movement,
    "contraction": _contraction,
    "factory": _exact,
    "scalar": _exact,
}


def _accuracy(node: Node) -> float:
    """Return the declared error of an operation in the type that it computes in."""
    wide = node.op.accuracy_f64 is not None and "f64" in {d.name for d in node.compute_dtypes}
    return node.op.accuracy_f64 if wide and node.op.accuracy_f64 else node.op.accuracy
