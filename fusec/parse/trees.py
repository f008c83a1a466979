"""The trees of op lines, types and sizes: syntax only, every node with its place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Literal:
    """A number, bool or none; a complex number is read as a call, `c64(1, 2)`."""

    value: bool | int | float | None
    start: int
    end: int


@dataclass(frozen=True)
class Name:
    """A name: of a value, dim, dtype or attribute, as the place decides."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Items:
    """A list in brackets."""

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
    """A call."""

    name: Name
    arguments: tuple[Argument, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Infix:
    """Arithmetic on sizes: +, -, *, // or %."""

    operator: str
    left: Tree
    right: Tree
    start: int
    end: int


Tree = Literal | Name | Items | CallTree | Infix


@dataclass(frozen=True)
class OpLine:
    """`names = call`, or `name = size`."""

    names: tuple[Name, ...]
    tree: Tree
