"""Error functions in double precision on whole arrays, which NumPy lacks.

erf and erfc are Taylor series around a grid of points whose values are from Python's math module.
The derivatives follow from f'' = -2 x f', the equation that both functions satisfy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from fusec.ir.arrays import computed_by, on_host
from fusec.ops.lazy import np

_STEPS = 64
"""Grid points per unit."""
_TERMS = 12
_ERF_END = 6.0
"""erf(6) rounds to 1."""
_ERFC_END = 27.5
"""erfc(27.5) rounds to 0, below the smallest subnormal."""


@cache
def _table(function: Callable[[float], float], end: float) -> Any:
    """Return Taylor coefficients by term and grid point, on the host."""
    with computed_by(None):
        return _computed_table(function, end)


def _computed_table(function: Callable[[float], float], end: float) -> Any:
    points = np.arange(0, end + 1 / _STEPS, 1 / _STEPS)
    sign = 1.0 if function is math.erf else -1.0
    terms = np.zeros((_TERMS, len(points)))
    terms[0] = [function(float(p)) for p in points]
    terms[1] = sign * 2 / math.sqrt(math.pi) * np.exp(-points * points)
    for n in range(2, _TERMS):
        # From f'' = -2 x f': n (n - 1) c[n] = -2 (x0 (n - 1) c[n-1] + (n - 2) c[n-2]).
        terms[n] = -2 * (points * (n - 1) * terms[n - 1] + (n - 2) * terms[n - 2]) / (n * (n - 1))
    return terms


def _series(function: Callable[[float], float], end: float, x: Any) -> Any:
    terms = np.asarray(_table(function, end))
    inside = np.clip(np.nan_to_num(x), 0, end)
    nearest = np.rint(inside * _STEPS).astype(np.int64)
    delta = inside - nearest / _STEPS
    total = np.zeros_like(inside)
    for row in terms[::-1]:
        total = total * delta + row[nearest]
    return total


def erf(x: Any) -> Any:
    """Return the error function."""
    array = np.asarray(x, np.float64)
    value = np.copysign(_series(math.erf, _ERF_END, np.abs(array)), array)
    return np.where(np.isnan(array), np.nan, value)


def erfc(x: Any) -> Any:
    """Return the complement of the error function."""
    array = np.asarray(x, np.float64)
    tail = _series(math.erfc, _ERFC_END, np.abs(array))
    tail = np.where(np.abs(array) > _ERFC_END, 0.0, tail)
    return np.where(np.isnan(array), np.nan, np.where(array < 0, 2 - tail, tail))


def erfinv(x: Any) -> Any:
    """Return y with erf(y) = x; infinite at -1 and 1, NaN outside."""
    array = np.asarray(x, np.float64)
    size = np.abs(array)
    value = np.copysign(_inverse(size, 1 - size), array)
    return np.where(size == 1, np.copysign(np.inf, array), np.where(size <= 1, value, np.nan))


def erfcinv(x: Any) -> Any:
    """Return y with erfc(y) = x; infinite at 0 and 2, NaN outside."""
    array = np.asarray(x, np.float64)
    small = np.minimum(array, 2 - array)
    value = np.copysign(_inverse(1 - small, small), 1 - array)
    inside = np.where((array > 0) & (array < 2), value, np.nan)
    return np.where(array == 0, np.inf, np.where(array == 2, -np.inf, inside))


def _inverse(size: Any, rest: Any) -> Any:
    """Return y >= 0 with erf(y) = size and erfc(y) = rest, by Halley's method."""
    rest = np.where(rest > 0, rest, np.nan)
    logarithm = np.log(rest * (2 - rest))
    middle = 2 / (math.pi * 0.147) + logarithm / 2
    y = np.sqrt(np.sqrt(middle * middle - logarithm / 0.147) - middle)
    for _ in range(4):
        # The smaller of erf and erfc keeps the difference exact.
        error = np.where(size < 0.5, erf(y) - size, rest - erfc(y))
        slope = 2 / math.sqrt(math.pi) * np.exp(-y * y)
        step = error / slope
        y = y - step / (1 + y * step)
    return y


def lgamma(x: Any) -> Any:
    """Return log |gamma(x)|; infinite at 0, the negative whole numbers and the infinities."""
    array = np.asarray(x, np.float64)
    result = on_host("lgamma", _lgamma_of_all, array)
    near = (array >= 0.5) & (array <= 2.5)
    if near.any():
        result[near] = _lgamma_near_zeros(array[near])
    return result


def _lgamma_of_all(x: Any) -> Any:
    flat = [_lgamma(value) for value in x.ravel().tolist()]
    return np.asarray(flat, np.float64).reshape(x.shape)


def _lgamma_near_zeros(x: Any) -> Any:
    """Return lgamma between 0.5 and 2.5, with small relative errors around its zeros 1 and 2.

    Its Taylor series at 2 is z * (1 - Euler's constant) + sum of (-1)^k (zeta(k) - 1) z^k / k.
    """
    first = x < 1.5
    z = np.where(first, x - 1, x - 2)
    total = np.zeros_like(z)
    for coefficient in reversed(_zeta_tails()):
        total = (total + coefficient) * z
    return np.where(first, total - np.log1p(z), total)


@cache
def _zeta_tails() -> tuple[float, ...]:
    """Return the coefficients of the series; zeta by its first terms and Euler-Maclaurin."""
    n, tails = 200.0, [1 - 0.57721566490153286061]
    for k in range(2, 36):
        rest = n ** (1 - k) / (k - 1) + n**-k / 2 + k * n ** (-k - 1) / 12
        rest -= k * (k + 1) * (k + 2) * n ** (-k - 3) / 720
        tail = math.fsum([*(float(m) ** -k for m in range(2, int(n))), rest])
        tails.append((-1) ** k * tail / k)
    return tuple(tails)


def _lgamma(value: float) -> float:
    try:
        return math.lgamma(value)
    except (ValueError, OverflowError):
        return math.inf
