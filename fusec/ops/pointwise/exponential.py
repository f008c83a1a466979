"""Exponentials, logarithms, roots and activations built on them."""

from __future__ import annotations

import math

from fusec.ir.op import Cost
from fusec.ir.roles import ComplexError
from fusec.ops import complex_formulas, texts
from fusec.ops.declare import Approximation, Array, pointwise
from fusec.ops.dtypes import FLOAT
from fusec.ops.lazy import np
from fusec.ops.numerics import complex_terms

_STEEPEST = 89.0
"""The largest exponent whose exp is a float; exp multiplies relative errors by it at most."""


def builtin(name: str) -> dict[str, str]:
    """Return the expressions of a function that CUDA names `name` and, for float, `namef`.

    `::` for double, since values may be called `cos`, for example.
    """
    return {"f32": f"{name}f({{x}})", "f64": f"::{name}({{x}})"}


def _exp_terms(x: Array, result: Array) -> Array:
    """Return the size that exp_approx's error is relative to: the exponent x log2(e) is rounded."""
    return np.abs(result) * (1 + np.abs(np.clip(x, -128, 128)) / 4)


@pointwise(
    cuda=builtin("exp"),
    dtype=FLOAT,
    cost=Cost(7, 1),
    accuracy=2,
    condition=_STEEPEST,
    approx=Approximation(
        "fusec::exp_approx({x})", Cost(1, 1), accuracy=2.6, largest=64, terms=_exp_terms
    ),
    text=texts.function("exp"),
    complex_error=ComplexError(5),
    parts=complex_formulas.EXP,
)
def exp(x: Array) -> Array:
    """Return e to the power x."""
    return np.exp(x)


@pointwise(
    cuda=builtin("exp2"),
    dtype=FLOAT,
    cost=Cost(3, 1),
    accuracy=2,
    condition=_STEEPEST,
    approx=Approximation("fusec::exp2_approx({x})", Cost(0, 1), accuracy=2, largest=2),
    text=texts.function("exp2"),
)
def exp2(x: Array) -> Array:
    """Return 2 to the power x."""
    return np.exp2(x)


@pointwise(cuda=builtin("expm1"), dtype=FLOAT, cost=Cost(27, 1), text=texts.function("expm1"))
def expm1(x: Array) -> Array:
    """Return e to the power x, minus 1, accurate near 0."""
    return np.expm1(x)


@pointwise(
    cuda=builtin("log"),
    dtype=FLOAT,
    cost=Cost(25),
    domain=(0.01, 100.0),
    text=texts.function("log"),
    complex_error=ComplexError(4, complex_terms.logarithm),
    parts=complex_formulas.LOG,
)
def log(x: Array) -> Array:
    """Return the natural logarithm."""
    return np.log(x)


@pointwise(
    cuda=builtin("log10"),
    dtype=FLOAT,
    cost=Cost(26),
    domain=(0.01, 100.0),
    accuracy=2,
    text=texts.function("log10"),
    complex_error=ComplexError(7, complex_terms.logarithm),
    parts=complex_formulas.LOG10,
)
def log10(x: Array) -> Array:
    """Return the logarithm to base 10."""
    return np.log10(x)


@pointwise(
    cuda=builtin("log1p"),
    dtype=FLOAT,
    cost=Cost(29),
    domain=(-0.9, 10.0),
    text=texts.function("log1p"),
)
def log1p(x: Array) -> Array:
    """Return log(1 + x), accurate near 0."""
    return np.log1p(x)


@pointwise(
    cuda=builtin("log2"),
    dtype=FLOAT,
    cost=Cost(27),
    domain=(0.01, 100.0),
    text=texts.function("log2"),
    complex_error=ComplexError(7, complex_terms.logarithm),
    parts=complex_formulas.LOG2,
)
def log2(x: Array) -> Array:
    """Return the logarithm to base 2."""
    return np.log2(x)


@pointwise(
    cuda=builtin("sqrt"),
    dtype=FLOAT,
    cost=Cost(13, 1),
    domain=(1e-3, 1e3),
    accuracy=0.5,
    condition=1,
    text=texts.function("sqrt"),
    complex_error=ComplexError(5),
    quick=math.sqrt,
    parts=complex_formulas.SQRT,
)
def sqrt(x: Array) -> Array:
    """Return the square root."""
    return np.sqrt(x)


@pointwise(
    cuda=builtin("rsqrt"),
    dtype=FLOAT,
    cost=Cost(3, 1),
    domain=(1e-3, 1e3),
    accuracy=2,
    condition=1,
    text=texts.function("rsqrt"),
    complex_error=ComplexError(16),
    parts=complex_formulas.RSQRT,
)
def rsqrt(x: Array) -> Array:
    """Return the reciprocal square root, 1 / sqrt(x)."""
    return 1 / np.sqrt(x)


def _sigmoid_terms(x: Array, result: Array) -> Array:
    """Return the size that sigmoid_approx's error is relative to, including a large exp(-x)'s."""
    return result * (1 + (1 - result) * np.abs(np.clip(x, -128, 128)) / 6)


@pointwise(
    cuda="fusec::sigmoid({x})",
    dtype=FLOAT,
    cost=Cost(21, 2),
    accuracy=4,
    condition=_STEEPEST,
    approx=Approximation(
        "fusec::sigmoid_approx({x})", Cost(2, 2), accuracy=4, largest=64, terms=_sigmoid_terms
    ),
    complex_error=ComplexError(8, complex_terms.logistic),
    parts=complex_formulas.SIGMOID,
)
def sigmoid(x: Array) -> Array:
    """Return the logistic function, 1 / (1 + exp(-x))."""
    if np.iscomplexobj(x):  # where exp(-x) overflows, it has no angle
        left = x.real < -complex_formulas.STEEP
        e = np.exp(np.where(left, x, -x))
        share = np.where(left, e, 1) / (1 + e)
        return np.where(left & ~np.isfinite(x.imag), np.nan * (1 + 1j), share)
    return 1 / (1 + np.exp(-x))


def _silu_terms(x: Array, result: Array) -> Array:
    """Return the size that silu's error is relative to: below -88 its sigmoid is 0, not 2**-128."""
    return np.abs(result) + np.abs(x) * 2.0**-105


def _silu_approx_terms(x: Array, result: Array) -> Array:
    """Return the size that silu_approx's error is relative to: its sigmoid's terms times x."""
    share = 1 / (1 + np.exp(-x))
    return np.abs(x) * (_sigmoid_terms(x, share) + 2.0**-105)


@pointwise(
    cuda="fusec::silu({x})",
    dtype=FLOAT,
    cost=Cost(22, 2),
    accuracy=5,
    terms=_silu_terms,
    condition=_STEEPEST + 1,
    approx=Approximation(
        "fusec::silu_approx({x})", Cost(3, 2), accuracy=5, largest=80, terms=_silu_approx_terms
    ),
)
def silu(x: Array) -> Array:
    """Return x * sigmoid(x)."""
    return x * (1 / (1 + np.exp(-x)))
