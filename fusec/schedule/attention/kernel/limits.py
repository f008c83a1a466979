"""The bounds on the keys that a query sees, in attention kernels."""

from __future__ import annotations

from fusec.ir.dim import Dim, dim
from fusec.kernel.ctext import dim_text
from fusec.kernel.lowering.products import COLUMN
from fusec.kernel.nodes import (
    ZERO,
    Binary,
    Evaluate,
    Expression,
    Method,
    Name,
    Statement,
    Sum,
    call,
)
from fusec.schedule.attention.masks import MOST_ROWS, Bound


def narrowed(*limits: Expression, is_end: bool) -> Statement:
    """Return the statement that narrows the range of visible keys `seen`, at its end or start."""
    return Evaluate(Method(Name("seen"), "end_at" if is_end else "begin_at", limits))


def narrowed_by_rows(offset: Dim, *, is_end: bool, by_row: bool = True) -> Statement:
    """Return the statement that narrows what any, and what all, of rows `first` to `last` see."""
    rows = ("last", "first") if is_end else ("first", "last")
    return narrowed(*(counted(row if by_row else "", offset) for row in rows), is_end=is_end)


def bound_test(bound: Bound, width: int) -> Expression:
    """Return the test whether query `m` sees key `n`, or the i-th of several keys from there on."""
    key = COLUMN + "i" if width > 1 else COLUMN
    end = counted("m" if bound.by_row else "", bound.offset)
    return Binary("<=" if bound.is_end else ">=", key, end)


def counted(name: str, offset: Dim) -> Expression:
    """Return a position, or 0, plus an offset, clamped where its size no longer matters."""
    if offset.is_const:
        offset = dim(max(-MOST_ROWS, min(offset.value, MOST_ROWS)))
    known = dim(sum(c for monomial, c in offset.terms if not monomial))
    terms: list[Expression] = [Name(name)] if name else []
    if not offset.is_const:
        terms.append(call("fusec::offset_of", dim_text(offset - known)))
    if known != 0:
        terms.append(dim_text(known))
    return Sum(tuple(terms)) if len(terms) > 1 else terms[0] if terms else ZERO
