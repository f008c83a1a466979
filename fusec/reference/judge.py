"""Comparison of one block of an output with its expected values.

An element differs if it is off by more than its limit (`estimate.LIMIT` times its expected error),
with both ends rounded to the type of the output; an element without an error must agree to the bit.
An element with an unknown expected value is open. Elements that share one error also differ if they
are further off than their own errors once the shared one is fitted to them.
"""

from __future__ import annotations

from fusec.dataclasses import dataclass, replace
from fusec.ir.arrays import host, np
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, round_to
from fusec.reference.errors.estimate import LIMIT, Estimate, Shared, add, ulp
from fusec.reference.errors.rivals import Rivals
from fusec.reference.errors.shared import fit

LOST = 2.0**-520
"""An expected error whose square, the variance, may be lost below the smallest f64."""
SLACK = 1 + 2.0**-40
"""Margin on the limit: errors as large as a discontinuity must not be lost to double rounding."""


@dataclass(frozen=True)
class Judged:
    """Which elements of one block differ, and how far off they are.

    open: number of elements with an unknown expected value; ratio: the largest error over the
    expected one.
    """

    wrong: Array
    errors: Array
    open: int
    ratio: float

    def on_the_host(self) -> Judged:
        """Return the same with arrays on the host."""
        return replace(self, wrong=host(self.wrong), errors=host(self.errors))

    def limit(self, expected: Estimate) -> Array:
        """Return how far elements may be off; positions are either correct or wrong."""
        return np.zeros(()) if expected.rivals is not None else expected.reach


def remaining(expected: Estimate, shared: Shared) -> Array:
    """Return the expected error of an output without the shared one."""
    variance = add(expected.independent, shared.rest)
    return np.broadcast_to(np.sqrt(0.0 if variance is None else variance), expected.value.shape)


def half_ulp(value: Array, half: DType | None) -> Array:
    """Return the largest rounding error of 16-bit floats; 0 for other types, covered by sigma."""
    return np.zeros(()) if half is None else ulp(value, half) / 2


def judge_with_shared_error(found: Array, expected: Estimate, shared: Shared) -> Array:
    """Return which elements are off by more than their own errors and the shared one."""
    size = np.maximum(np.abs(found), np.abs(expected.value))
    tolerance = LIMIT * (remaining(expected, shared) + LOST)
    tolerance = tolerance + half_ulp(size, expected.rounds_to)
    with np.errstate(invalid="ignore"):
        off = found - expected.value
    left, limits = fit(shared, off, tolerance)
    return np.abs(left) > limits * SLACK


def judge(found: Array, expected: Estimate, dtype: DType) -> Judged:
    """Compare a block, both sides as the reference holds them."""
    value, variance = expected.value, expected.variance
    if expected.rounds_to is not None:
        return _judge_rounded(found, expected, expected.rounds_to)
    if expected.rivals is not None and variance is not None:
        return _judge_positions(found, expected, expected.rivals, variance)
    errors = distance(found, value)
    if variance is None:
        wrong = errors > 0
        return Judged(wrong, errors, 0, np.inf if wrong.any() else 0.0)
    with np.errstate(all="ignore"):
        sigma = np.broadcast_to(np.sqrt(variance), found.shape)
        if dtype.kind == "bool":
            # An element that may flip may have either value.
            sigma = np.where(sigma > 0, np.inf, 0.0)
        wrong = errors > _limit(expected, sigma) * SLACK + LIMIT * LOST
        ratios = np.where(np.isfinite(errors) & (errors > 0), errors / sigma, 0.0)
    ratio = float(np.max(ratios, initial=0.0))
    return Judged(wrong, errors, _open(sigma), ratio if not np.isnan(ratio) else np.inf)


def _judge_positions(
    found: Array, expected: Estimate, rivals: Rivals, variance: Array
) -> Judged:  # fmt: skip
    """Compare positions: where errors decide, each may be that of one of its rivals."""
    lost = np.broadcast_to(np.isinf(variance), found.shape)
    right, is_open = rivals.judged(found)
    errors = np.where(lost & right, 0.0, distance(found, expected.value))
    wrong = errors > 0
    count = int(np.count_nonzero(lost & is_open))
    return Judged(wrong, errors, count, np.inf if wrong.any() else 0.0)


def _limit(expected: Estimate, sigma: Array) -> Array:
    """Return how far elements may be off, infinitely if `sigma` is infinite."""
    return LIMIT * sigma if expected.most is None else np.minimum(LIMIT * sigma, expected.most)


def agree(found: Array, given: Array, expected: Estimate, dtype: DType) -> Judged:
    """Compare a block with another result that has the same errors and its own roundings."""
    errors, variance = distance(found, given), expected.variance
    with np.errstate(all="ignore"):
        limit = np.zeros(()) if variance is None else LIMIT * (np.sqrt(2 * variance) + LOST)
        if expected.rounds_to is not None:
            limit = limit + ulp(np.maximum(np.abs(found), np.abs(given)), expected.rounds_to)
        limit = np.broadcast_to(limit, found.shape)
        wrong = errors > limit
        ratios = np.where(np.isfinite(errors) & (errors > 0), errors / limit * LIMIT, 0.0)
    ratio = float(np.max(ratios, initial=0.0))
    return Judged(wrong, errors, _open(limit), np.inf if np.isnan(ratio) else ratio)


def _open(sigma: Array) -> int:
    if sigma.size and np.isinf(np.max(sigma)):
        return int(np.count_nonzero(np.isinf(sigma)))
    return 0


def _judge_rounded(found: Array, expected: Estimate, dtype: DType) -> Judged:
    raw, variance = expected.value, expected.variance
    held = round_to(raw, dtype)
    errors = distance(found, held)
    if variance is None:
        wrong = errors > 0
        return Judged(wrong, errors, 0, np.inf if wrong.any() else 0.0)
    sigma = np.broadcast_to(np.sqrt(variance), found.shape)
    off = errors > 0
    if not off.any():
        return Judged(off, errors, _open(sigma), 0.0)
    # Few elements are rounded differently; only these are inspected.
    value, reach = raw[off], expected.reach[off]
    with np.errstate(all="ignore"):
        low, high = round_to(value - reach, dtype), round_to(value + reach, dtype)
        here = found[off]
        inside = ((here >= low) & (here <= high)) | np.isinf(reach)
        excess = np.maximum(np.abs(here - value) - ulp(here, dtype) / 2, 0.0)
        ratios = np.where(excess > 0, excess / sigma[off], 0.0)
    wrong = np.zeros(found.shape, np.bool_)
    wrong[off] = ~inside
    ratio = float(np.max(ratios[np.isfinite(ratios)], initial=0.0))
    return Judged(wrong, errors, _open(sigma), np.inf if np.isnan(ratio) else ratio)


def distance(found: Array, value: Array) -> Array:
    """Return |found - value|; 0 for equal infinities and NaNs, infinite where only one is NaN."""
    if found.dtype.kind == "b":
        return (found != value).astype(np.float64)
    if found.dtype.kind in "iu" and value.dtype.kind in "iu":
        return np.where(found == value, 0.0, np.abs(found.astype(np.float64) - value) + 0.5)
    with np.errstate(all="ignore"):
        errors = np.asarray(np.abs(found - value), dtype=np.float64)
    if errors.size and np.isnan(np.max(errors)):
        same = (found == value) | (np.isnan(found) & np.isnan(value))
        errors = np.where(same, 0.0, np.where(np.isnan(errors), np.inf, errors))
    return errors
