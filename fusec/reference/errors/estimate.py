"""A value with its expected error, and how operations in general propagate expected errors.

An error is a variance in two parts: one that is independent in every element, and one that elements
have in common (that of a value which was broadcast). The first adds up in quadrature, the second
linearly, except for what is common along other axes only: for example the feature axis of a weight
that was broadcast over it, in a sum over keys. A result may be off by `LIMIT` times the root of
both together. An infinite variance says that nothing is known: the element lies at a pole, or
another one may have been chosen instead.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import ml_dtypes

from fusec.dataclasses import dataclass, field, replace
from fusec.ir.arrays import np
from fusec.ir.dtype import DType
from fusec.ir.evaluate import (
    F32_OVERFLOW,
    Array,
    by_parts,
    convert_operand,
    overflow,
    round_to,
    storage,
)
from fusec.ir.graph import Operand
from fusec.properties import cached_property
from fusec.reference.errors.rivals import Rivals

T = TypeVar("T")

LIMIT = 8.0
"""Standard deviations that a correct result may be off. Sums of many roundings are nearly normal
and reach 8 once in 1e15; other errors have their declared maximum within 8 by `BIAS`."""
BIAS = 1 / LIMIT**2
"""Fraction of the square of an approximation's largest error that counts as common to all elements:
it may have one sign."""
SPREAD = 1 / 3
"""The variance of a uniform distribution on [-1, 1]."""
TINY = {"f32": 2.0**-258, "f64": 2.0**-1000}
"""Variance of values that a kernel may flush to 0: LIMIT times its root is the least normal float.
For doubles, the least value whose square is a double."""
LARGEST = {"f32": 2.0**128, "f64": float(np.finfo(np.float64).max)}
_EXPONENT = np.uint64(0x7FF << 52)
SMALLEST = {"f32": 2.0**-149, "f64": 2.0**-1074}
JUMP_PROBABILITY = 0.71
"""sqrt(P) for the probability P that a normal error crosses a boundary t away is at most
FLIP * exp(-t**2 / 4), since P <= exp(-t**2 / 2) / 2."""
LEAST_JUMP_PROBABILITY = 2 / LIMIT
"""Least fraction of a discontinuity that counts if reachable: it is within half the limit."""


@dataclass(frozen=True)
class Alike:
    """A variance that elements have in common only along some axes, where they were repeated."""

    axes: frozenset[int]
    variance: Array


@dataclass(frozen=True)
class Shared:
    """One error of all elements along axes where `variance` has extent 1, times a signed slope.

    rest: the variance of other errors that elements have in common.
    """

    variance: Array
    slope: Array
    rest: Array | None


@dataclass(frozen=True)
class Estimate:
    """A value with its expected error; None means zeros.

    independent, common: variances. alike: how much of `common` is so along some axes only.
    ancestors: a bit for each node with an inexact result from which this one was computed: errors
    of values without a common ancestor are independent. part: the contribution of one of 64 parts
    of the last reduction, as far as it reaches this value. rounds_to: the 16-bit float type that
    the value, held as computed, is rounded to wherever it is read. most: an upper limit of the
    error if it consists of few roundings, whose largest sum is less than LIMIT standard deviations;
    None if unknown. factor: the variance of one relative error that elements have in common along
    the axes where it has one element, as weights do that are divided by one sum; `common` holds its
    effect on the value. shared: how `common` is made up, if one error is known with its sign in
    every element. rivals: for positions whose variance is infinite, the other positions that may be
    chosen instead. Operations that build a new estimate may drop alike, factor and shared: all is
    `common` then.
    """

    value: Array
    independent: Array | None = None
    common: Array | None = None
    ancestors: int = 0
    part: Array | None = None
    rounds_to: DType | None = field(default=None)
    alike: Alike | None = None
    most: Array | None = None
    factor: Array | None = None
    shared: Shared | None = None
    rivals: Rivals | None = None

    @property
    def exact(self) -> bool:
        """Return whether no element can differ."""
        return self.independent is None and self.common is None

    @property
    def variance(self) -> Array | None:
        """Return the sum of both variances."""
        return add(self.independent, self.common)

    @property
    def sigma(self) -> Array:
        """Return the expected error, in the shape of the value."""
        variance = self.variance
        if variance is None:
            return np.zeros(self.value.shape)
        return np.broadcast_to(np.sqrt(variance), self.value.shape)

    @property
    def squares(self) -> Array:
        """Return |x|**2, computed once for all blocks that are multiplied with a matrix."""

        def compute() -> Array:
            with np.errstate(all="ignore"):
                return squared(self.value)

        return self.once("squares", compute)

    def once(self, name: Hashable, compute: Callable[[], T]) -> T:
        """Return `compute` of this estimate, computed once for all readers."""
        if name not in self._computed:
            self._computed[name] = compute()
        return self._computed[name]

    @cached_property
    def _computed(self) -> dict[Hashable, Any]:
        return {}

    @property
    def reach(self) -> Array:
        """Return how far the value may be off, in its shape."""
        wide = LIMIT * self.sigma
        return wide if self.most is None else np.minimum(wide, self.most)

    @property
    def settled(self) -> Estimate:
        """Return the value as it is read: rounded to its 16-bit float type."""
        return self if self.rounds_to is None else self._rounded

    @cached_property
    def _rounded(self) -> Estimate:
        # Never itself: a reference cycle would hold its arrays until the next garbage collection.
        assert self.rounds_to is not None
        return rounded(self, self.rounds_to)


def add(*variances: Array | None) -> Array | None:
    """Return the sum of variances."""
    present = [v for v in variances if v is not None]
    if not present:
        return None
    total = present[0]
    for variance in present[1:]:
        total = total + variance
    return total


def together(a: Array | None, b: Array | None) -> Array | None:
    """Return the variance of the sum of two errors that may be the same."""
    if a is None or b is None:
        return add(a, b)
    with np.errstate(all="ignore"):
        return a + b + 2 * np.sqrt(a * b)


def unit(dtype: DType) -> float:
    """Return the largest unit in the last place relative to a value, for the type computed in.

    Doubled for f64, since the reference itself rounds in it.
    """
    compute = dtype.compute
    return 2 * compute.epsilon * (2 if compute.part.name == "f64" else 1)


def known(variance: Array | None) -> Array | None:
    """Return a variance with NaN replaced by infinity."""
    if variance is not None and variance.size and np.isnan(np.max(variance)):
        return np.where(np.isnan(variance), np.inf, variance)
    return variance


def without_zeros(variance: Array | None) -> Array | None:
    """Return None for a variance that is 0 everywhere."""
    return None if variance is None or not variance.any() else variance


def without_errors(estimate: Estimate, sure: Array) -> Estimate:
    """Return an estimate that has no errors where it is `sure`."""

    def kept(variance: Array | None) -> Array | None:
        return None if variance is None else np.where(sure, 0.0, variance)

    alike, shared = estimate.alike, estimate.shared
    if shared is not None:
        slope = np.where(sure, 0.0, shared.slope)
        shared = Shared(shared.variance, slope, kept(shared.rest))
    return replace(
        estimate,
        independent=kept(estimate.independent),
        common=kept(estimate.common),
        alike=None if alike is None else Alike(alike.axes, np.where(sure, 0.0, alike.variance)),
        shared=shared,
    )


def with_sure_infinities(estimate: Estimate) -> Estimate:
    """Return an estimate whose infinities are certain, except where the error is unknown.

    A finite error does not change an infinity: a masked score is equal to minus infinity,
    regardless of what was added to it.
    """
    value = estimate.value
    if estimate.exact or value.dtype.kind != "f":
        return estimate
    infinite = np.isinf(value)
    if not infinite.any():
        return estimate
    return without_errors(estimate, infinite & np.isfinite(estimate.sigma))


def spread_alike(estimate: Estimate, shape: tuple[int, ...]) -> Estimate:
    """Return an estimate whose elements are repeated to `shape`: their errors become common.

    This holds along the axes of extent 1; others, too, may be repeated in further blocks.
    """
    own, was = estimate.value.shape, estimate.alike
    variance = add(estimate.independent, None if was is None else was.variance)
    if variance is None or estimate.value.size == int(np.prod(shape, dtype=np.int64)):
        return estimate
    alike = None
    if len(own) == len(shape):
        axes = frozenset(a for a, extent in enumerate(own) if extent == 1)
        alike = Alike(axes if was is None else axes | was.axes, variance)
    return replace(estimate, independent=None, common=estimate.variance, alike=alike)


def is_float(value: Array, dtype: DType) -> Array:
    """Return which values the compute type of `dtype` represents exactly."""
    compute = dtype.compute
    if compute.part.name == "f64":
        # unknown: the reference has rounded, too
        return np.zeros(value.shape, np.bool_)
    with np.errstate(all="ignore"):
        near = value.astype(compute.numpy)
        return near == value


def rounding(
    value: Array, dtype: DType, ulps: float, exact: Array | bool
) -> tuple[Array | None, Array | None]:
    """Return the variances of one operation of `ulps` accuracy, relative to `value`.

    Every operation rounds by at most half a unit; the further error of an approximation may have
    one sign. A correctly rounded operation adds nothing if its operands are `exact` and the result
    is a float, and no operation does where `value` is 0: kernels neither round nor flush what is 0
    in doubles. On an H200 the approximations declared with 1 to 6 units are off by 0.21 to 0.45
    (root mean square) and 0.6 to 2.7 units (largest of a million): decision 040.
    """
    if not ulps or not dtype.is_rounded or not value.any():
        return None, None
    correct, sure = ulps <= 0.5, None
    if correct and exact is not False and (exact is True or exact.any()):
        sure = exact & is_float(value, dtype)
        if sure.all():
            return None, None
    with np.errstate(all="ignore"):
        squares = squared(value)
        squares *= (min(ulps, 0.5) * unit(dtype)) ** 2 * SPREAD
        nonzero, tiny = value != 0, TINY[dtype.compute.part.name]
        squares += tiny if nonzero.all() else nonzero * tiny
        if not np.isfinite(np.max(squares, initial=0.0)):
            squares = np.where(np.isfinite(value), squares, 0.0)
        if not correct:
            return squares, squares * (BIAS / SPREAD * (ulps / 0.5) ** 2)
    return (squares, None) if sure is None else (np.where(sure, 0.0, squares), None)


def squared(x: Array) -> Array:
    """Return |x|**2; infinite on overflow."""
    with np.errstate(over="ignore"):
        if x.dtype.kind == "c":
            return np.square(np.real(x)) + np.square(np.imag(x))
        return np.square(x)


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


def jump_probability(distance: Array, sigma: Array) -> Array:
    """Return the fraction of a discontinuity's height that counts at `distance` from it."""
    with np.errstate(all="ignore"):
        away = distance / sigma
        return np.fmax(JUMP_PROBABILITY * np.exp(-np.square(away) / 4), LEAST_JUMP_PROBABILITY)


def rounded(estimate: Estimate, dtype: DType) -> Estimate:
    """Return an estimate rounded to a 16-bit float: it is exact away from rounding boundaries.

    Within reach of a boundary the result may be the adjacent float, a unit in the last place away.
    """
    raw, held = estimate.value, round_to(estimate.value, dtype)
    own, common, variance = estimate.independent, estimate.common, estimate.variance
    if variance is None:
        return Estimate(held, part=estimate.part)
    with np.errstate(all="ignore"):
        sigma, reach = np.sqrt(variance), estimate.reach
        upper, lower = round_to(raw + reach, dtype), round_to(raw - reach, dtype)
        certain = np.isnan(held) & np.isfinite(reach)
        near = ~((upper == lower) | certain)
        if not near.any():
            return Estimate(held, part=estimate.part)
        height, away = _boundary(raw, held, dtype)
        jump = np.square(height * jump_probability(away, sigma))
        # A flip of one element says nothing about its neighbours.
        independent = np.where(near, jump if own is None else own + jump, 0.0)
        # The largest number of the type is close to infinity.
        independent = np.where(near & ~np.isfinite(upper - lower), np.inf, independent)
        common = None if common is None else without_zeros(np.where(near, common, 0.0))
        most = None if estimate.most is None else known(np.maximum(upper - held, held - lower))
    found = Estimate(held, known(independent), common, estimate.ancestors, estimate.part)
    return found if most is None else replace(found, most=most)


def _boundary(raw: Array, held: Array, dtype: DType) -> tuple[Array, Array]:
    """Return the unit in the last place of 16-bit floats, and the distance to the next boundary."""
    step = ulp(held, dtype)
    outward = np.where(raw >= held, held + step / 2, held - step / 2)
    return step, np.abs(outward - raw)


def ulp(value: Array, dtype: DType) -> Array:
    """Return the unit in the last place of 16-bit floats."""
    power = power_below(np.asarray(value, np.float64))
    step = np.maximum(power, 2.0 ** _least_exponent(dtype)) * (2 * dtype.epsilon)
    return np.where(np.isfinite(step), step, dtype.epsilon)


def power_below(x: Array) -> Array:
    """Return the power of two at or below the size of each double; 0 of subnormal ones."""
    return (x.view(np.uint64) & _EXPONENT).view(np.float64)  # neither sign nor mantissa


def _least_exponent(dtype: DType) -> int:
    """Return the exponent of the smallest normal number of a 16-bit float type."""
    finfo: Any = ml_dtypes.finfo
    return int(finfo(dtype.numpy).minexp)


def converted(operand: Operand, estimate: Estimate, dtype: DType) -> Estimate:
    """Return an operand converted to the type its operation computes in."""
    held = estimate.settled
    value = convert_operand(operand, held.value, dtype)
    source = operand.type.dtype
    if dtype.kind == "bool" and source.kind != "bool":
        return truth(held)
    if source == dtype or operand.is_scalar or not dtype.is_rounded:
        return held if value is held.value else replace(held, value=value)
    own = narrowing(value, source, dtype)
    if own is None and value is held.value:
        return held
    most = held.most if own is None else None
    return replace(held, value=value, independent=add(held.independent, own), most=most)


def narrowing(value: Array, source: DType, target: DType) -> Array | None:
    """Return the variance of a conversion to f32 or f64 (parts) that may round."""
    if target.compute.part.name != "f32":
        return None
    if source.part.name == "f64" or (source.is_integer and source.bits > 24):
        return rounding(value, target, 0.5, exact=True)[0]
    return None


def truth(held: Estimate) -> Estimate:
    """Return whether a value is nonzero; either answer is possible where 0 is within reach."""
    value = np.not_equal(held.value, 0)
    variance = held.variance
    if variance is None:
        return Estimate(value)
    with np.errstate(all="ignore"):
        sigma, off = np.sqrt(variance), np.abs(np.asarray(held.value, np.complex128))
        near = (sigma > 0) & ~(off > LIMIT * sigma)
        chance = np.where(near, np.square(jump_probability(off, sigma)), 0.0)
    return Estimate(value, without_zeros(known(chance)), None, held.ancestors)


def settled(held: Array, raw: Array, dtype: DType, variance: Array | None) -> Array | None:
    """Return a variance, infinite where only one of kernel and reference may overflow f32."""
    if variance is None or dtype.name != "f32" or not raw.size:
        return variance
    # A float so large is off by more, if at all.
    if not np.max(variance) >= 2.0**150:
        return variance
    size, reach = np.abs(raw), LIMIT * np.sqrt(variance)
    with np.errstate(all="ignore"):
        either = (size + reach >= F32_OVERFLOW) & (size - reach < F32_OVERFLOW)
    return np.where(either, np.inf, variance)


def result(
    raw: Array, dtype: DType, independent: Array | None, common: Array | None,
    ancestors: int = 0, part: Array | None = None, rounding: Array | None = None,
) -> Estimate:  # fmt: skip
    """Return the result of a node that rounds; a 16-bit result is rounded where it is read.

    rounding: the variance of a correct rounding of the result, in addition to `independent`. It
    alone carries no number past the largest float: where `raw` overflows is certain.
    """
    independent, common = known(independent), known(common)
    with np.errstate(all="ignore"):
        value = np.asarray(raw).astype(storage(dtype), copy=False)
    if dtype.is_half:
        return Estimate(value, add(independent, rounding), common, ancestors, part, dtype)
    if dtype.name == "f32":
        independent = settled(value, value, dtype, independent)
        value = overflow(value)
    elif dtype.name == "c64":
        value = by_parts(value, overflow)
    return Estimate(value, add(independent, rounding), common, ancestors, part)


def overflowing(total: Array, magnitude: Array, dtype: DType, *, whole: bool = True) -> Array:
    """Return where finite sums overflow in some order, given sum(x) and sum(|x|).

    At worst all terms of one sign are added first. `whole`: the sum itself is the result, which is
    certain if it overflows in any order and meets no infinity of the other sign.
    """
    largest = LARGEST[dtype.compute.part.name]
    if not np.max(magnitude, initial=0.0) >= largest:
        return np.zeros(np.shape(magnitude), np.bool_)
    size = np.abs(total)
    with np.errstate(all="ignore"):
        more, less = (magnitude + size) / 2, (magnitude - size) / 2
    sure = (size >= largest) & (less < largest) if whole else np.False_
    # Infinite terms overflow in any order.
    return np.isfinite(total) & (more >= largest) & ~sure
