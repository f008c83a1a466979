"""Prints size expressions as C, and derives checks that they do not overflow 64 bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fusec.emit.code import Code, code, reads_of
from fusec.ir.dim import Atom, Call, Dim, Symbol, dim, symbol

FUNCTIONS = {
    "floordiv": "floor_div", "ceildiv": "ceil_div", "mod": "floor_mod", "min": "min_of",
    "max": "max_of",
}  # fmt: skip
"""Names of the functions in the emitted C."""


class Sizes:
    """Prints size expressions; `fields` maps symbols to the code of their values.

    called: the functions called by what was printed so far.
    """

    def __init__(self, fields: Mapping[str, Code]) -> None:
        """Start with nothing printed."""
        self.fields = dict(fields)
        self.called: set[str] = set()

    def text(self, value: Dim) -> Code:
        """Return an expression of type int64_t."""
        return Code(self._printed(value), reads_of(self.fields[s] for s in value.symbols))

    def _printed(self, value: Dim) -> str:
        if value.is_const:
            return str(value.value)
        text = ""
        for monomial, coefficient in value.terms:
            factors = [self._atom(a) for a in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.append(str(abs(coefficient)))
            body = " * ".join(factors)
            if text:
                text += f" {'-' if coefficient < 0 else '+'} {body}"
            else:
                text = f"-{body}" if coefficient < 0 else body
        return text

    def factor(self, value: Dim) -> Code:
        """Return an expression that binds at least as tightly as a product."""
        return self.text(value) if len(value.terms) <= 1 else code("({})", self.text(value))

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return self.fields[atom.name].text
        function = FUNCTIONS[atom.function]
        self.called.add(function)
        return f"{function}({self._printed(atom.left)}, {self._printed(atom.right)})"


def divisors(values: Iterable[Dim]) -> tuple[Dim, ...]:
    """Return divisors of expressions that may be zero, in the order of evaluation."""
    found: dict[Dim, None] = {}

    def visit(value: Dim) -> None:
        for monomial, _ in value.terms:
            for atom in monomial:
                if isinstance(atom, Call):
                    visit(atom.left)
                    visit(atom.right)
                    divides = atom.function not in ("min", "max")
                    if divides and (not atom.right.is_const or atom.right.value == 0):
                        found[atom.right] = None

    for value in values:
        visit(value)
    return tuple(found)


Bounds = Mapping[str, Dim]


def largest_terms(values: Iterable[Dim], bounds: Bounds) -> tuple[tuple[Dim, int], ...]:
    """Return products of symbols that bound expressions, with a factor for each.

    bounds: upper bounds of symbols that are not checked. If each product, with symbols below 1
    counted as 1, times its factor fits in 64 bits, so does every intermediate value of the
    expressions.
    """
    factors: dict[tuple[str, ...], int] = {}
    for value in values:
        for names, coefficient in _bound(value, bounds).items():
            factors[names] = max(factors.get(names, 0), coefficient)
    found = [(n, c) for n, c in factors.items() if n and (len(n) > 1 or c > 1)]
    kept = [
        (names, max(c for n, c in factors.items() if _divides(n, names)))
        for names, _ in found
        if not any(n != names and _divides(names, n) for n, _ in found)
    ]
    return tuple((_product(names), c) for names, c in sorted(kept))


def _product(names: Iterable[str]) -> Dim:
    total = dim(1)
    for name in names:
        total = total * symbol(name)
    return total


def _divides(small: tuple[str, ...], large: tuple[str, ...]) -> bool:
    return all(small.count(n) <= large.count(n) for n in small)


def _bound(value: Dim, bounds: Bounds) -> dict[tuple[str, ...], int]:
    """Return factors by product of symbols, such that they bound every partial sum."""
    total: dict[tuple[str, ...], int] = {}
    for monomial, coefficient in value.terms:
        product: dict[tuple[str, ...], int] = {(): abs(coefficient)}
        for atom in monomial:
            product = _times(product, _bound_of(atom, bounds))
        for names, c in product.items():
            total[names] = total.get(names, 0) + c
    # Each is checked alone; the sum of n terms is at most n times the largest.
    return {names: c * max(1, len(total)) for names, c in total.items()}


def _bound_of(atom: Atom, bounds: Bounds) -> dict[tuple[str, ...], int]:
    if isinstance(atom, Symbol):
        known = bounds.get(atom.name)
        return {(atom.name,): 1} if known is None else _bound(known, bounds)
    total: dict[tuple[str, ...], int] = {(): 1}  # for ceildiv
    for side in (atom.left, atom.right):
        for names, c in _bound(side, bounds).items():
            total[names] = total.get(names, 0) + c
    return total


def _times(
    a: Mapping[tuple[str, ...], int], b: Mapping[tuple[str, ...], int]
) -> dict[tuple[str, ...], int]:
    product: dict[tuple[str, ...], int] = {}
    for m, c in a.items():
        for n, d in b.items():
            names = tuple(sorted((*m, *n)))
            product[names] = product.get(names, 0) + c * d
    return product
