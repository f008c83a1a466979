"""Sizes: integer polynomials in symbols, with floordiv, ceildiv, mod, min, max; a normal form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import gcd
from typing import Union

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError
from fusec.ir.dim_text import call_text, sum_text
from fusec.ir.dim_text import shape_text as shape_text
from fusec.ir.quotients import has_quotients, is_quotient, merged, numerator
from fusec.properties import cached_property


@dataclass(frozen=True)
class Symbol:
    """A named integer; `extent` says that it is the size of a dim and so at least 1 in a kernel."""

    name: str
    extent: bool = True

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Call:
    """An application of floordiv, ceildiv, mod, min or max to two dims.

    exact: for floordiv of a symbol by a constant, whether the symbol is a multiple of the constant.
    """

    function: str
    left: Dim
    right: Dim
    exact: bool = False

    def of(self, left: Dim, right: Dim) -> Dim:
        """Return the same function of other dims, simplified; an exact one stays exact."""
        result = _FUNCTIONS[self.function](left, right)
        alone = left.terms[0][0] if len(left.terms) == 1 and left.terms[0][1] == 1 else ()
        if self.exact and len(alone) == 1 and isinstance(alone[0], Symbol):
            return _of_atom(Call("floordiv", left, right, exact=True))
        return result

    def __str__(self) -> str:
        return call_text(self)


Atom = Symbol | Call
Monomial = tuple[Atom, ...]
DimLike = Union["Dim", int]


def _key(monomial: Monomial) -> tuple[int, str]:
    return (-len(monomial), " ".join(str(a) for a in monomial))


@dataclass(frozen=True, eq=False)
class Dim:
    """An integer polynomial: a tuple of (monomial, coefficient), sorted, without zero coefficients.

    Two dims are equal if their normal forms are; a dim equals the int of a constant polynomial.
    """

    terms: tuple[tuple[Monomial, int], ...]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dim):
            return self is other or self.terms == other.terms
        return isinstance(other, int) and self.is_const and self.value == other

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.value) if self.is_const else hash(self.terms)

    @cached_property
    def is_const(self) -> bool:
        """Return whether no symbol occurs."""
        return not self.terms or (len(self.terms) == 1 and not self.terms[0][0])

    @cached_property
    def value(self) -> int:
        """Return the value of a constant dim; an assertion fails for others."""
        assert self.is_const, f"{self} is not a constant"
        return self.terms[0][1] if self.terms else 0

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Return the names of all symbols."""
        return frozenset(s.name for s in self.atoms() if isinstance(s, Symbol))

    @cached_property
    def count(self) -> int:
        """Return the number of symbols and calls, including those inside calls."""
        return sum(
            1 if isinstance(atom, Symbol) else 1 + atom.left.count + atom.right.count
            for monomial, _ in self.terms
            for atom in monomial
        )

    @cached_property
    def depth(self) -> int:
        """Return the nesting depth of calls; 0 for a polynomial in symbols."""
        calls = [a for monomial, _ in self.terms for a in monomial if isinstance(a, Call)]
        return max((1 + max(c.left.depth, c.right.depth) for c in calls), default=0)

    def atoms(self) -> Iterable[Atom]:
        """Yield every symbol and call, including those inside calls."""
        for monomial, _ in self.terms:
            for atom in monomial:
                yield atom
                if isinstance(atom, Call):
                    yield from atom.left.atoms()
                    yield from atom.right.atoms()

    def __add__(self, other: DimLike) -> Dim:
        if isinstance(other, int) and other == 0:
            return self
        right = dim(other)
        if self.is_const and right.is_const:
            return _constant(self.value + right.value)
        return _sum(self, right)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: DimLike) -> Dim:
        return self + (-dim(other))

    def __rsub__(self, other: DimLike) -> Dim:
        return dim(other) - self

    def __mul__(self, other: DimLike) -> Dim:
        right = dim(other)
        if right.is_const:
            if right.value == 1:
                return self
            if self.is_const:
                return _constant(self.value * right.value)
        return _multiple(self, right)

    __rmul__ = __mul__

    def __floordiv__(self, other: DimLike) -> Dim:
        return floordiv(self, other)

    def __mod__(self, other: DimLike) -> Dim:
        return mod(self, other)

    def divide(self, divisor: DimLike) -> Dim | None:
        """Return the exact quotient by `divisor`, or None if there is none.

        For a divisor of several terms the quotient has a single one.
        """
        by = dim(divisor)
        if by == self:
            return dim(1)
        if len(by.terms) != 1:
            return self._divide_by_sum(by)
        if self.is_const and by.is_const:
            return None if self.value % by.value else dim(self.value // by.value)
        (monomial, coefficient), quotient = by.terms[0], list[tuple[Monomial, int]]()
        for m, c in self.terms:
            rest = list(m)
            for atom in monomial:
                factor = atom
                if atom not in rest and is_quotient(atom):
                    c, factor = c * atom.right.value, numerator(atom)
                if factor not in rest:
                    return None
                rest.remove(factor)
            if c % coefficient:
                return None
            quotient.append((tuple(rest), c // coefficient))
        return _collect(quotient)

    def _divide_by_sum(self, by: Dim) -> Dim | None:
        if not by.terms or len(by.terms) != len(self.terms):
            return None
        first = Dim(self.terms[:1])
        candidates = (first.divide(Dim((term,))) for term in by.terms)
        return next((q for q in candidates if q is not None and q * by == self), None)

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """Return the value at `sizes`; FusecError names a symbol without a size."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for atom in monomial:
                product *= _evaluate_atom(atom, sizes)
            total += product
        return total

    def substitute(self, values: Mapping[str, Dim]) -> Dim:
        """Return the dim with symbols replaced."""
        if not values or not (self.symbols & values.keys()):
            return self
        return self.with_atoms(lambda atom: _substitute_atom(atom, values))

    def with_atoms(self, instead: Callable[[Atom], Dim]) -> Dim:
        """Return the dim with each symbol and call replaced by `instead` of it."""
        total = dim(0)
        for monomial, coefficient in self.terms:
            product = dim(coefficient)
            for atom in monomial:
                product = product * instead(atom)
            total = total + product
        return total

    def lower_bound(self) -> int | None:
        """Return a proven lower bound for extents of at least 1, or None."""
        return self._lower_bound

    @cached_property
    def _lower_bound(self) -> int | None:
        if self.is_const:
            return self.value
        one = dim(1)
        shifted = self.with_atoms(lambda atom: _shifted(atom, one))
        constant = 0
        for monomial, coefficient in shifted.terms:
            if not monomial:
                constant = coefficient
            elif coefficient < 0 or not all(_nonnegative(a) for a in monomial):
                return None
        return constant

    def at_least(self, other: DimLike) -> bool:
        """Return whether this dim is proven to be at least `other`."""
        if self.is_const and (isinstance(other, int) or other.is_const):
            return self.value >= (other if isinstance(other, int) else other.value)
        bound = (self - other).lower_bound()
        return bound is not None and bound >= 0

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return sum_text(self.terms)

    __repr__ = __str__


def _collect(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    sums: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    if len(sums) == 1 and () in sums:
        return dim(sums[()])
    if has_quotients(sums):
        sums = merged(sums)
    return Dim(tuple(sorted(((m, c) for m, c in sums.items() if c), key=lambda t: _key(t[0]))))


@lru_cache(4096)
def _sum(left: Dim, right: Dim) -> Dim:
    return _collect((*left.terms, *right.terms))


@lru_cache(4096)
def _multiple(left: Dim, right: Dim) -> Dim:
    return _collect(
        (tuple(sorted((*m, *n), key=str)), c * d) for m, c in left.terms for n, d in right.terms
    )


def _of_atom(atom: Atom) -> Dim:
    return Dim((((atom,), 1),))


def _nonnegative(atom: Atom) -> bool:
    if isinstance(atom, Symbol):
        return atom.extent
    left, right = atom.left.at_least(0), atom.right.at_least(0)
    return (left or right) if atom.function == "max" else (left and right)


def _shifted(atom: Atom, by: Dim) -> Dim:
    """Return an atom plus `by` if the atom is at least 1; a quotient becomes a new variable."""
    if isinstance(atom, Call):
        if not atom.exact:
            return _of_atom(atom)
        own, whole = _of_atom(replace(atom, exact=False)), numerator(atom)
        return own + by if isinstance(whole, Symbol) and whole.extent else own
    return _of_atom(atom) + by if atom.extent else _of_atom(atom)


def _evaluate_atom(atom: Atom, sizes: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        if atom.name not in sizes:
            raise FusecError(f"unknown size of dim `{atom.name}`")
        return sizes[atom.name]
    left, right = atom.left.evaluate(sizes), atom.right.evaluate(sizes)
    if atom.function in ("min", "max"):
        return min(left, right) if atom.function == "min" else max(left, right)
    if right == 0:
        raise FusecError(f"division by zero in `{atom}`")
    if atom.function == "floordiv":
        return left // right
    return -(-left // right) if atom.function == "ceildiv" else left % right


def _substitute_atom(atom: Atom, values: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        return values.get(atom.name, _of_atom(atom))
    return atom.of(atom.left.substitute(values), atom.right.substitute(values))


def dim(value: DimLike) -> Dim:
    """Return `value` as a Dim."""
    if isinstance(value, Dim):
        return value
    return _constant(int(value))


@lru_cache(4096)
def _constant(value: int) -> Dim:
    # Most dims are numbers, and most of these recur.
    return Dim((((), value),)) if value else Dim(())


def symbol(name: str, *, extent: bool = True) -> Dim:
    """Return the Dim of one symbol."""
    return _of_atom(Symbol(name, extent))


def floordiv(a: DimLike, b: DimLike) -> Dim:
    """Return a / b rounded down, simplified if both are constants or have a common factor."""
    left, right = dim(a), dim(b)
    if left.is_const and right.is_const and right.value:
        return dim(left.value // right.value)
    exact = left.divide(right)
    if exact is not None:
        return exact
    shared = _shared(left, right)
    if shared is not None:
        return floordiv(*shared)
    common = gcd(right.value, *(c for _, c in left.terms)) if right.is_const else 1
    reduced = left.divide(dim(common)) if common > 1 else None
    if reduced is not None:
        return floordiv(reduced, right.value // common)
    whole, rest = _split(left, right)
    if whole is not None and right.lower_bound() is not None:
        if rest >= 0 and right.at_least(rest + 1):
            return whole
        if rest < 0 and right.at_least(-rest):
            return whole - 1
    return _of_atom(Call("floordiv", left, right))


def _shared(left: Dim, right: Dim) -> tuple[Dim, Dim] | None:
    """Return two sizes divided by their common symbol factors; None if there are none."""
    if len(right.terms) != 1 or not left.terms:
        return None
    factor = dim(1)
    for atom in dict.fromkeys(right.terms[0][0]):
        if all(atom in monomial for monomial, _ in left.terms):
            factor = factor * _of_atom(atom)
    if factor == 1:
        return None
    first, second = left.divide(factor), right.divide(factor)
    return None if first is None or second is None else (first, second)


def _split(value: Dim, by: Dim) -> tuple[Dim | None, int]:
    """Return (quotient of the non-constant terms, constant); the quotient is None if not exact."""
    constant = next((c for m, c in value.terms if not m), 0)
    return (value - constant).divide(by), constant


def ceildiv(a: DimLike, b: DimLike) -> Dim:
    """Return ceil(a / b)."""
    left, right = dim(a), dim(b)
    if left.is_const and right.is_const and right.value:
        return dim(-(-left.value // right.value))
    exact = left.divide(right)
    if exact is not None:
        return exact
    whole, rest = _split(left, right)
    if whole is not None and right.is_const and right.value > 0:
        return whole - (-rest // right.value)
    return _of_atom(Call("ceildiv", left, right))


def mod(a: DimLike, b: DimLike) -> Dim:
    """Return a modulo b, with the sign of b."""
    left, right = dim(a), dim(b)
    if left.is_const and right.is_const and right.value:
        return dim(left.value % right.value)
    if left.divide(right) is not None:
        return dim(0)
    whole, rest = _split(left, right)
    if whole is not None and right.is_const and right.value > 0:
        return dim(rest % right.value)
    return _of_atom(Call("mod", left, right))


def minimum(a: DimLike, b: DimLike) -> Dim:
    """Return the smaller of two dims."""
    left, right = dim(a), dim(b)
    if right.at_least(left) or _holds("min", left, right):
        return left
    if left.at_least(right) or _holds("min", right, left):
        return right
    return _of_atom(Call("min", left, right))


def maximum(a: DimLike, b: DimLike) -> Dim:
    """Return the larger of two dims."""
    left, right = dim(a), dim(b)
    if left.at_least(right) or _holds("max", left, right):
        return left
    if right.at_least(left) or _holds("max", right, left):
        return right
    return _of_atom(Call("max", left, right))


def _holds(function: str, value: Dim, part: Dim) -> bool:
    """Return whether `value` is already the min or max of `part` and another."""
    if len(value.terms) != 1 or len(value.terms[0][0]) != 1 or value.terms[0][1] != 1:
        return False
    atom = value.terms[0][0][0]
    return isinstance(atom, Call) and atom.function == function and part in (atom.left, atom.right)


def product(dims: Iterable[DimLike]) -> Dim:
    """Return the product of dims; 1 for none."""
    number, rest = 1, None
    for size in dims:
        if isinstance(size, Dim) and not size.is_const:
            rest = size if rest is None else rest * size
        else:
            number *= size if isinstance(size, int) else size.value
    return _constant(number) if rest is None else rest * number


Shape = tuple[Dim, ...]
_FUNCTIONS = {
    "floordiv": floordiv, "ceildiv": ceildiv, "mod": mod, "min": minimum, "max": maximum,
}  # fmt: skip
