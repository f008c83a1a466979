"""Signs, roundings and other simple functions of one operand."""

from __future__ import annotations

import operator

from fusec.ir.dim import Dim
from fusec.ir.op import Cost
from fusec.ir.roles import ComplexError, Text
from fusec.ops import complex_formulas, texts
from fusec.ops.declare import Array, pointwise
from fusec.ops.dtypes import FLOAT, LOGICAL, MAGNITUDE, NUMBER, PROMOTE, WHOLE
from fusec.ops.lazy import np
from fusec.ops.numerics import between, exact, slopes


def rounding(name: str) -> dict[str, str]:
    """Return the expressions of a function that does not change integers."""
    return {"f32": f"{name}f({{x}})", "f64": f"::{name}({{x}})", "int": "{x}"}


@pointwise(
    cuda={
        "f32": "fabsf({x})", "f64": "::fabs({x})", "uint": "{x}", "int": "fusec::wrapping_abs({x})",
    },
    dtype=MAGNITUDE, accuracy=0, condition=1, slopes=slopes.sums,
    exact=exact.either,
    complex_error=ComplexError(4),
    parts=complex_formulas.ABS,
)  # fmt: skip
def abs(x: Array) -> Array:
    """Return the absolute value; the modulus for complex numbers.

    The lowest integer wraps to itself.
    """
    return np.abs(x)


@pointwise(
    cuda={t: "fusec::wrapping_neg({x})" for t in ("i32", "i64")} | {"default": "-{x}"},
    dtype=NUMBER,
    sizes=Dim.__neg__,
    accuracy=0,
    condition=1,
    slopes=slopes.sums,
    text=Text(prefix="-"),
    exact=exact.either,
    complex_error=ComplexError(0),
    scales=True,
    quick=operator.neg,
    parts=complex_formulas.NEG,
)
def neg(x: Array) -> Array:
    """Return the negative; integers wrap."""
    return np.negative(x)


@pointwise(
    cuda={"bool": "{x}", "default": "fusec::sign({x})"},
    dtype=PROMOTE,
    discontinuous=True,
    accuracy=0,
    exact=exact.whole,
)
def sign(x: Array) -> Array:
    """Return -1, 0 or 1; 0 for NaN."""
    array = np.asarray(x)
    return array if array.dtype.kind == "b" else np.nan_to_num(np.sign(array), nan=0)


def _inverse(x: float) -> float:
    return 1 / x


@pointwise(
    cuda={"f32": "1.0f / {x}", "f64": "1.0 / {x}"},
    dtype=FLOAT,
    cost=Cost(12, 1),
    domain=(0.25, 4.0),
    accuracy=0.5,
    condition=1,
    between=between.pole_at_zero,
    complex_error=ComplexError(10),
    quick=_inverse,
    parts=complex_formulas.RECIPROCAL,
)
def reciprocal(x: Array) -> Array:
    """Return 1 / x."""
    return 1 / x


@pointwise(
    cuda="fusec::relu({x})",
    dtype=NUMBER,
    accuracy=0,
    exact=exact.either,
)
def relu(x: Array) -> Array:
    """Return max(x, 0); propagates NaN."""
    return np.maximum(x, np.asarray(0, np.asarray(x).dtype))


@pointwise(
    cuda=rounding("ceil"),
    dtype=NUMBER,
    discontinuous=True,
    accuracy=0,
    text=texts.function("ceil"),
    exact=exact.whole,
)
def ceil(x: Array) -> Array:
    """Return x rounded up to an integer."""
    return np.ceil(x) if np.asarray(x).dtype.kind == "f" else x


@pointwise(
    cuda=rounding("floor"),
    dtype=NUMBER,
    discontinuous=True,
    accuracy=0,
    text=texts.function("floor"),
    exact=exact.whole,
)
def floor(x: Array) -> Array:
    """Return x rounded down to an integer."""
    return np.floor(x) if np.asarray(x).dtype.kind == "f" else x


@pointwise(
    cuda=rounding("rint"),
    dtype=NUMBER,
    discontinuous=True,
    accuracy=0,
    text=texts.function("round"),
    exact=exact.whole,
)
def round(x: Array) -> Array:
    """Return x rounded to the nearest integer, ties to even."""
    return np.round(x)


@pointwise(
    cuda=rounding("trunc"),
    dtype=NUMBER,
    discontinuous=True,
    accuracy=0,
    text=texts.function("trunc"),
    exact=exact.whole,
)
def trunc(x: Array) -> Array:
    """Return x rounded towards zero to an integer."""
    return np.trunc(x) if np.asarray(x).dtype.kind == "f" else x


@pointwise(
    cuda="fusec::frac({x})",
    dtype=FLOAT,
    cost=Cost(2),
    discontinuous=True,
    accuracy=0,
    between=between.fraction,
)
def frac(x: Array) -> Array:
    """Return the fractional part of x, with the sign of x."""
    return x - np.trunc(x)


@pointwise(
    cuda="!{x}",
    dtype=LOGICAL,
    accuracy=0,
    text=Text(prefix="!"),
    exact=exact.truth,
)
def logical_not(x: Array) -> Array:
    """Return whether x is zero or false."""
    return np.logical_not(x)


@pointwise(
    cuda={"bool": "!{x}", "default": "~{x}"},
    dtype=WHOLE,
    accuracy=0,
    discontinuous=True,
    text=Text(prefix="~"),
)
def bitwise_not(x: Array) -> Array:
    """Return every bit inverted; of a bool, its negation."""
    return np.invert(x)
