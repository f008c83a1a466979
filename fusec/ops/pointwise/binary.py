"""Arithmetic of two operands."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError
from fusec.ir import dim as sizes
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Const, Operand
from fusec.ir.op import Cost
from fusec.ir.roles import ComplexError, Text
from fusec.ops import complex_formulas, texts
from fusec.ops.declare import Array, pointwise
from fusec.ops.dtypes import FLOAT, FULL_WIDTH, INTEGER, NUMBER, PROMOTE, common_type
from fusec.ops.lazy import np
from fusec.ops.numerics import between, complex_terms, exact, slopes

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder


def _truncated(a: Dim, b: Dim) -> Dim:
    """Return a / b truncated towards zero; symbolic sizes are assumed non-negative."""
    if b == 0:
        raise FusecError(f"division by zero: {a} / {b}")
    if a.is_const and b.is_const:
        quotient = max(a.value, -a.value) // max(b.value, -b.value)
        return dim(-quotient if (a.value < 0) != (b.value < 0) else quotient)
    return sizes.floordiv(a, b)


def _remaining(a: Dim, b: Dim) -> Dim:
    """Return the remainder with the sign of a; symbolic sizes are assumed non-negative."""
    if b == 0:
        raise FusecError(f"division by zero: {a} % {b}")
    return a - _truncated(a, b) * b if a.is_const and b.is_const else sizes.mod(a, b)


def _quotient(a: float, b: float) -> float:
    return a / b


def wrapping(function: str, plain: str, *types: str) -> dict[str, str]:
    """Return expressions of wrapping arithmetic, for types whose overflow is undefined in C++."""
    return {**{t: f"fusec::wrapping_{function}({{a}}, {{b}})" for t in types}, "default": plain}


@pointwise(
    cuda={"bool": "{a} || {b}", **wrapping("add", "{a} + {b}", "i32", "i64")},
    dtype=PROMOTE,
    commutative=True,
    sizes=operator.add,
    accuracy=0.5,
    condition=1,
    slopes=slopes.sums,
    text=Text(infix="+"),
    exact=exact.total,
    complex_error=ComplexError(1),
    quick=operator.add,
    parts=complex_formulas.ADD,
)
def add(a: Array, b: Array) -> Array:
    """Add two operands; integers wrap; logical or for bools."""
    return np.add(a, b)


@pointwise(
    cuda=wrapping("sub", "{a} - {b}", "i32", "i64"),
    dtype=NUMBER,
    sizes=operator.sub,
    accuracy=0.5,
    condition=1,
    slopes=slopes.sums,
    text=Text(infix="-"),
    exact=exact.total,
    complex_error=ComplexError(1),
    neutral=(None, 0),
    quick=operator.sub,
    parts=complex_formulas.SUB,
)
def sub(a: Array, b: Array) -> Array:
    """Subtract b from a; integers wrap."""
    return np.subtract(a, b)


@pointwise(
    # The product of two u16 overflows the int that C computes it in.
    cuda={"bool": "{a} && {b}", **wrapping("mul", "{a} * {b}", "i32", "i64", "u16")},
    dtype=PROMOTE,
    commutative=True,
    sizes=operator.mul,
    accuracy=0.5,
    condition=1,
    slopes=slopes.product,
    text=Text(infix="*"),
    exact=exact.product,
    complex_error=ComplexError(1.5),
    scales=True,
    neutral=(1, 1),
    quick=operator.mul,
    parts=complex_formulas.MUL,
)
def mul(a: Array, b: Array) -> Array:
    """Multiply two operands; integers wrap; logical and for bools."""
    return np.multiply(a, b)


@pointwise(
    cuda={
        "int": "fusec::truncated_divide({a}, {b})",
        "f32": "fusec::divide({a}, {b})",
        "default": "{a} / {b}",
    },
    dtype=NUMBER,
    cost=Cost(7, 1),
    domain=(0.25, 4.0),
    accuracy=2.0,
    sizes=_truncated,
    condition=1,
    slopes=slopes.quotient,
    text=Text(infix="/"),
    between=between.pole_at_zero,
    complex_error=ComplexError(10, complex_terms.quotient),
    scales=True,
    neutral=(None, 1),
    parts=complex_formulas.DIV,
)
def div(a: Array, b: Array) -> Array:
    """Divide a by b; integer division truncates towards zero and returns 0 where b is 0.

    The lowest integer divided by -1 wraps to itself.
    """
    if np.asarray(a).dtype.kind in "fc":
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    inexact = (np.multiply(quotient, b) != a) & np.not_equal(b, 0)
    cut = (inexact & (np.less(a, 0) != np.less(b, 0))).astype(np.asarray(quotient).dtype)
    return quotient + cut


@pointwise(
    cuda={"f32": "fusec::divide({a}, {b})", "default": "{a} / {b}"},
    dtype=FLOAT,
    cost=Cost(7, 1),
    domain=(0.25, 4.0),
    accuracy=2.0,
    condition=1,
    slopes=slopes.quotient,
    text=Text(infix="/"),
    between=between.pole_at_zero,
    complex_error=ComplexError(10, complex_terms.quotient),
    neutral=(None, 1),
    quick=_quotient,
    parts=complex_formulas.DIV,
)
def truediv(a: Array, b: Array) -> Array:
    """Divide a by b in floating point, also for integers."""
    return np.true_divide(a, b)


@pointwise(
    cuda="fusec::fmod({a}, {b})",
    dtype=NUMBER,
    cost=Cost(16, 1),
    domain=(0.25, 4.0),
    discontinuous=True,
    sizes=_remaining,
    accuracy=0,
    text=texts.function("fmod"),
    between=between.signed_remainder,
)
def fmod(a: Array, b: Array) -> Array:
    """Return the remainder of a / b with the sign of a; 0 for integers where b is 0."""
    return np.fmod(a, b)


@pointwise(
    cuda="fusec::fmod({a}, {b})",
    dtype=NUMBER,
    cost=Cost(16, 1),
    domain=(0.25, 4.0),
    discontinuous=True,
    sizes=_remaining,
    accuracy=0,
    text=Text(infix="%"),
    between=between.remainder,
)
def mod(a: Array, b: Array) -> Array:
    """Return the remainder of a / b with the sign of a, as C's %; 0 for integers where b is 0."""
    return np.fmod(a, b)


@pointwise(
    cuda="fusec::remainder({a}, {b})",
    dtype=NUMBER,
    cost=Cost(18, 1),
    domain=(0.25, 4.0),
    discontinuous=True,
    sizes=sizes.mod,
    accuracy=0.5,
    between=between.remainder,
)
def remainder(a: Array, b: Array) -> Array:
    """Return the remainder of a / b with the sign of b, as Python's %; 0 for integers if b is 0.

    A remainder of 0 has the sign of a, as in PyTorch.
    """
    rest = np.fmod(a, b)
    turned = np.not_equal(rest, 0) & (np.less(rest, 0) != np.less(b, 0))
    return np.where(turned, np.add(rest, b), rest)


@pointwise(
    cuda="fusec::ceil_divide({a}, {b})", dtype=INTEGER, cost=Cost(10), domain=(1, 8),
    sizes=sizes.ceildiv, accuracy=0,
)  # fmt: skip
def ceilDiv(a: Array, b: Array) -> Array:
    """Divide non-negative integers, rounding up; 0 where b is 0."""
    one = np.asarray(1, np.asarray(a).dtype)
    return np.floor_divide(np.subtract(np.add(a, b), one), b)


_ROOTS = {0.5: "sqrt", -0.5: "rsqrt"}


def _root(
    builder: GraphBuilder, slots: list[list[Operand] | None], attributes: Mapping[str, Any]
) -> tuple[Operand, ...] | None:
    """Replace a power with scalar exponent 0.5 or -0.5 by a root, as PyTorch does.

    They differ at -0 and -inf, where C's pow is +0 and +inf. A tensor of exponents uses C's pow.
    """
    base, exponent = (slot[0] for slot in slots if slot)
    if not exponent.is_scalar or not common_type("pow", (base, exponent)).is_float:
        return None
    if isinstance(exponent, Const):
        root = _ROOTS.get(float(exponent.value.real))
        return None if root is None else (builder.apply(root, base),)
    if base.is_scalar:
        return None
    dtype = common_type("pow", (base, exponent))
    # As a tensor, so that this is not again a `pow` by a scalar.
    result = builder.apply("pow", base, builder.apply("full", [], exponent, dtype=dtype))
    for number, root in _ROOTS.items():
        is_root = builder.apply("eq", exponent, number)
        result = builder.apply("where", is_root, builder.apply(root, base), result)
    return (result,)


@pointwise(
    cuda="fusec::pow({a}, {b})",
    dtype=NUMBER,
    cost=Cost(30, 2),
    domain=(0.5, 2.0),
    accuracy=4,
    complex_error=ComplexError(8, complex_terms.power),
    neutral=(None, 1),
    parts=complex_formulas.POW,
    instead=_root,
)
def pow(a: Array, b: Array) -> Array:
    """Return a to the power b; integers wrap, their negative powers truncate.

    A scalar exponent of 0.5 or -0.5 is `sqrt` or `rsqrt`, also at -0 and -inf.
    """
    if np.asarray(a).dtype.kind == "f":
        # NumPy uses the root if one exponent 0.5 is repeated for all elements.
        shape = np.broadcast_shapes(np.shape(a), np.shape(b))
        return np.power(a, np.array(np.broadcast_to(b, shape)))
    if np.iscomplexobj(a):
        return np.power(a, b)
    zero, one = (np.asarray(v, np.asarray(a).dtype) for v in (0, 1))
    power = np.power(a, np.maximum(b, zero))
    odd = np.equal(np.bitwise_and(b, one), one)
    unit = np.where(
        np.equal(a, one), one, np.where(np.equal(a, -one), np.where(odd, -one, one), zero)
    )
    return np.where(np.less(b, zero), unit, power)


@pointwise(
    cuda={"f32": "atan2f({a}, {b})", "f64": "::atan2({a}, {b})"},
    dtype=FLOAT,
    cost=Cost(24, 1),
    accuracy=3,
    discontinuous=True,
    text=texts.function("atan2"),
)
def atan2(a: Array, b: Array) -> Array:
    """Return the angle of the point (b, a)."""
    return np.arctan2(a, b)


@pointwise(
    cuda="fusec::nextafter({a}, {b})",
    dtype=FULL_WIDTH,
    cost=Cost(10),
    accuracy=2,
    text=texts.function("nextafter"),
)
def nextafter(a: Array, b: Array) -> Array:
    """Return the next float after a towards b; the reference steps in double precision."""
    return np.nextafter(a, b)


@pointwise(
    cuda={"bool": "{a} && {b}", "default": "fusec::minimum({a}, {b})"},
    dtype=PROMOTE,
    commutative=True,
    sizes=sizes.minimum,
    accuracy=0,
    text=Text(function="{real}min"),
    exact=exact.either,
)
def minimum(a: Array, b: Array) -> Array:
    """Return the smaller operand; propagates NaN."""
    return np.minimum(a, b)


@pointwise(
    cuda={"bool": "{a} || {b}", "default": "fusec::maximum({a}, {b})"},
    dtype=PROMOTE,
    commutative=True,
    sizes=sizes.maximum,
    accuracy=0,
    text=Text(function="{real}max"),
    exact=exact.either,
)
def maximum(a: Array, b: Array) -> Array:
    """Return the larger operand; propagates NaN."""
    return np.maximum(a, b)


@pointwise(
    cuda="fusec::gcd({a}, {b})",
    dtype=INTEGER,
    cost=Cost(60),
    commutative=True,
    accuracy=0,
    discontinuous=True,
    exact=exact.either,
)
def gcd(a: Array, b: Array) -> Array:
    """Return the non-negative greatest common divisor."""
    return np.gcd(a, b)
