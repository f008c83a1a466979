"""Exact quotients in sums of sizes: D, D // 2 and D // 4 are multiples of a common unit."""

from __future__ import annotations

from math import gcd, lcm
from typing import TYPE_CHECKING, TypeGuard

from fusec.dataclasses import replace

if TYPE_CHECKING:
    from fusec.ir.dim import Atom, Call, Dim, Monomial

Sums = dict["Monomial", int]
Member = tuple["Monomial", int, "Call | None"]


def is_quotient(atom: Atom) -> TypeGuard[Call]:
    """Return whether an atom is `symbol // constant` without a remainder."""
    return getattr(atom, "exact", False)


def has_quotients(sums: Sums) -> bool:
    """Return whether any term has an exact quotient as a factor."""
    return any(is_quotient(atom) for monomial in sums for atom in monomial)


def numerator(quotient: Call) -> Atom:
    """Return the symbol that an exact quotient divides."""
    return quotient.left.terms[0][0][0]


def with_divisor(quotient: Call, divisor: int) -> Atom:
    """Return the same symbol divided by another constant."""
    if divisor == 1:
        return numerator(quotient)
    constant: Dim = replace(quotient.right, terms=(((), divisor),))
    return replace(quotient, right=constant)


def merged(sums: Sums) -> Sums:
    """Return an equal sum in normal form: D - D // 2 is D // 2, and 2 * (D // 2) is D.

    Terms with quotients of several symbols are only added to terms of the same quotients. The sum
    of the terms of a normal form, in any order, is that form.
    """
    result = _merged_once(sums)
    while result != sums:
        sums, result = result, _merged_once(result)
    return result


def _merged_once(sums: Sums) -> Sums:
    groups: dict[Monomial, list[Member]] = {}
    result: Sums = {}
    for monomial, coefficient in sums.items():
        reduced, rest, quotients = _reduced(monomial, coefficient)
        if len(quotients) > 1:
            result[reduced] = result.get(reduced, 0) + rest
            continue
        own = quotients[0] if quotients else None
        whole = reduced if own is None else _exchanged(reduced, own, numerator(own))
        groups.setdefault(whole, []).append((reduced, rest, own))
    for whole, members in groups.items():
        for monomial, coefficient in _merged_group(whole, members):
            result[monomial] = result.get(monomial, 0) + coefficient
    return {monomial: coefficient for monomial, coefficient in result.items() if coefficient}


def _reduced(monomial: Monomial, coefficient: int) -> tuple[Monomial, int, list[Call]]:
    """Return a term without common factors of coefficient and divisors, and its quotients."""
    atoms: list[Atom] = []
    quotients: list[Call] = []
    for atom in monomial:
        if is_quotient(atom):
            shared = gcd(coefficient, atom.right.value)
            coefficient //= shared
            left = with_divisor(atom, atom.right.value // shared)
            if is_quotient(left):
                quotients.append(left)
            atoms.append(left)
        else:
            atoms.append(atom)
    return tuple(sorted(atoms, key=str)), coefficient, quotients


def _exchanged(monomial: Monomial, old: Atom, new: Atom) -> Monomial:
    atoms = list(monomial)
    atoms[atoms.index(old)] = new
    return tuple(sorted(atoms, key=str))


def _merged_group(whole: Monomial, members: list[Member]) -> list[tuple[Monomial, int]]:
    """Return the sum of terms that are fractions of one product of symbols."""
    from fractions import Fraction

    if len(members) == 1:
        return [(monomial, coefficient) for monomial, coefficient, _ in members]
    total = sum(
        (Fraction(c, 1 if q is None else q.right.value) for _, c, q in members), Fraction(0)
    )
    if total.denominator == 1:
        return [(whole, total.numerator)]
    by_symbol: dict[str, list[Call]] = {}
    for quotient in sorted((q for _, _, q in members if q is not None), key=str):
        by_symbol.setdefault(str(numerator(quotient)), []).append(quotient)
    first, *others = _shares(total.denominator, list(by_symbol.values()))
    terms = list[tuple["Monomial", int]]()
    for quotient, divisor in others:
        # The numerator of this divisor's partial fraction, at least 0 and below the divisor.
        unit = pow(total.denominator // divisor, -1, divisor)
        part = Fraction(total.numerator * unit % divisor, divisor)
        terms.append((_divided(whole, quotient, divisor), part.numerator))
        total -= part
    return [(_divided(whole, *first), total.numerator), *terms]


def _shares(denominator: int, quotients: list[list[Call]]) -> list[tuple[Call, int]]:
    """Return a quotient and a divisor for some symbols: coprime factors of the denominator.

    A symbol that is a multiple of two constants is a multiple of their least common multiple.
    """
    shares = list[tuple["Call", int]]()
    for of_symbol in quotients:
        share = gcd(denominator, lcm(*(q.right.value for q in of_symbol)))
        # Only whole prime powers of the denominator: the rest belongs to another symbol.
        while (shared := gcd(share, denominator // share)) > 1:
            share //= shared
        denominator //= share
        if share > 1:
            shares.append((of_symbol[0], share))
    return shares


def _divided(whole: Monomial, quotient: Call, divisor: int) -> Monomial:
    return _exchanged(whole, numerator(quotient), with_divisor(quotient, divisor))
