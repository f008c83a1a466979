"""Tests for NaN, infinities and signs."""

from __future__ import annotations

from fusec.ops import complex_formulas
from fusec.ops.declare import Array, pointwise
from fusec.ops.dtypes import CLASSIFY
from fusec.ops.lazy import np
from fusec.ops.numerics import exact


@pointwise(
    cuda="fusec::isfinite({x})",
    dtype=CLASSIFY,
    accuracy=0,
    exact=exact.truth,
    parts=complex_formulas.ISFINITE,
)
def isfinite(x: Array) -> Array:
    """Return whether x is neither infinite nor NaN."""
    return np.isfinite(x)


@pointwise(
    cuda="fusec::isinf({x})",
    dtype=CLASSIFY,
    accuracy=0,
    exact=exact.truth,
    parts=complex_formulas.ISINF,
)
def isinf(x: Array) -> Array:
    """Return whether x is infinite."""
    return np.isinf(x)


@pointwise(
    cuda="fusec::isnan({x})",
    dtype=CLASSIFY,
    accuracy=0,
    exact=exact.truth,
    parts=complex_formulas.ISNAN,
)
def isnan(x: Array) -> Array:
    """Return whether x is NaN."""
    return np.isnan(x)


@pointwise(
    cuda="fusec::isneginf({x})",
    dtype=CLASSIFY,
    accuracy=0,
    exact=exact.truth,
)
def isneginf(x: Array) -> Array:
    """Return whether x is minus infinity."""
    return np.isneginf(x)


@pointwise(
    cuda="fusec::isposinf({x})",
    dtype=CLASSIFY,
    accuracy=0,
    exact=exact.truth,
)
def isposinf(x: Array) -> Array:
    """Return whether x is plus infinity."""
    return np.isposinf(x)


@pointwise(
    cuda="fusec::isreal({x})",
    dtype=CLASSIFY,
    accuracy=0,
    exact=exact.truth,
    parts=complex_formulas.ISREAL,
)
def isreal(x: Array) -> Array:
    """Return whether the imaginary part of x is 0: always, for real types."""
    return np.isreal(x)


@pointwise(
    cuda="fusec::signbit({x})",
    dtype=CLASSIFY,
    discontinuous=True,
    accuracy=0,
    exact=exact.truth,
)
def signbit(x: Array) -> Array:
    """Return whether the sign bit is set, also of -0.0; false for NaN, whose sign is undefined."""
    return np.signbit(x) & ~np.isnan(x)
