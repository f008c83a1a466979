"""Expressions constructed from names, numbers and other expressions."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.kernel.nodes.expressions import (
    Binary,
    Call,
    Expression,
    Grouped,
    Operand,
    Type,
    Unary,
    operand,
)
from fusec.kernel.nodes.memory import Item


def vector_of(kind: Type, width: Operand = "kVec") -> Type:
    """Return the type of a vector."""
    return Type("fusec::Vec", (kind, operand(width)))


def call(function: str, *arguments: Operand, about: Iterable[Operand] = ()) -> Call:
    """Return a call of a function; about: the arguments of its template."""
    return Call(function, tuple(map(operand, arguments)), tuple(map(operand, about)))


def item(array: Operand, *indices: Operand) -> Expression:
    """Return an element of an array in the thread's registers, or of a vector in it."""
    found = operand(array)
    for each in indices:
        found = Item(found, operand(each))
    return found


def grouped(value: Expression, least: int) -> Expression:
    """Return a value in parentheses, for readability, if it binds less tightly than `least`."""
    return value if value.precedence >= least else Grouped(value)


def negated(value: Expression) -> Expression:
    """Return the negation of a test."""
    return Unary("!", value)


def both(tests: Iterable[Expression]) -> Expression | None:
    """Return the conjunction of tests; None for none."""
    return _chained("&&", tests)


def either(tests: Iterable[Expression]) -> Expression | None:
    """Return the disjunction of tests; None for none."""
    return _chained("||", tests)


def total(terms: Iterable[Expression]) -> Expression | None:
    """Return the sum of terms; None for none."""
    return _chained("+", terms)


def _chained(operator: str, terms: Iterable[Expression]) -> Expression | None:
    found: Expression | None = None
    for term in terms:
        found = term if found is None else Binary(operator, found, term)
    return found
