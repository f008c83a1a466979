"""Trigonometric and hyperbolic functions and their inverses; accuracies as in CUDA's tables."""

from __future__ import annotations

from fusec.ir.op import Cost
from fusec.ir.roles import ComplexError
from fusec.ops import complex_formulas, texts
from fusec.ops.declare import Approximation, Array, pointwise
from fusec.ops.dtypes import FLOAT
from fusec.ops.lazy import np
from fusec.ops.numerics import between
from fusec.ops.pointwise.exponential import builtin


@pointwise(
    cuda=builtin("acos"),
    dtype=FLOAT,
    cost=Cost(22, 1),
    domain=(-0.9, 0.9),
    accuracy=2,
    text=texts.function("acos"),
    complex_error=ComplexError(8),
    parts=complex_formulas.ACOS,
)
def acos(x: Array) -> Array:
    """Return the angle in [0, pi] whose cosine is x."""
    return np.arccos(x)


@pointwise(
    cuda=builtin("acosh"),
    dtype=FLOAT,
    cost=Cost(42, 1),
    domain=(1.1, 10.0),
    accuracy=4,
    text=texts.function("acosh"),
    complex_error=ComplexError(8),
    parts=complex_formulas.ACOSH,
)
def acosh(x: Array) -> Array:
    """Return the inverse hyperbolic cosine."""
    return np.arccosh(x)


@pointwise(
    cuda=builtin("asin"),
    dtype=FLOAT,
    cost=Cost(21, 1),
    domain=(-0.9, 0.9),
    accuracy=2,
    text=texts.function("asin"),
    complex_error=ComplexError(8),
    parts=complex_formulas.ASIN,
)
def asin(x: Array) -> Array:
    """Return the angle in [-pi/2, pi/2] whose sine is x."""
    return np.arcsin(x)


@pointwise(
    cuda=builtin("asinh"),
    dtype=FLOAT,
    cost=Cost(40, 2),
    accuracy=3,
    text=texts.function("asinh"),
    complex_error=ComplexError(8),
    parts=complex_formulas.ASINH,
)
def asinh(x: Array) -> Array:
    """Return the inverse hyperbolic sine."""
    return np.arcsinh(x)


@pointwise(
    cuda=builtin("atan"),
    dtype=FLOAT,
    cost=Cost(17, 1),
    accuracy=2,
    text=texts.function("atan"),
    complex_error=ComplexError(6),
    parts=complex_formulas.ATAN,
)
def atan(x: Array) -> Array:
    """Return the angle in [-pi/2, pi/2] whose tangent is x."""
    return np.arctan(x)


@pointwise(
    cuda=builtin("atanh"),
    dtype=FLOAT,
    cost=Cost(37, 1),
    domain=(-0.9, 0.9),
    accuracy=3,
    text=texts.function("atanh"),
    complex_error=ComplexError(6),
    parts=complex_formulas.ATANH,
)
def atanh(x: Array) -> Array:
    """Return the inverse hyperbolic tangent."""
    return np.arctanh(x)


@pointwise(
    cuda=builtin("cos"),
    dtype=FLOAT,
    cost=Cost(20),
    accuracy=2,
    text=texts.function("cos"),
    between=between.waves,
    complex_error=ComplexError(6),
    parts=complex_formulas.COS,
)
def cos(x: Array) -> Array:
    """Return the cosine."""
    return np.cos(x)


@pointwise(
    cuda=builtin("cosh"),
    dtype=FLOAT,
    cost=Cost(13, 2),
    accuracy=2,
    text=texts.function("cosh"),
    complex_error=ComplexError(6),
    parts=complex_formulas.COSH,
)
def cosh(x: Array) -> Array:
    """Return the hyperbolic cosine."""
    return np.cosh(x)


@pointwise(
    cuda=builtin("sin"),
    dtype=FLOAT,
    cost=Cost(20),
    accuracy=2,
    text=texts.function("sin"),
    between=between.waves,
    complex_error=ComplexError(6),
    parts=complex_formulas.SIN,
)
def sin(x: Array) -> Array:
    """Return the sine."""
    return np.sin(x)


@pointwise(
    cuda=builtin("sinh"),
    dtype=FLOAT,
    cost=Cost(21, 2),
    accuracy=3,
    text=texts.function("sinh"),
    complex_error=ComplexError(6),
    parts=complex_formulas.SINH,
)
def sinh(x: Array) -> Array:
    """Return the hyperbolic sine."""
    return np.sinh(x)


@pointwise(
    cuda=builtin("tan"),
    dtype=FLOAT,
    cost=Cost(24),
    domain=(-1.2, 1.2),
    accuracy=4,
    text=texts.function("tan"),
    between=between.tangent,
    complex_error=ComplexError(17),
    parts=complex_formulas.TAN,
)
def tan(x: Array) -> Array:
    """Return the tangent."""
    return np.tan(x)


def _share_terms(x: Array, result: Array) -> Array:
    """Return what tanh(x)'s error is relative to if 1 + tanh(x) is sigmoid_approx(2 x)."""
    return (1 + result) * (1 + np.abs(np.clip(x, -64, 64)) / 3)


def _tanh_approx_terms(x: Array, result: Array) -> Array:
    """Return what tanh_approx's error is relative to: 1, and near 0 the cube that x omits."""
    cube = np.abs(np.clip(x, -1, 1)) ** 3
    return np.where(np.abs(x) < 0.0099, cube * (2.0**23 / 12) + np.abs(result) / 64, 1.0)


@pointwise(
    cuda=builtin("tanh"),
    dtype=FLOAT,
    cost=Cost(13, 2),
    accuracy=2,
    condition=1,
    approx=Approximation(
        "fusec::tanh_approx({x})", Cost(5, 2), accuracy=4, largest=405, terms=_tanh_approx_terms
    ),
    inside=(4, _share_terms),
    text=texts.function("tanh"),
    complex_error=ComplexError(17),
    parts=complex_formulas.TANH,
)
def tanh(x: Array) -> Array:
    """Return the hyperbolic tangent."""
    return np.tanh(x)
