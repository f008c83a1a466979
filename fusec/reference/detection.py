"""Detection limit of an output: the smallest error that its main elements would reveal."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy

from fusec.dataclasses import dataclass, replace
from fusec.ir.arrays import host, np
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, round_to
from fusec.reference.errors.estimate import LIMIT, Estimate, Shared, ulp
from fusec.reference.errors.shared import fit
from fusec.reference.judge import LOST, half_ulp, remaining

LEAST_POWER = 0.02
"""The scale error that must be detectable in an output for its verdict to be conclusive."""
OPEN_SHARE = 0.01
"""Fraction of an output's elements that may have an unknown expected value."""
VISIBLE_SHARE = 0.01
"""Fraction of elements below which an output is judged by its summed terms. It applies to the
elements that exceed their limit, and to those that do not although they are nonzero."""
OWN = 2.0
"""Expected errors that a wrong result may already be off, towards the correct one."""
KEPT = 8
"""Number of elements that must reveal a small error: fewer could be chance."""
LEAST_F32 = 2.0**-149
"""The smallest f32. Anything smaller is 0 and stays 0 under any scale."""
LOOK = 1 << 13
"""Elements of a block that are inspected first to find its detection limit."""
SHARP = 5e-3
"""A scale error above which all elements of a block are inspected."""
ZERO = 2.0**-42
"""An element is 0 if its size is below this times that of a part of the last sum: what remains
comes from double-precision rounding."""
NEGLIGIBLE = 2.0**-24
"""An element contributes nothing to an output if its size, limit included, is below this times that
of the largest element: less than an f32 rounding of the largest."""


@dataclass(frozen=True)
class Power:
    """The least detectable relative errors of each kind, sorted, of the most sensitive elements.

    scale: of the value; size: of what was added up to it; part: of one of 64 equal parts of the
    last reduction, if lost. beyond: how many of the inspected elements exceed their limit; lost:
    how many do not although they are nonzero. Negligible elements are not inspected. largest: the
    largest finite element; widest: the largest together with its limit. given_shared_error: whether
    elements are also judged against the error that they share.
    """

    scale: Array
    size: Array
    part: Array
    beyond: int
    lost: int
    looked: int
    largest: float
    widest: float
    given_shared_error: bool = False

    @property
    def is_blunt(self) -> bool:
        """Return whether few elements detect a small scale error."""
        return self.scale.size < KEPT or bool(self.scale[-1] > SHARP)

    def scale_error(self, *, rounded: bool) -> float:
        """Return the least relative error of an output that enough of its elements detect.

        An output without errors, or one that is not `rounded`, detects any error.
        """
        share = VISIBLE_SHARE * self.looked
        cancels = self.looked and self.beyond < share and self.lost < share
        shown = self.size if cancels and self.size.size else self.scale
        if shown.size:
            return self._of_enough(shown)
        return inf if self.looked and rounded and self.size.size else 0.0

    def lost_part(self) -> float | None:
        """Return the least fraction of a lost part of the last reduction that is detected."""
        return self._of_enough(self.part) if self.part.size else None

    def _of_enough(self, shown: Array) -> float:
        return float(shown[-1] if self.looked >= 1000 else shown[0])


def joined(powers: Sequence[Power]) -> Power:
    """Return the detection limits of all blocks of an output, ignoring negligible blocks."""
    largest = max((p.largest for p in powers), default=0.0)
    counted = [p for p in powers if p.widest >= NEGLIGIBLE * largest]

    def smallest(kind: str) -> Array:
        return numpy.sort(
            numpy.concatenate([numpy.empty(0), *(getattr(p, kind) for p in counted)])
        )[:KEPT]

    return Power(
        smallest("scale"),
        smallest("size"),
        smallest("part"),
        sum(p.beyond for p in counted),
        sum(p.lost for p in counted),
        sum(p.looked for p in counted),
        largest,
        max((p.widest for p in counted), default=0.0),
    )


def power(expected: Estimate, dtype: DType) -> Power:
    """Return the detection limits of the elements of a block.

    If the elements share an error, and are not sensitive enough on their own, they are also judged
    against that error.
    """
    alone = replace(expected, shared=None)
    first = _power(alone, dtype, LOOK)
    if expected.value.size > LOOK and first.is_blunt:
        first = _power(alone, dtype, expected.value.size)
    judged_beside = expected.shared is not None and first.is_blunt
    return _power(expected, dtype, expected.value.size) if judged_beside else first


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
        held = value if expected.rounds_to is None else round_to(value, expected.rounds_to)
        usable = np.isfinite(size) & np.isfinite(sigma) & np.isfinite(held)
        largest = float(np.max(size, where=usable, initial=0.0))
        wide = size + limit
        # Negligible elements do not count towards the detection limit.
        usable &= wide >= NEGLIGIBLE * largest
        counted = usable & (size >= (2.0**-1074 if dtype.part.name == "f64" else LEAST_F32))
        part = few(expected.part)
        beyond = counted & (size > LIMIT * sigma)
        scale = shown / size
        if expected.shared is not None:
            fitted, is_beyond = (few(a) for a in _open_to_shared_error(expected, expected.shared))
            scale, beyond = np.fmin(scale, fitted), beyond | (counted & is_beyond)
        zero = size <= part * ZERO
        return Power(
            _least(scale, counted),
            _least(shown / (LIMIT * part), usable & (part > 0)),
            _least(shown / part, usable & (part > 0)),
            int(np.count_nonzero(beyond)),
            int(np.count_nonzero(usable & ~beyond & ~zero)),
            int(np.count_nonzero(usable)),
            largest,
            float(np.max(wide, where=usable, initial=0.0)),
            expected.shared is not None,
        )


def _open_to_shared_error(expected: Estimate, shared: Shared) -> tuple[Array, Array]:
    """Return the detectable scale errors of elements, given the best-fitting shared error.

    Also return which elements are not dominated by their other errors.
    """
    sigma = remaining(expected, shared)
    half = half_ulp(expected.value, expected.rounds_to)
    # A scale error is detected in the component of the values that no shared error can produce.
    free = Shared(np.full_like(shared.variance, np.inf), shared.slope, shared.rest)
    left, limits = fit(free, expected.value, LIMIT * (sigma + LOST) + half)
    size = np.abs(left)
    return (limits + OWN * sigma + half) / size, size > limits


def _next_beyond(
    value: Array, limit: Array, sigma: Array, half: DType | None, dtype: DType
) -> Array:
    """Return how far values must grow to be rounded to a number outside their limits."""
    if half is None:
        epsilon = dtype.part.epsilon if dtype.is_rounded else 0.0
        # For f32 and f64 results with an error, their rounding is part of it.
        return limit + np.abs(value) * epsilon * ((sigma == 0) | dtype.is_half)
    size = np.abs(value)
    furthest = np.abs(round_to(size + limit, half))
    # No kernel is off by less than an f32 rounding.
    return np.maximum(furthest + ulp(furthest, half) / 2 - size, size * half.compute.epsilon)


def _least(ratios: Array, usable: Array) -> Array:
    """Return the smallest few, sorted, on the host."""
    taken = ratios[usable & ~np.isnan(ratios)]
    return host(np.sort(np.partition(taken, KEPT - 1)[:KEPT] if taken.size > KEPT else taken))
