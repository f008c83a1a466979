"""Bounds on how far a correct kernel may stray from the reference, and how bounds add up.

Every value carries a bound on the difference between what a kernel computes and the reference
(None: no difference) and a mask of elements that a jump (a compare, a floor) puts in doubt. A half
result is rounded in the kernel and in the reference: its bound is the distance to the roundings of
value - bound and value + bound, nothing for most elements. How operations move bounds is in
`node_bounds`, `pointwise_bounds`, `complex_bounds`, `reductions` and `selections`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusec.ir.dtype import DType
from fusec.ir.evaluate import F32_OVERFLOW, Array, convert_operand, round_to, settle
from fusec.ir.graph import Node, Operand, Value

SMALLEST = {"f32": 2.0**-149, "f64": 2.0**-1074}
LARGEST = {"f32": 2.0**128, "f64": float(np.finfo(np.float64).max)}
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


def overflowing(total: Array, magnitude: Array, dtype: DType, *, whole: bool = True) -> Array:
    """Return where sums of some order overflow that are numbers, given sum(x) and sum(|x|).

    At most all terms of one sign meet. `whole` says that the sum itself is the result: it is sure
    where it overflows in any order and meets no infinity of the other sign.
    """
    largest = LARGEST[dtype.compute.part.name]
    if not np.max(magnitude, initial=0.0) >= largest:
        return np.zeros(np.shape(magnitude), np.bool_)
    size = np.abs(total)
    with np.errstate(all="ignore"):
        more, less = (magnitude + size) / 2, (magnitude - size) / 2
    sure = (size >= largest) & (less < largest) if whole else np.False_
    # Infinite terms are so in any order.
    return np.isfinite(total) & (more >= largest) & ~sure


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
    if dtype.kind == "bool" and source.kind != "bool":
        return truth(held)
    if source == dtype or operand.is_scalar or not dtype.is_rounded:
        return Bounded(value, bound, held.doubt)
    return Bounded(value, add_bounds(bound, narrowing(value, source, dtype)), held.doubt)


def truth(held: Bounded) -> Bounded:
    """Return whether a value is other than 0, in doubt where it may be either."""
    value = np.not_equal(held.value, 0)
    if held.bound is None:
        return Bounded(value, None, held.doubt)
    # Neither end of an interval around 0 is 0.
    unsure = meeting(held.value, np.zeros_like(held.value), held.bound)
    return either_way(value, unsure, held.doubt)


def either_way(value: Array, unsure: Array, doubt: Array | None) -> Bounded:
    """Return bools of which those `unsure` may be the other way round, too."""
    if not unsure.any():
        return Bounded(value, None, doubt)
    return Bounded(value, np.asarray(unsure, np.float64), either(unsure, doubt))


def meeting(a: Array, b: Array, slack: Array) -> Array:
    """Return where two values that are off by `slack` together may be equal."""
    return (slack > 0) & ~(distance(a, b) > slack)


def narrowing(value: Array, source: DType, target: DType) -> Array | None:
    """Return the bound of a conversion to f32 or f64 (parts) that may round."""
    if source.is_integer and source.bits > 24 and target.compute.part.name == "f32":
        large = np.abs(value) > 2.0**24
        return np.abs(value) * large * unit(target) / 2 if large.any() else None
    if source.part.name == "f64" and target.compute.part.name == "f32":
        return rounding(value, target, 0.5)
    return None


def settle_bounded(
    node: Node, value: Value, raw: Array, bound: Array | None, doubt: Array | None
) -> Bounded:
    """Return a raw result as it is held, with the bound of its rounding to a half type."""
    held = settle(node, value, raw)
    dtype = value.dtype
    if bound is not None and dtype.name == "f32":
        bound = _at_overflow(raw, bound)
    if bound is None or not dtype.is_half:
        return Bounded(held, bound, doubt)
    with np.errstate(all="ignore"):
        # Only values within reach of a rounding boundary can differ at all.
        reach = bound * HALF_MARGIN
        upper = distance(round_to(raw + reach, dtype), held)
        lower = distance(round_to(raw - reach, dtype), held)
    jump = np.fmax(upper, lower)
    if jump.size and not np.isfinite(np.max(reach + jump)):
        # An infinity less an infinite bound is no number.
        jump = np.where(np.isnan(jump) | np.isinf(reach), np.inf, jump)
    return Bounded(held, jump, doubt)


def _at_overflow(raw: Array, bound: Array) -> Array:
    """Return a bound that is infinite where the kernel or the reference alone may overflow f32."""
    # A float so large is off by more, if at all.
    if not raw.size or np.max(bound) < 2.0**80:
        return bound
    size = np.abs(raw)
    with np.errstate(all="ignore"):
        either_side = (size + bound >= F32_OVERFLOW) & (size - bound < F32_OVERFLOW)
    return np.where(either_side, np.inf, bound)
