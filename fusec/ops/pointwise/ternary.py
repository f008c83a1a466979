"""Elementwise operations of three and more operands."""

from __future__ import annotations

from fusec.ir.op import Cost
from fusec.ir.roles import ComplexError
from fusec.ops import complex_formulas
from fusec.ops.declare import Array, pointwise
from fusec.ops.dtypes import FLOAT, NUMBER, SELECT
from fusec.ops.lazy import np
from fusec.ops.numerics import complex_terms, exact, slopes


@pointwise(
    cuda="{condition} ? {x} : {y}",
    dtype=SELECT,
    accuracy=0,
    condition=1,
    slopes=slopes.choice,
    chooses=True,
    exact=exact.chosen,
    complex_error=ComplexError(0),
)
def where(condition: Array, x: Array, y: Array) -> Array:
    """Return x where the condition is true, else y."""
    return np.where(condition, x, y)


def _lerp_terms(start: Array, end: Array, weight: Array, result: Array) -> Array:
    return np.abs(start) + np.abs(weight) * (np.abs(start) + np.abs(end))


@pointwise(
    cuda="fusec::lerp({start}, {end}, {weight})",
    dtype=FLOAT,
    cost=Cost(5),
    accuracy=4,
    terms=_lerp_terms,
)
def lerp(start: Array, end: Array, weight: Array) -> Array:
    """Return start + weight * (end - start)."""
    return np.where(
        np.abs(weight) < 0.5,
        start + weight * (end - start),
        end - (end - start) * (1 - weight),
    )


@pointwise(
    cuda="fusec::clamp({x}, {min}, {max})",
    dtype=NUMBER,
    cost=Cost(2),
    accuracy=0,
    exact=exact.either,
)
def clamp(x: Array, min: Array, max: Array) -> Array:
    """Clamp x to two bounds; propagates NaN."""
    return np.minimum(np.maximum(x, min), max)


@pointwise(
    cuda="{x} <= {threshold} ? {value} : {x}",
    dtype=NUMBER,
    discontinuous=True,
    accuracy=0,
    exact=exact.either,
)
def threshold(x: Array, threshold: Array, value: Array) -> Array:
    """Return `value` where x is at most the threshold, else x."""
    return np.where(np.less_equal(x, threshold), value, x)


def _addcmul_terms(a: Array, b: Array, c: Array, alpha: Array, result: Array) -> Array:
    return np.abs(a) + np.abs(alpha * b * c)


_WRAPPING = "fusec::wrapping_add({a}, fusec::wrapping_mul(fusec::wrapping_mul({alpha}, {b}), {c}))"


@pointwise(
    cuda={
        **dict.fromkeys(("i32", "i64", "u16"), _WRAPPING),
        "default": "{a} + {alpha} * {b} * {c}",
    },
    dtype=NUMBER,
    cost=Cost(3),
    accuracy=2,
    terms=_addcmul_terms,
    exact=exact.sum_of_product,
    complex_error=ComplexError(4, complex_terms.sum_of_product),
    parts=complex_formulas.ADDCMUL,
)
def addcmul(a: Array, b: Array, c: Array, alpha: Array) -> Array:
    """Return a + alpha * b * c."""
    return np.add(a, np.multiply(np.multiply(alpha, b), c))
