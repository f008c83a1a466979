"""Complex arithmetic on the parts: each formula writes operations on reals.

Formulas are chosen so that no intermediate overflows before the result and no part is a difference
of rounded terms, unless the result itself is: `fusec.reference.errors.complexes` has their errors.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, log, nan, pi
from typing import Protocol

from fusec.dataclasses import dataclass
from fusec.ir.dtype import DType
from fusec.ir.graph import Const, Operand

MOST_PRODUCTS = 8
"""The largest integer exponent that is expanded to multiplications."""
STEEP = 64.0
"""Below -STEEP the logistic function equals its exponential to 64 bits; exp(STEEP) is finite."""


@dataclass(frozen=True)
class Pair:
    """A complex number: its real and its imaginary part."""

    re: Operand
    im: Operand


class Writer(Protocol):
    """Writes operations on reals of one type."""

    @property
    def part(self) -> DType:
        """Return the type of the parts."""
        ...

    def op(self, name: str, *operands: Operand | float) -> Operand:
        """Write an operation and return its result; numbers become constants of the type."""
        ...


def is_zero(operand: Operand) -> bool:
    """Return whether an operand is the literal 0, as the imaginary part of a real number."""
    return isinstance(operand, Const) and operand.value == 0


def _add(w: Writer, a: Pair, b: Pair) -> Pair:
    return Pair(w.op("add", a.re, b.re), w.op("add", a.im, b.im))


def _sub(w: Writer, a: Pair, b: Pair) -> Pair:
    return Pair(w.op("sub", a.re, b.re), w.op("sub", a.im, b.im))


def _neg(w: Writer, a: Pair) -> Pair:
    return Pair(w.op("neg", a.re), w.op("neg", a.im))


def _mul(w: Writer, a: Pair, b: Pair) -> Pair:
    re = w.op("sub", w.op("mul", a.re, b.re), w.op("mul", a.im, b.im))
    return Pair(re, w.op("add", w.op("mul", a.re, b.im), w.op("mul", a.im, b.re)))


def _div(w: Writer, a: Pair, b: Pair) -> Pair:
    """Write Smith's quotient: the divisor is scaled by the larger of its parts."""
    if is_zero(b.im):
        return Pair(w.op("div", a.re, b.re), w.op("div", a.im, b.re))
    swap = w.op("lt", w.op("abs", b.re), w.op("abs", b.im))
    large, small = w.op("where", swap, b.im, b.re), w.op("where", swap, b.re, b.im)
    zero = w.op("eq", large, 0.0)
    ratio = w.op("where", zero, 0.0, w.op("div", small, large))
    # 1 / 0 is infinite with the sign of 1, regardless of the sign of 0.
    scaled = w.op("add", w.op("where", zero, 0.0, large), w.op("mul", small, ratio))
    first, second = w.op("where", swap, a.im, a.re), w.op("where", swap, a.re, a.im)
    re = w.op("add", first, w.op("mul", second, ratio))
    im = w.op("sub", second, w.op("mul", first, ratio))
    im = w.op("where", swap, w.op("neg", im), im)
    return Pair(w.op("div", re, scaled), w.op("div", im, scaled))


def _reciprocal(w: Writer, a: Pair) -> Pair:
    return _div(w, Pair(Const(1.0, w.part), Const(0.0, w.part)), a)


def _addcmul(w: Writer, a: Pair, b: Pair, c: Pair, alpha: Pair) -> Pair:
    return _add(w, a, _mul(w, _mul(w, alpha, b), c))


def _scaled(w: Writer, x: Operand, y: Operand) -> tuple[Operand, Operand]:
    """Return the larger of two magnitudes and the ratio of the smaller to it.

    The ratio is 0 if the larger one is 0 or infinite.
    """
    x, y = w.op("abs", x), w.op("abs", y)
    large, small = w.op("maximum", x, y), w.op("minimum", x, y)
    none = w.op("logical_or", w.op("eq", large, 0.0), w.op("isinf", large))
    return large, w.op("where", none, 0.0, w.op("div", small, large))


def _is_infinite(w: Writer, x: Operand, y: Operand) -> Operand:
    """Return whether a part is infinite: C99's annex G considers such a number infinite."""
    return w.op("logical_or", w.op("isinf", x), w.op("isinf", y))


def _hypot(w: Writer, x: Operand, y: Operand) -> Operand:
    large, ratio = _scaled(w, x, y)
    size = w.op("mul", large, w.op("sqrt", w.op("add", w.op("mul", ratio, ratio), 1.0)))
    return w.op("where", _is_infinite(w, x, y), inf, size)


def _abs(w: Writer, a: Pair) -> Operand:
    return _hypot(w, a.re, a.im)


def _exp(w: Writer, a: Pair) -> Pair:
    """Write modulus and angle; at -inf and inf, annex G defines 0 and inf without an angle."""
    size = w.op("exp", a.re)
    no_angle = w.op("logical_not", w.op("isfinite", a.im))
    none = w.op("logical_and", w.op("eq", a.re, -inf), no_angle)
    whole = w.op("logical_and", w.op("eq", a.re, inf), no_angle)
    re, im = w.op("mul", size, w.op("cos", a.im)), w.op("mul", size, w.op("sin", a.im))
    im = w.op("where", w.op("eq", a.im, 0.0), a.im, im)  # not inf * 0
    re = w.op("where", whole, inf, re)
    return Pair(w.op("where", none, 0.0, re), w.op("where", none, 0.0, im))


def _log(w: Writer, a: Pair) -> Pair:
    large, ratio = _scaled(w, a.re, a.im)
    rest = w.op("mul", w.op("log1p", w.op("mul", ratio, ratio)), 0.5)
    re = w.op("add", w.op("log", large), rest)
    re = w.op("where", _is_infinite(w, a.re, a.im), inf, re)
    return Pair(re, w.op("atan2", a.im, a.re))


def _log_to(base: float) -> Callable[[Writer, Pair], Pair]:
    def formula(w: Writer, a: Pair) -> Pair:
        whole = _log(w, a)
        return Pair(w.op("div", whole.re, log(base)), w.op("div", whole.im, log(base)))

    return formula


def _sqrt(w: Writer, a: Pair) -> Pair:
    """Write the root whose real part is not negative; halves keep the modulus finite."""
    size = _hypot(w, w.op("mul", a.re, 0.5), w.op("mul", a.im, 0.5))
    root = w.op("sqrt", w.op("add", size, w.op("mul", w.op("abs", a.re), 0.5)))
    twice = w.op("mul", root, 2.0)
    other = w.op("where", w.op("eq", root, 0.0), a.im, w.op("div", a.im, twice))
    right = w.op("logical_not", w.op("lt", a.re, 0.0))
    signed = w.op("where", w.op("signbit", a.im), w.op("neg", root), root)
    re = w.op("where", right, root, w.op("abs", other))
    im = w.op("where", right, other, signed)
    # C99's annex G: for any real part, NaN included.
    upwards = w.op("isinf", a.im)
    return Pair(w.op("where", upwards, inf, re), w.op("where", upwards, a.im, im))


def _rsqrt(w: Writer, a: Pair) -> Pair:
    return _reciprocal(w, _sqrt(w, a))


def _products(w: Writer, terms: tuple[tuple[str, str], tuple[str, str]], a: Pair) -> Pair:
    (x, y), (u, v) = terms
    re = w.op("mul", w.op(x, a.re), w.op(y, a.im))
    return Pair(re, w.op("mul", w.op(u, a.re), w.op(v, a.im)))


def _sin(w: Writer, a: Pair) -> Pair:
    return _products(w, (("sin", "cosh"), ("cos", "sinh")), a)


def _cos(w: Writer, a: Pair) -> Pair:
    pair = _products(w, (("cos", "cosh"), ("sin", "sinh")), a)
    return Pair(pair.re, w.op("neg", pair.im))


def _sinh(w: Writer, a: Pair) -> Pair:
    return _products(w, (("sinh", "cos"), ("cosh", "sin")), a)


def _cosh(w: Writer, a: Pair) -> Pair:
    return _products(w, (("cosh", "cos"), ("sinh", "sin")), a)


def _tanh(w: Writer, a: Pair) -> Pair:
    """Write (sinh 2x + i sin 2y) / (cosh 2x + cos 2y), all scaled by e = exp(-2 |x|).

    The divisor is (1 - e)**2 + 4 e cos(y)**2, a sum of squares.
    """
    twice = w.op("mul", w.op("abs", a.re), -2.0)
    small = w.op("exp", twice)
    gap = w.op("neg", w.op("expm1", twice))
    sine, cosine = w.op("sin", a.im), w.op("cos", a.im)
    four = w.op("mul", small, 4.0)
    divisor = w.op("add", w.op("mul", gap, gap), w.op("mul", four, w.op("mul", cosine, cosine)))
    re = w.op("div", w.op("mul", gap, w.op("add", small, 1.0)), divisor)
    im = w.op("div", w.op("mul", four, w.op("mul", sine, cosine)), divisor)
    return Pair(w.op("where", w.op("signbit", a.re), w.op("neg", re), re), im)


def _tan(w: Writer, a: Pair) -> Pair:
    turned = _tanh(w, Pair(w.op("neg", a.im), a.re))
    return Pair(turned.im, w.op("neg", turned.re))


def _sigmoid(w: Writer, a: Pair) -> Pair:
    """Write 1 / (1 + exp(-a)), and e / (1 + e) for e = exp(a) where exp(-a) might overflow.

    An infinite or unknown angle makes it NaN, as in PyTorch.
    """
    left = w.op("lt", a.re, -STEEP)
    e = _exp(w, Pair(w.op("where", left, a.re, w.op("neg", a.re)),
                     w.op("where", left, a.im, w.op("neg", a.im))))  # fmt: skip
    above = Pair(w.op("where", left, e.re, 1.0), w.op("where", left, e.im, 0.0))
    share = _div(w, above, Pair(w.op("add", e.re, 1.0), e.im))
    lost = w.op("logical_and", left, w.op("logical_not", w.op("isfinite", a.im)))
    return Pair(w.op("where", lost, nan, share.re), w.op("where", lost, nan, share.im))


def _with_sign_of(w: Writer, size: float, x: Operand) -> Operand:
    """Return a number with the sign of `x`, NaN where `x` is."""
    signed = w.op("where", w.op("signbit", x), -size, size)
    return w.op("where", w.op("isnan", x), x, signed)


def _roots_at_ones(w: Writer, a: Pair) -> tuple[Pair, Pair]:
    """Return sqrt(1 - a) and sqrt(1 + a): their imaginary parts have opposite signs.

    Kahan's inverse functions are products of these, in which no terms cancel (Branch Cuts for
    Complex Elementary Functions, 1987).
    """
    below = _sqrt(w, Pair(w.op("sub", 1.0, a.re), w.op("neg", a.im)))
    return below, _sqrt(w, Pair(w.op("add", a.re, 1.0), a.im))


def _asin(w: Writer, a: Pair) -> Pair:
    below, above = _roots_at_ones(w, a)
    across = w.op("sub", w.op("mul", below.re, above.re), w.op("mul", below.im, above.im))
    tall = w.op("sub", w.op("mul", below.re, above.im), w.op("mul", below.im, above.re))
    far = _is_infinite(w, a.re, a.im)
    re = w.op("atan2", a.re, w.op("where", far, w.op("abs", a.im), across))
    return Pair(re, w.op("where", far, _with_sign_of(w, inf, a.im), w.op("asinh", tall)))


def _acos(w: Writer, a: Pair) -> Pair:
    below, above = _roots_at_ones(w, a)
    tall = w.op("sub", w.op("mul", above.re, below.im), w.op("mul", above.im, below.re))
    far = _is_infinite(w, a.re, a.im)
    angle = w.op("mul", w.op("atan2", below.re, above.re), 2.0)
    re = w.op("where", far, w.op("atan2", w.op("abs", a.im), a.re), angle)
    turned = w.op("neg", _with_sign_of(w, inf, a.im))
    return Pair(re, w.op("where", far, turned, w.op("asinh", tall)))


def _acosh(w: Writer, a: Pair) -> Pair:
    below = _sqrt(w, Pair(w.op("sub", a.re, 1.0), a.im))
    above = _sqrt(w, Pair(w.op("add", a.re, 1.0), a.im))
    wide = w.op("add", w.op("mul", below.re, above.re), w.op("mul", below.im, above.im))
    far = _is_infinite(w, a.re, a.im)
    angle = w.op("mul", w.op("atan2", below.im, above.re), 2.0)
    im = w.op("where", far, w.op("atan2", a.im, a.re), angle)
    return Pair(w.op("where", far, inf, w.op("asinh", wide)), im)


def _asinh(w: Writer, a: Pair) -> Pair:
    turned = _asin(w, Pair(w.op("neg", a.im), a.re))
    return Pair(turned.im, w.op("neg", turned.re))


def _atanh(w: Writer, a: Pair) -> Pair:
    """Write log1p(4 x / |1 - a|**2) / 4 for x >= 0, and half the angle of (1 + a) (1 - a*).

    Near 1 the square underflows and the quotient overflows: there it is a difference of logarithms.
    """
    x = w.op("abs", a.re)
    gap = w.op("sub", 1.0, x)
    distance, sum_ = _hypot(w, gap, a.im), w.op("add", x, 1.0)
    quotient = w.op("div", w.op("mul", x, 4.0), w.op("mul", distance, distance))
    apart = w.op("sub", w.op("log", _hypot(w, sum_, a.im)), w.op("log", distance))
    size = w.op(
        "where", w.op("lt", distance, 2.0**-10),
        w.op("mul", apart, 0.5), w.op("mul", w.op("log1p", quotient), 0.25),
    )  # fmt: skip
    far = _is_infinite(w, a.re, a.im)
    size = w.op("where", far, 0.0, size)
    re = w.op("where", w.op("signbit", a.re), w.op("neg", size), size)
    straight = w.op("sub", w.op("mul", gap, sum_), w.op("mul", a.im, a.im))
    angle = w.op("mul", w.op("atan2", a.im, w.op("mul", straight, 0.5)), 0.5)
    return Pair(re, w.op("where", far, _with_sign_of(w, pi / 2, a.im), angle))


def _atan(w: Writer, a: Pair) -> Pair:
    turned = _atanh(w, Pair(w.op("neg", a.im), a.re))
    return Pair(turned.im, w.op("neg", turned.re))


def _pow(w: Writer, a: Pair, b: Pair) -> Pair:
    whole = _whole_exponent(b)
    if whole is not None:
        power = a
        for _ in range(abs(whole) - 1):
            power = _mul(w, power, a)
        return power if whole > 0 else _reciprocal(w, power)
    power = _exp(w, _mul(w, b, _log(w, a)))
    none = w.op("logical_and", w.op("eq", a.re, 0.0), w.op("eq", a.im, 0.0))
    empty = w.op("logical_and", w.op("eq", b.re, 0.0), w.op("eq", b.im, 0.0))
    re = w.op("where", none, w.op("where", empty, 1.0, 0.0), power.re)
    return Pair(re, w.op("where", none, 0.0, power.im))


def _whole_exponent(b: Pair) -> int | None:
    if not isinstance(b.re, Const) or not is_zero(b.im) or isinstance(b.re.value, complex):
        return None
    value = float(b.re.value)
    whole = value.is_integer() and 1 <= abs(value) <= MOST_PRODUCTS
    return int(value) if whole else None


def _eq(w: Writer, a: Pair, b: Pair) -> Operand:
    return w.op("logical_and", w.op("eq", a.re, b.re), w.op("eq", a.im, b.im))


def _ne(w: Writer, a: Pair, b: Pair) -> Operand:
    return w.op("logical_or", w.op("ne", a.re, b.re), w.op("ne", a.im, b.im))


def _tested(name: str, join: str) -> Callable[[Writer, Pair], Operand]:
    def formula(w: Writer, a: Pair) -> Operand:
        return w.op(join, w.op(name, a.re), w.op(name, a.im))

    return formula


def _isreal(w: Writer, a: Pair) -> Operand:
    return w.op("eq", a.im, 0.0)


def _real(w: Writer, a: Pair) -> Operand:
    return a.re


def _imag(w: Writer, a: Pair) -> Operand:
    return a.im


ADD = _add
SUB = _sub
NEG = _neg
MUL = _mul
DIV = _div
RECIPROCAL = _reciprocal
ADDCMUL = _addcmul
ABS = _abs
EXP = _exp
LOG = _log
LOG2 = _log_to(2)
LOG10 = _log_to(10)
SQRT = _sqrt
RSQRT = _rsqrt
SIN = _sin
COS = _cos
SINH = _sinh
COSH = _cosh
TANH = _tanh
TAN = _tan
ASIN = _asin
ACOS = _acos
ATAN = _atan
ASINH = _asinh
ACOSH = _acosh
ATANH = _atanh
SIGMOID = _sigmoid
POW = _pow
EQ = _eq
NE = _ne
ISREAL = _isreal
REAL = _real
IMAG = _imag
ISFINITE = _tested("isfinite", "logical_and")
ISNAN = _tested("isnan", "logical_or")
ISINF = _tested("isinf", "logical_or")
