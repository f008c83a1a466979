"""Activations and other elementwise functions by PyTorch's names, composed of other operations."""

from __future__ import annotations

import math

from fusec.ops.composite.formulas import Term, float_formula, formula
from fusec.ops.declare import Array, Axis
from fusec.ops.dtypes import common_type
from fusec.ops.lazy import np


@formula(lambda x: x * x)
def square(x: Array) -> Array:
    """Return x * x."""
    return np.square(x)


def _softplus(x: Term, beta: Term, threshold: Term) -> Term:
    scaled = x * beta
    # exp of a large number overflows; log1p of it is the number itself.
    smooth = (-scaled.abs()).exp().log1p() + scaled.maximum(0)
    return (scaled > threshold).where(x, smooth / beta)


@float_formula(_softplus)
def softplus(x: Array, beta: Array = 1.0, threshold: Array = 20.0) -> Array:
    """Return log(1 + exp(beta * x)) / beta; x where beta * x is above the threshold."""
    return np.where(
        np.multiply(x, beta) > threshold, x, np.logaddexp(0, np.multiply(x, beta)) / beta
    )


@formula(lambda x, slope: (x > 0).where(x, x * slope))
def leaky_relu(x: Array, negative_slope: Array = 0.01) -> Array:
    """Return x where it is above 0, else `negative_slope` times x."""
    return np.where(np.greater(x, 0), x, np.multiply(x, negative_slope))


def _elu(x: Term, alpha: Term) -> Term:
    return (x > 0).where(x, x.minimum(0).expm1() * alpha)


@float_formula(_elu)
def elu(x: Array, alpha: Array = 1.0) -> Array:
    """Return x where it is above 0, else alpha * (exp(x) - 1)."""
    return np.where(np.greater(x, 0), x, alpha * np.expm1(x))


@float_formula(lambda x, alpha: (x > 0).where(x, (x / alpha).minimum(0).expm1() * alpha))
def celu(x: Array, alpha: Array = 1.0) -> Array:
    """Return x where it is above 0, else alpha * (exp(x / alpha) - 1)."""
    return np.where(np.greater(x, 0), x, alpha * np.expm1(np.divide(x, alpha)))


_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


@float_formula(lambda x: (x > 0).where(x, x.minimum(0).expm1() * _SELU_ALPHA) * _SELU_SCALE)
def selu(x: Array) -> Array:
    """Return 1.0507 times x where it is above 0, else 1.0507 * 1.6733 * (exp(x) - 1)."""
    return _SELU_SCALE * np.where(np.greater(x, 0), x, _SELU_ALPHA * np.expm1(x))


@float_formula(lambda x: x * x.softplus().tanh())
def mish(x: Array) -> Array:
    """Return x * tanh(softplus(x))."""
    return x * np.tanh(np.logaddexp(0, x))


@float_formula(lambda x: x / (x.abs() + 1))
def softsign(x: Array) -> Array:
    """Return x / (1 + |x|)."""
    return x / (1 + np.abs(x))


@float_formula(lambda x: x - x.tanh())
def tanhshrink(x: Array) -> Array:
    """Return x - tanh(x)."""
    return x - np.tanh(x)


@float_formula(lambda x: x.minimum(0) - (-x.abs()).exp().log1p())
def logsigmoid(x: Array) -> Array:
    """Return log(sigmoid(x)), accurate for large negative x."""
    return -np.logaddexp(0, np.negative(x))


@formula(lambda x: x.clamp(0, 6))
def relu6(x: Array) -> Array:
    """Clamp x to [0, 6]."""
    return np.clip(x, 0, 6)


@formula(lambda x, low, high: x.clamp(low, high))
def hardtanh(x: Array, min_val: Array = -1.0, max_val: Array = 1.0) -> Array:
    """Clamp x to two bounds."""
    return np.clip(x, min_val, max_val)


@float_formula(lambda x: (x + 3).clamp(0, 6) / 6)
def hardsigmoid(x: Array) -> Array:
    """Return x / 6 + 1 / 2, clamped to [0, 1]."""
    return np.clip(np.add(x, 3), 0, 6) / 6


@float_formula(lambda x: x * (x + 3).clamp(0, 6) / 6)
def hardswish(x: Array) -> Array:
    """Return x * hardsigmoid(x)."""
    return x * np.clip(np.add(x, 3), 0, 6) / 6


@formula(lambda x, bound: (x.abs() <= bound).where(0, x))
def hardshrink(x: Array, lambd: Array = 0.5) -> Array:
    """Return x, and 0 where |x| <= `lambd`."""
    return np.where(np.abs(x) <= lambd, 0, x)


@float_formula(lambda x, bound: (x > bound).where(x - bound, (x < -bound).where(x + bound, 0)))
def softshrink(x: Array, lambd: Array = 0.5) -> Array:
    """Return x shrunk towards 0 by `lambd`, and 0 where |x| <= `lambd`."""
    return np.sign(x) * np.maximum(np.abs(x) - lambd, 0)


def _glu(x: Term, dim: int) -> Term:
    value, gate = x.builder.call("chunk", [x.operand], {"chunks": 2, "dim": dim})
    return Term(x.builder, value) * Term(x.builder, gate).sigmoid()


@float_formula(_glu)
def glu(x: Array, dim: Axis = -1) -> Array:
    """Return the first half of x along `dim` times the sigmoid of the second."""
    value, gate = np.split(x, 2, axis=dim)
    return value / (1 + np.exp(-gate))


@float_formula(lambda a, b: a.maximum(b) + (-_distance(a, b)).exp().log1p())
def logaddexp(a: Array, b: Array) -> Array:
    """Return log(exp(a) + exp(b)) without overflow."""
    return np.logaddexp(a, b)


def _distance(a: Term, b: Term) -> Term:
    """Return |a - b|, 0 of equal infinities."""
    return a.eq(b).where(0, (a - b).abs())


@float_formula(lambda x: (x / (1 - x)).log(), domain=(0.05, 0.95))
def logit(x: Array) -> Array:
    """Return log(x / (1 - x))."""
    return np.log(x / (1 - np.asarray(x)))


@float_formula(lambda a, b: b.isnan().where(b, a.eq(0).where(0, a * b.log())), domain=(0.25, 2.0))
def xlogy(a: Array, b: Array) -> Array:
    """Return a * log(b), and 0 where a is 0 and b is not NaN."""
    return np.where(np.isnan(b), np.nan, np.where(np.equal(a, 0), 0.0, a * np.log(b)))


@float_formula(lambda a, b: b.signbit().where(-a.abs(), a.abs()))
def copysign(a: Array, b: Array) -> Array:
    """Return the magnitude of a with the sign of b."""
    return np.copysign(a, b)


@float_formula(lambda a, b: (a * a + b * b).sqrt())
def hypot(a: Array, b: Array) -> Array:
    """Return sqrt(a * a + b * b); the squares may overflow."""
    return np.sqrt(np.square(a) + np.square(b))


@formula(lambda a, b: a.isnan().where(b, b.isnan().where(a, a.minimum(b))))
def fmin(a: Array, b: Array) -> Array:
    """Return the smaller operand; ignores NaN if the other operand is a number."""
    return np.fmin(a, b)


@formula(lambda a, b: a.isnan().where(b, b.isnan().where(a, a.maximum(b))))
def fmax(a: Array, b: Array) -> Array:
    """Return the larger operand; ignores NaN if the other operand is a number."""
    return np.fmax(a, b)


def _floor_divide(a: Term, b: Term) -> Term:
    if common_type("floor_divide", (a.operand, b.operand)).is_float:
        return a.truediv(b).floor()
    # The difference is a multiple of b, so truncating it towards zero is exact.
    return (a - a.remainder(b)) / b


@formula(_floor_divide)
def floor_divide(a: Array, b: Array) -> Array:
    """Return a / b rounded down to an integer; integer division by 0 returns 0."""
    return np.floor_divide(a, b)


@formula(lambda x, mask, value: mask.where(value, x))
def masked_fill(x: Array, mask: Array, value: Array) -> Array:
    """Return `value` where the mask is true, else x."""
    return np.where(mask, value, x)


@formula(lambda a, b: a.ne(0).bitwise_xor(b.ne(0)))
def logical_xor(a: Array, b: Array) -> Array:
    """Return whether exactly one operand is nonzero or true."""
    return np.logical_xor(a, b)


def _nan_to_num(x: Term, nan: Term, posinf: Term | None, neginf: Term | None) -> Term:
    dtype = x.operand.type.dtype
    if not dtype.is_float:
        return x
    largest = dtype.largest
    result = x.isnan().where(nan, x)
    result = x.isposinf().where(largest if posinf is None else posinf, result)
    return x.isneginf().where(-largest if neginf is None else neginf, result)


@formula(_nan_to_num)
def nan_to_num(
    x: Array, nan: Array = 0.0, posinf: Array | None = None, neginf: Array | None = None
) -> Array:
    """Replace NaN by 0, and infinities by the largest finite values of the type."""
    return np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


@float_formula(lambda x, a, b, value: x + value * a / b, domain=(0.5, 2.0))
def addcdiv(x: Array, a: Array, b: Array, value: Array = 1.0) -> Array:
    """Return x + value * a / b."""
    return x + value * np.divide(a, b)


@formula(lambda a, b, rtol, atol: a.eq(b).logical_or(_is_near(a, b, rtol, atol)))
def isclose(a: Array, b: Array, rtol: Array = 1e-5, atol: Array = 1e-8) -> Array:
    """Return whether |a - b| <= atol + rtol * |b|; true for equal infinities, false for NaN."""
    return np.isclose(a, b, rtol=rtol, atol=atol)


def _is_near(x: Term, y: Term, rtol: Term, atol: Term) -> Term:
    distance = (x - y).abs()
    return (distance <= y.abs() * rtol + atol).logical_and(distance.isfinite())


@formula(lambda x: x * (math.pi / 180))
def deg2rad(x: Array) -> Array:
    """Return degrees in radians."""
    return np.deg2rad(x)


@formula(lambda x: x * (180 / math.pi))
def rad2deg(x: Array) -> Array:
    """Return radians in degrees."""
    return np.rad2deg(x)
