"""Operations on the bits of integers."""

from __future__ import annotations

from fusec.ir.roles import Text
from fusec.ops.declare import Array, pointwise
from fusec.ops.dtypes import INTEGER, WHOLE
from fusec.ops.lazy import np


@pointwise(
    cuda="{a} & {b}",
    dtype=WHOLE,
    commutative=True,
    accuracy=0,
    discontinuous=True,
    text=Text(infix="&"),
)
def bitwise_and(a: Array, b: Array) -> Array:
    """Return the bitwise and."""
    return np.bitwise_and(a, b)


@pointwise(
    cuda="{a} | {b}",
    dtype=WHOLE,
    commutative=True,
    accuracy=0,
    discontinuous=True,
    text=Text(infix="|"),
)
def bitwise_or(a: Array, b: Array) -> Array:
    """Return the bitwise or."""
    return np.bitwise_or(a, b)


@pointwise(
    cuda="{a} ^ {b}",
    dtype=WHOLE,
    commutative=True,
    accuracy=0,
    discontinuous=True,
    text=Text(infix="^"),
)
def bitwise_xor(a: Array, b: Array) -> Array:
    """Return the bitwise exclusive or."""
    return np.bitwise_xor(a, b)


@pointwise(
    cuda="fusec::left_shift({a}, {b})",
    dtype=INTEGER,
    domain=(0, 7),
    accuracy=0,
    discontinuous=True,
    text=Text(infix="<<"),
)
def bitwise_left_shift(a: Array, b: Array) -> Array:
    """Shift a left by b bits; 0 for shifts of the type's width or more."""
    return np.left_shift(a, b)


@pointwise(
    cuda="fusec::right_shift({a}, {b})",
    dtype=INTEGER,
    domain=(0, 7),
    accuracy=0,
    discontinuous=True,
    text=Text(infix=">>"),
)
def bitwise_right_shift(a: Array, b: Array) -> Array:
    """Shift a right by b bits (arithmetic shift)."""
    return np.right_shift(a, b)


@pointwise(
    cuda="fusec::logical_right_shift({a}, {b})",
    dtype=INTEGER,
    domain=(0, 7),
    accuracy=0,
    discontinuous=True,
)
def logical_right_shift(a: Array, b: Array) -> Array:
    """Shift a right by b bits, filling with zeros (logical shift)."""
    value = np.asarray(a)
    unsigned = np.dtype(f"u{value.dtype.itemsize}")
    return np.right_shift(value.view(unsigned), np.asarray(b).astype(unsigned)).view(value.dtype)
