"""What expressions of a kernel are to the reader of bounds, besides sums and conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fences.scopes import Scope
from fences.syntax import Node

from .linear import Formula, Sum, Unknown

SIZES = {
    "char": 1, "bool": 1, "i8": 1, "u8": 1, "f8e4m3": 1, "f8e5m2": 1, "f16": 2, "bf16": 2,
    "i16": 2, "u16": 2, "float": 4, "int": 4, "i32": 4, "u32": 4, "unsigned": 4, "double": 8,
    "i64": 8, "u64": 8, "float4": 16, "float2": 8, "uint4": 16, "uint2": 8, "Barrier": 8,
    "unsignedchar": 1, "unsignedint": 4, "unsignedshort": 2, "short": 2, "longlong": 8,
}  # fmt: skip
INTEGERS = {
    "int": None, "i32": None, "i64": None, "u32": 0, "u64": 0, "unsigned": 0, "unsignedint": 0,
    "u8": 0, "u16": 0, "i8": None, "i16": None, "longlong": None, "char": None, "short": None,
}  # fmt: skip
"""Integer types, and the least value of those without a sign."""


@dataclass(frozen=True)
class Thing:
    """Something whose value does not matter; type: empty where that is not known."""

    type: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Pointer:
    """An address: bytes from the beginning of a buffer; type: that of an element."""

    root: str
    space: str  # global, shared or local
    offset: Sum = field(default_factory=lambda: Sum(0))
    type: str = ""
    extents: tuple[int, ...] = ()  # of an array of the thread's or block's own

    def plus(self, elements: Sum, size: int | None) -> Pointer:
        """Return the address so many elements on."""
        if self.space != "global":
            return self
        if size is None:
            reason = f"the size of `{self.type}`"
            lost = Unknown("distance", is_exact=False, reason=reason)
            return replace(self, offset=self.offset + Sum(0, {lost: 1}))
        return replace(self, offset=self.offset + elements * size)


@dataclass(frozen=True, eq=False)
class Choice:
    """One of two pointers."""

    test: Formula
    yes: Any
    no: Any


@dataclass(frozen=True, eq=False)
class Record:
    """A struct, or values in braces that become one; type: empty for these."""

    type: str
    values: tuple[Any, ...]
    given: tuple[int | str, ...] = ()  # its template's arguments


@dataclass(frozen=True)
class Struct:
    """A struct of the device headers: its template's parameters, and what its members are."""

    template: tuple[str, ...]
    members: tuple[str, ...]
    types: tuple[str, ...]
    defaults: tuple[str, ...]
    constants: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Held:
    """An array of pointers: all that are in it somewhere."""

    values: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class Closure:
    """A function object and where it was made."""

    node: Node
    scope: Scope
