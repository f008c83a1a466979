"""The trees of op lines, types and sizes: only syntax, every node with its location."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError


@dataclass(frozen=True)
class Literal:
    """A number, bool or none; a complex number is read as a call, `c64(1, 2)`."""

    value: bool | int | float | None
    start: int
    end: int


@dataclass(frozen=True)
class String:
    """Quoted text, which only attributes take: `reduction="none"`."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Name:
    """A name of a value, dim, dtype or attribute, depending on its position."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Items:
    """A list in brackets, or in parentheses as Python's tuples are."""

    items: tuple[Tree, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Argument:
    """An argument, positional where `keyword` is None."""

    keyword: Name | None
    value: Tree


@dataclass(frozen=True)
class CallTree:
    """A call; of a method of an expression, `(a + b).sum(1)`, the name begins with a dot."""

    name: Name
    arguments: tuple[Argument, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Range:
    """`low:high:step` of a subscript, each of them None if it is omitted."""

    low: Tree | None
    high: Tree | None
    step: Tree | None
    start: int
    end: int


@dataclass(frozen=True)
class Dots:
    """`...` of a subscript."""

    start: int
    end: int


@dataclass(frozen=True)
class Subscript:
    """`base[keys]`."""

    base: Tree
    keys: tuple[Tree, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Prefix:
    """An operator before its operand: - or ~, or Python's * before a list of arguments."""

    operator: str
    operand: Tree
    start: int
    end: int


@dataclass(frozen=True)
class Infix:
    """An operator, at `place`, between two operands: of sizes or of values."""

    operator: str
    left: Tree
    right: Tree
    start: int
    end: int
    place: int


Tree = Literal | String | Name | Items | CallTree | Prefix | Infix | Subscript | Range | Dots


@dataclass(frozen=True)
class OpLine:
    """`names = expression`: a call, operators, a size or a number."""

    names: tuple[Name, ...]
    tree: Tree
    wrong: FusecError | None = None
    """The error of a line in a Python form that is understood: `x *= y`."""


def integer_literal(tree: Tree | None) -> int | None:
    """Return the integer that an expression literally is; None for others."""
    value = tree.value if isinstance(tree, Literal) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
