"""Discontinuities and poles within an operand's bound, which results at its ends do not reveal.

Results at the ends of more than a quarter of a wave's period say little; a discontinuity or a pole
counts if the bound reaches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, pi
from typing import Any

from fusec.ops.declare import Array
from fusec.ops.lazy import np

Found = tuple[Array | None, Any]


def waves(values: Sequence[Array], bound: Array, index: int) -> Found:
    """Return where a wave has an extremum between an end and the value, and its largest change.

    sin(x + d) - sin(x) is 2 sin(d / 2) cos(x + d / 2).
    """
    return bound >= pi / 2, 2 * np.sin(np.minimum(bound, pi) / 2)


def tangent(values: Sequence[Array], bound: Array, index: int) -> Found:
    """Return where a tangent may have a pole."""
    return _meets(values[0] / pi - 0.5, bound / pi), inf


def fraction(values: Sequence[Array], bound: Array, index: int) -> Found:
    """Return where a fraction is discontinuous."""
    return _meets(values[0], bound, but_zero=True), 2.0


def pole_at_zero(values: Sequence[Array], bound: Array, index: int) -> Found:
    """Return where the last operand, a divisor, may be 0."""
    if index != len(values) - 1:
        return None, 0.0
    return (np.abs(values[index]) <= bound) & (bound > 0), inf


def poles_below_zero(values: Sequence[Array], bound: Array, index: int) -> Found:
    """Return where a function with poles at 0, -1, -2, ... may have one."""
    value = values[index]
    return _meets(value, bound) & (value - bound <= 0), inf


def _remainder(values: Sequence[Array], bound: Array, index: int, but_zero: bool) -> Found:
    divisor = np.abs(values[1])
    turns = bound / divisor
    if index == 1:
        turns = turns * np.abs(values[0]) / divisor
    return _meets(values[0] / divisor, turns, but_zero=but_zero), 2 * divisor


def remainder(values: Sequence[Array], bound: Array, index: int) -> Found:
    """Return where a remainder is discontinuous."""
    return _remainder(values, bound, index, but_zero=False)


def signed_remainder(values: Sequence[Array], bound: Array, index: int) -> Found:
    """Return where a remainder with the dividend's sign is discontinuous, as the fraction is."""
    return _remainder(values, bound, index, but_zero=True)


def _meets(value: Array, bound: Array, *, but_zero: bool = False) -> Array:
    """Return where an inexact value may be a whole number; 0 may be excluded."""
    near = np.round(value)
    met = (np.abs(value - near) <= bound) & (bound > 0)
    return met & ((near != 0) | (2 * bound >= 1)) if but_zero else met
