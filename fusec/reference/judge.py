"""One block of an output against what is expected of it: what differs, and what it would show.

An element differs beyond its limit (`estimate.LIMIT` times its expected error), both ends rounded
to the type of the output; what has no error agrees to the bit. An element of which nothing is known
is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, round_to
from fusec.reference.estimate import LIMIT, Estimate, ulp

OWN = 2.0
"""Expected errors by which a wrong result may already be off towards the right one."""
KEPT = 8
"""Elements that show a small error: fewer could be chance."""
LEAST_F32 = 2.0**-149
"""The smallest f32: what is less is 0, and stays 0 whatever it is scaled by."""
LOST = 2.0**-520
"""An expected error whose square, the variance, may be lost below the smallest f64."""
SLACK = 1 + 2.0**-40
"""Of the limit: what it comes from, a jump say, is not lost to a rounding of doubles."""
LOOK = 1 << 13
"""Elements of a block that are looked at first for what it shows."""
SHARP = 5e-3
"""A scale error beyond which all elements of a block are looked at."""
NEGLIGIBLE = 2.0**-24
"""Size over that of the largest element below which an element, its limit included, contributes
nothing to an output: less than a rounding of the largest in f32."""


@dataclass(frozen=True)
class Judged:
    """Which elements of one block differ, and how far off they are.

    open: how many elements nothing is known of; ratio: the largest error over the expected one.
    """

    wrong: Array
    errors: Array
    open: int
    ratio: float

    def limit(self, expected: Estimate) -> Array:
        """Return how far elements may be off."""
        return expected.reach


@dataclass(frozen=True)
class Power:
    """What the elements that show most would show: the least relative error of each kind, sorted.

    scale: of the value; size: of what was added up to it; part: of one lost of 64 equal parts of
    the last reduction. beyond: how many of the elements looked at exceed their limit; elements of
    size 0 with a limit that is negligible are not looked at. largest: the largest finite element;
    widest: the largest together with its limit.
    """

    scale: Array
    size: Array
    part: Array
    beyond: int
    looked: int
    largest: float
    widest: float


def joined(powers: Sequence[Power]) -> Power:
    """Return what all blocks of an output would show, but for blocks that are negligible."""
    largest = max((p.largest for p in powers), default=0.0)
    counted = [p for p in powers if p.widest >= NEGLIGIBLE * largest]

    def smallest(kind: str) -> Array:
        return np.sort(np.concatenate([np.empty(0), *(getattr(p, kind) for p in counted)]))[:KEPT]

    return Power(
        smallest("scale"),
        smallest("size"),
        smallest("part"),
        sum(p.beyond for p in counted),
        sum(p.looked for p in counted),
        largest,
        max((p.widest for p in counted), default=0.0),
    )


def judge(found: Array, expected: Estimate, dtype: DType) -> Judged:
    """Compare a block, both sides as the reference holds them."""
    value, variance = expected.value, expected.variance
    if expected.rounds_to is not None:
        return _judge_rounded(found, expected, expected.rounds_to)
    errors = distance(found, value)
    if variance is None:
        wrong = errors > 0
        return Judged(wrong, errors, 0, np.inf if wrong.any() else 0.0)
    with np.errstate(all="ignore"):
        sigma = np.broadcast_to(np.sqrt(variance), found.shape)
        if dtype.kind == "bool":
            # One that may turn may be anything.
            sigma = np.where(sigma > 0, np.inf, 0.0)
        wrong = errors > _limit(expected, sigma) * SLACK + LIMIT * LOST
        ratios = np.where(np.isfinite(errors) & (errors > 0), errors / sigma, 0.0)
    ratio = float(np.max(ratios, initial=0.0))
    return Judged(wrong, errors, _open(sigma), ratio if not np.isnan(ratio) else np.inf)


def _limit(expected: Estimate, sigma: Array) -> Array:
    """Return how far elements may be off, those with an infinite `sigma` anyhow."""
    return LIMIT * sigma if expected.most is None else np.minimum(LIMIT * sigma, expected.most)


def agree(found: Array, given: Array, expected: Estimate, dtype: DType) -> Judged:
    """Compare a block with another one that has errors like its own, and roundings of its own."""
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
    # Few elements are rounded otherwise; only these are looked at.
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


def power(expected: Estimate, dtype: DType) -> Power:
    """Return what the elements of a block would show."""
    first = _power(expected, dtype, LOOK)
    whole = expected.value.size <= LOOK
    blunt = first.scale.size < KEPT or first.scale[-1] > SHARP
    return first if whole or not blunt else _power(expected, dtype, expected.value.size)


def _power(expected: Estimate, dtype: DType, most: int) -> Power:
    shape = expected.value.shape
    step = max(1, -(-expected.value.size // max(most, 1)))

    def few(array: Array | None) -> Array:
        wide = np.zeros(()) if array is None else array
        return np.broadcast_to(wide, shape).reshape(-1)[::step]

    with np.errstate(all="ignore"):
        value = few(expected.value)
        sigma = np.sqrt(few(expected.variance))
        if dtype.kind == "bool":
            sigma = np.where(sigma > 0, np.inf, 0.0)
        limit = LIMIT * sigma if expected.most is None else few(expected.reach)
        own = np.minimum(OWN * sigma, limit)
        if not expected.exact:
            limit, own = limit + LIMIT * LOST, own + OWN * LOST
        shown = own + _next_beyond(value, limit, sigma, expected.rounds_to, dtype)
        size = np.abs(value)
        usable = np.isfinite(size) & np.isfinite(sigma)
        largest = float(np.max(size, where=usable, initial=0.0))
        wide = size + limit
        # What such elements would show is not what the result rests on.
        usable &= wide >= NEGLIGIBLE * largest
        held = usable & (size >= (2.0**-1074 if dtype.part.name == "f64" else LEAST_F32))
        part = few(expected.part)
        return Power(
            _least(shown / size, held),
            _least(shown / (LIMIT * part), usable & (part > 0)),
            _least(shown / part, usable & (part > 0)),
            int(np.count_nonzero(held & (size > LIMIT * sigma))),
            int(np.count_nonzero(usable)),
            largest,
            float(np.max(wide, where=usable, initial=0.0)),
        )


def _next_beyond(
    value: Array, limit: Array, sigma: Array, half: DType | None, dtype: DType
) -> Array:
    """Return how far values must grow to be rounded to a number beyond what is allowed."""
    if half is None:
        epsilon = dtype.part.epsilon if dtype.is_rounded else 0.0
        # Where f32 and f64 results have an error, their rounding is a part of it.
        return limit + np.abs(value) * epsilon * ((sigma == 0) | dtype.is_half)
    size = np.abs(value)
    furthest = np.abs(round_to(size + limit, half))
    # Less than a rounding of f32 no kernel is off.
    return np.maximum(furthest + ulp(furthest, half) / 2 - size, size * half.compute.epsilon)


def _least(ratios: Array, usable: Array) -> Array:
    """Return the smallest few, sorted."""
    taken = ratios[usable & ~np.isnan(ratios)]
    return np.sort(np.partition(taken, KEPT - 1)[:KEPT] if taken.size > KEPT else taken)
