"""Consequences of `multiple_of` for sizes: quotients without a remainder are exact."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from fusec.ir.dim import Atom, Call, Dim, Symbol, dim, symbol
from fusec.ir.quotients import is_quotient, numerator, with_divisor

Multiples = Mapping[str, int]


def with_exact_quotients(size: Dim, multiples: Multiples) -> Dim:
    """Return an equal size whose quotients are exact where `multiples` of the symbols prove it."""
    if not multiples or not any(isinstance(a, Call) for m, _ in size.terms for a in m):
        return size
    return size.with_atoms(lambda atom: _of(atom, multiples))


def _of(atom: Atom, multiples: Multiples) -> Dim:
    if isinstance(atom, Symbol) or is_quotient(atom):
        return Dim((((atom,), 1),))
    left = with_exact_quotients(atom.left, multiples)
    right = with_exact_quotients(atom.right, multiples)
    if atom.function in ("floordiv", "ceildiv", "mod") and right.is_const and right.value > 0:
        rest = next((c for m, c in left.terms if not m), 0)
        quotient = _divided(left - rest, right.value, multiples)
        if quotient is not None:
            # The multiple is divided exactly, and the constant as the function rounds it.
            own = Call(atom.function, dim(rest), right).of(dim(rest), right)
            return own if atom.function == "mod" else quotient + own
    if atom.function in ("min", "max"):
        return _limited(atom, left, right, multiples)
    return atom.of(left, right)


def _limited(atom: Call, left: Dim, right: Dim, multiples: Multiples) -> Dim:
    """Return the min or max of two sizes; an extent is at least its known divisor."""
    names = left.symbols | right.symbols
    units = {name: dim(n) * symbol(name) for name, n in multiples.items() if name in names}
    low, high = (size.substitute(units) for size in (left, right))
    if low.at_least(high):
        low, high, left, right = high, low, right, left
    if high.at_least(low):
        return left if atom.function == "min" else right
    return atom.of(left, right)


def _divided(size: Dim, by: int, multiples: Multiples) -> Dim | None:
    """Return size / by if every term is a multiple of `by`, else None."""
    total = dim(0)
    for monomial, coefficient in size.terms:
        shared = gcd(coefficient, by)
        left, product = by // shared, dim(coefficient // shared)
        for atom in monomial:
            part = gcd(left, _known_multiple(atom, multiples))
            left //= part
            product = product * Dim((((_shared_out(atom, part),), 1),))
        if left > 1:
            return None
        total = total + product
    return total


def _known_multiple(atom: Atom, multiples: Multiples) -> int:
    """Return a known divisor of an atom: for D // 2, half of a divisor of D."""
    if isinstance(atom, Symbol):
        return multiples.get(atom.name, 1)
    if not is_quotient(atom):
        return 1
    whole = numerator(atom)
    return multiples.get(str(whole), 1) // atom.right.value


def _shared_out(atom: Atom, by: int) -> Atom:
    if by == 1:
        return atom
    if isinstance(atom, Symbol):
        return Call("floordiv", Dim((((atom,), 1),)), dim(by), exact=True)
    return with_divisor(atom, atom.right.value * by)
