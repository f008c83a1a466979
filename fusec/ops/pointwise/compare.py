"""Comparisons and logic: results are bools."""

from __future__ import annotations

from fusec.ir.roles import Text
from fusec.ops import complex_formulas
from fusec.ops.declare import Array, pointwise
from fusec.ops.dtypes import COMPARE, LOGICAL
from fusec.ops.lazy import np
from fusec.ops.numerics import exact


@pointwise(
    cuda="{a} == {b}",
    dtype=COMPARE,
    accuracy=0,
    compares=True,
    commutative=True,
    text=Text(infix="=="),
    exact=exact.truth,
    parts=complex_formulas.EQ,
)
def eq(a: Array, b: Array) -> Array:
    """Return whether a equals b."""
    return np.equal(a, b)


@pointwise(
    cuda="{a} != {b}",
    dtype=COMPARE,
    accuracy=0,
    compares=True,
    commutative=True,
    text=Text(infix="!="),
    exact=exact.truth,
    parts=complex_formulas.NE,
)
def ne(a: Array, b: Array) -> Array:
    """Return whether a differs from b."""
    return np.not_equal(a, b)


@pointwise(
    cuda="{a} < {b}",
    dtype=COMPARE,
    accuracy=0,
    compares=True,
    text=Text(infix="<"),
    exact=exact.truth,
)
def lt(a: Array, b: Array) -> Array:
    """Return whether a is less than b."""
    return np.less(a, b)


@pointwise(
    cuda="{a} <= {b}",
    dtype=COMPARE,
    accuracy=0,
    compares=True,
    text=Text(infix="<="),
    exact=exact.truth,
)
def le(a: Array, b: Array) -> Array:
    """Return whether a is less than or equal to b."""
    return np.less_equal(a, b)


@pointwise(
    cuda="{a} > {b}",
    dtype=COMPARE,
    accuracy=0,
    compares=True,
    text=Text(infix=">"),
    exact=exact.truth,
)
def gt(a: Array, b: Array) -> Array:
    """Return whether a is greater than b."""
    return np.greater(a, b)


@pointwise(
    cuda="{a} >= {b}",
    dtype=COMPARE,
    accuracy=0,
    compares=True,
    text=Text(infix=">="),
    exact=exact.truth,
)
def ge(a: Array, b: Array) -> Array:
    """Return whether a is greater than or equal to b."""
    return np.greater_equal(a, b)


@pointwise(
    cuda="{a} && {b}",
    dtype=LOGICAL,
    accuracy=0,
    discontinuous=True,
    commutative=True,
    text=Text(infix="&&"),
    exact=exact.truth,
)
def logical_and(a: Array, b: Array) -> Array:
    """Return whether both operands are nonzero or true."""
    return np.logical_and(a, b)


@pointwise(
    cuda="{a} || {b}",
    dtype=LOGICAL,
    accuracy=0,
    discontinuous=True,
    commutative=True,
    text=Text(infix="||"),
    exact=exact.truth,
)
def logical_or(a: Array, b: Array) -> Array:
    """Return whether an operand is nonzero or true."""
    return np.logical_or(a, b)
