"""Common parts of GEMM kernels: constants, members of a Config, coordinates."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.ir.dim import Dim
from fusec.ir.expression import Atom, Quotient, Remainder, Var
from fusec.kernel.ctext import dim_text
from fusec.kernel.nodes import (
    BOOL,
    I64,
    INT,
    MOST_ON_A_LINE,
    ZERO,
    Binary,
    Blank,
    Cast,
    Comment,
    Constexpr,
    Expression,
    Let,
    Listed,
    Member,
    Name,
    Noted,
    Parameter,
    Statement,
    Type,
    Using,
    operand,
)
from fusec.kernel.sizes import Constants, size

INDEX = Type("Index")
"""The type of positions in GEMM kernels."""
ROWS, COLUMNS, ROW, COLUMN = map(Name, ("M", "N", "m", "n"))
"""The number of rows and columns of a result, and the indices of an element."""
TILE_BATCH = Member(Name("tile"), "batch")
GROUP_INDEX = Member(Name("group"), "index")


def integer(name: str, value: int | Expression, meaning: str = "") -> Statement:
    """Return an integer member of a Config, with its meaning."""
    return _member(INT, name, value, meaning)


def boolean(name: str, value: bool, meaning: str) -> Statement:
    """Return a boolean member of a Config, with its meaning."""
    return _member(BOOL, name, value, meaning)


def _member(kind: Type, name: str, value: int | Expression, meaning: str) -> Statement:
    member = Constexpr(kind, name, operand(value), is_member=True)
    return Noted(member, meaning) if meaning else member


def using(name: str, kind: Type, meaning: str) -> Statement:
    """Return a type alias in a Config, with its meaning."""
    return Noted(Using(name, kind), meaning)


THREADS = integer("kThreads", operand(128) * (Name("kConsumers") + 1))
"""Threads of a kernel with consumer warpgroups and one producer warpgroup."""


def shared_memory(constants: Constants) -> tuple[Statement, ...]:
    """Return the members of a Config with the layout of shared memory, if any.

    Their meanings are in comments above them if not all fit after them.
    """
    if not constants:
        return ()
    members = [integer(name, size(value).formula) for name, value, _ in constants]
    meanings = [meaning for _, _, meaning in constants]
    places: list[Statement] = []
    widest = max(len(str(member)) for member in members) + max(map(len, meanings))
    for member, meaning in zip(members, meanings, strict=True):
        if widest <= MOST_ON_A_LINE - len("  // "):
            places.append(Noted(member, meaning))
        else:
            places += (Comment(f"{meaning[:1].upper()}{meaning[1:]}."), member)
    return (Blank(), Comment("Shared memory, in bytes."), *places)


def constant(kind: Type, name: str, value: Dim) -> Statement:
    """Return the definition of a size of a C type."""
    text = dim_text(value, wide=kind != INT)
    if value.is_const:
        return Constexpr(kind, name, text)
    return Let(kind, name, text if kind == I64 else Cast(kind, text))  # sizes are passed in 64 bits


def element(*, has_batches: bool) -> tuple[Listed, Listed]:
    """Return a result's row and column as parameters, and as arguments; with its batch first."""
    names = ("batch", "m", "n") if has_batches else ("m", "n")
    arguments = (TILE_BATCH, ROW, COLUMN) if has_batches else (ROW, COLUMN)
    return Listed(tuple(Parameter(INDEX, name) for name in names)), Listed(arguments)


def coordinates(atoms: Iterable[Atom | None], number: Expression) -> Listed:
    """Return the coordinates along batch axes of a tensor map, from the index of the batch."""
    return Listed(tuple(ZERO if atom is None else _coordinate(atom, number) for atom in atoms))


def _coordinate(atom: Atom, number: Expression) -> Expression:
    if isinstance(atom, Var):
        return number
    assert isinstance(atom, (Quotient, Remainder))
    sign = "/" if isinstance(atom, Quotient) else "%"
    ((inner, _),) = atom.inner.terms
    divisor = dim_text(atom.divisor)
    by = divisor if atom.divisor.is_const else Cast(INT, divisor)
    return Binary(sign, _coordinate(inner, number), by)
