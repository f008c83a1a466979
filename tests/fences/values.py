"""Values of variables for all threads of a block at once, and where a pointer points.

A value is an exact number (one for all threads, or an array over the threads) or `Unknown`. What
is unknown but the same in all threads keeps a text, so that equal expressions compare equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Mask = Any  # a boolean array over the threads of the block
Exact = (int, bool, np.integer, np.bool_, np.ndarray)


@dataclass(frozen=True)
class Unknown:
    """A number that is not known; `offset` is added to what `text` names."""

    text: str
    varies: bool = False  # differs between threads
    offset: Any = 0

    @property
    def is_uniform(self) -> bool:
        """Whether all threads have the same."""
        return not self.varies and not isinstance(self.offset, np.ndarray)

    def __str__(self) -> str:
        return self.text if np.all(self.offset == 0) else f"({self.text}+{self.offset})"


@dataclass(frozen=True)
class Either:
    """`first` in the threads of a mask, `second` in the others."""

    mask: Any
    first: Any
    second: Any


@dataclass(frozen=True)
class Pointer:
    """An address: an array or buffer and one index for each of its extents seen so far.

    `size` is the bytes of what it points at in memory that is one run of bytes, 1 in an array.
    """

    root: str
    space: str  # shared, global or local
    index: tuple[Any, ...] = ()
    left: int = 0  # extents without an index yet
    size: int | None = 1
    type: str = ""
    inner: int | None = None  # bytes of a component, where it points at vectors

    def component(self, number: Any) -> Pointer:
        """Return a component of the vector pointed at."""
        if not self.inner or self.size == 1:
            return self
        return replace(self, size=self.inner, inner=None).plus(number)

    def plus(self, number: Any) -> Pointer:
        """Return the address `number` elements on."""
        if self.space != "shared":
            return self
        if self.left or not self.index:
            return replace(
                self, index=(*self.index, self.scaled(number)), left=max(self.left - 1, 0)
            )
        return replace(self, index=(*self.index[:-1], add(self.index[-1], self.scaled(number))))

    def scaled(self, number: Any) -> Any:
        """Return a distance in elements in the unit of the index."""
        if self.size is None:
            return Unknown("?", True) if not same(number, 0) else 0
        return number if self.size == 1 else binary("*", number, self.size)

    def part(self, name: str, extents: int) -> Pointer:
        """Return a field of the struct pointed at, an array of so many extents."""
        if name in "xyzw":
            return self
        return replace(self, root=f"{self.root}.{name}", size=1, left=extents, type="")


def is_exact(value: Any) -> bool:
    """Return whether a value is a known number."""
    return isinstance(value, Exact)


def is_uniform(value: Any) -> bool:
    """Return whether all threads have the same."""
    if isinstance(value, Unknown):
        return value.is_uniform
    return isinstance(value, (int, bool, np.integer, np.bool_))


def same(a: Any, b: Any) -> bool:
    """Return whether two values are known to be equal."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return is_exact(a) and is_exact(b) and bool(np.all(a == b))
    return type(a) is type(b) and a == b


def add(a: Any, b: Any) -> Any:
    """Return the sum."""
    return binary("+", a, b)


def text_of(value: Any) -> str:
    """Return the text of a value, the same for the same value."""
    if isinstance(value, np.ndarray):
        return f"array{hash(value.tobytes())}"
    if isinstance(value, Either):
        return f"either({text_of(value.first)},{text_of(value.second)},{text_of(value.mask)})"
    return str(value)


def binary(sign: str, a: Any, b: Any) -> Any:
    """Return `a sign b`."""
    if isinstance(a, Either) and isinstance(b, Either):
        return Unknown("?", True)
    if isinstance(a, Either):
        return Either(a.mask, binary(sign, a.first, b), binary(sign, a.second, b))
    if isinstance(b, Either):
        return Either(b.mask, binary(sign, a, b.first), binary(sign, a, b.second))
    if is_exact(a) and is_exact(b):
        return exact(sign, a, b)
    if not isinstance(a, (Unknown, *Exact)) or not isinstance(b, (Unknown, *Exact)):
        return Unknown("?", True)
    if sign == "+" and isinstance(b, Unknown) and is_exact(a):
        a, b = b, a
    if sign in "+-" and isinstance(a, Unknown) and is_exact(b):
        return replace(a, offset=exact(sign, a.offset, b))
    if sign == "*" and ((is_exact(a) and same(a, 0)) or (is_exact(b) and same(b, 0))):
        return 0
    is_order = sign in ("<", ">", "<=", ">=", "==", "!=")
    both = isinstance(a, Unknown) and isinstance(b, Unknown)
    if is_order and both and a.text == b.text and not a.varies:
        return exact(sign, a.offset, b.offset)
    if not (is_uniform(a) and is_uniform(b)):
        return Unknown("?", True)
    return Unknown(f"({text_of(a)} {sign} {text_of(b)})")


def exact(sign: str, a: Any, b: Any) -> Any:
    """Return `a sign b` of two known numbers."""
    match sign:
        case "+" | "-" | "*":
            result = a + b if sign == "+" else a - b if sign == "-" else a * b
        case "/":
            if np.any(b == 0):
                return Unknown("division by zero", True)
            result = a // b
        case "%":
            if np.any(b == 0):
                return Unknown("division by zero", True)
            result = a % b
        case "<<" | ">>":
            result = a << b if sign == "<<" else a >> b
        case "&" | "|" | "^":
            result = a & b if sign == "&" else a | b if sign == "|" else a ^ b
        case "&&":
            result = np.logical_and(a, b)
        case "||":
            result = np.logical_or(a, b)
        case "<" | ">":
            result = a < b if sign == "<" else a > b
        case "<=" | ">=":
            result = a <= b if sign == "<=" else a >= b
        case _:
            result = a == b if sign == "==" else a != b
    if isinstance(result, np.ndarray):
        return result
    return bool(result) if isinstance(result, (bool, np.bool_)) else int(result)
