"""Reference sizes for errors of complex operations, where this is not the result's modulus."""

from __future__ import annotations

from fusec.ops.declare import Array
from fusec.ops.lazy import np


def quotient(raw: Array, a: Array, b: Array, least: float) -> Array:
    """Return the terms of a quotient."""
    # The parts of the dividend are rounded as denormals before the division.
    return np.abs(raw) + least / np.abs(b)


def logarithm(raw: Array, x: Array, least: float) -> Array:
    """Return the terms of a logarithm."""
    return np.abs(raw) + 1


def logistic(raw: Array, x: Array, least: float) -> Array:
    """Return the terms of 1 / (1 + e): near its poles 1 and e cancel, and e / (1 + e) = 1 - raw."""
    return np.abs(raw) * (1 + np.abs(1 - raw)) + least


def power(raw: Array, a: Array, b: Array, least: float) -> Array:
    """Return the terms of a power: the error of b log a is absolute in the exponent."""
    logs = np.where(a == 0, 0, np.log(np.where(a == 0, 1, a)))
    return np.abs(raw) * (1 + np.abs(b) * (1 + np.abs(logs)))


def sum_of_product(raw: Array, a: Array, b: Array, c: Array, alpha: Array, least: float) -> Array:
    """Return the terms of a + alpha * b * c."""
    return np.abs(a) + np.abs(alpha * b * c)
