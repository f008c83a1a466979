"""Index expressions: sums of variables, quotients, remainders and loaded integers, times Dims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Union

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim, DimLike, Shape, dim, floordiv, mod
from fusec.ir.graph import Value
from fusec.properties import cached_property


@dataclass(frozen=True)
class Var:
    """A loop variable with values from 0 to extent - 1."""

    name: str
    extent: Dim

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Var) and (self.name, self.extent) == (other.name, other.extent)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.extent))

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Quotient:
    """inner / divisor of a nonnegative index, rounded down."""

    inner: Index
    divisor: Dim

    def __str__(self) -> str:
        return f"({self.inner}) / {_factor(self.divisor)}"


@dataclass(frozen=True)
class Remainder:
    """inner modulo divisor of a nonnegative index."""

    inner: Index
    divisor: Dim

    def __str__(self) -> str:
        return f"({self.inner}) % {_factor(self.divisor)}"


@dataclass(frozen=True)
class Loaded:
    """An integer read from a tensor at coordinates (none for a scalar), from 0 to extent - 1."""

    tensor: Value
    coordinates: tuple[Index, ...]
    extent: Dim

    def __str__(self) -> str:
        return f"{self.tensor.name}[{', '.join(str(c) for c in self.coordinates)}]"


Atom = Var | Quotient | Remainder | Loaded
_ZERO, _ONE = dim(0), dim(1)
IndexLike = Union["Index", Dim, int]


def _factor(value: Dim) -> str:
    text = str(value)
    return text if " " not in text else f"({text})"


@dataclass(frozen=True, eq=False)
class Index:
    """An index in a normal form: `constant` plus the sum of coefficient * atom over `terms`."""

    terms: tuple[tuple[Atom, Dim], ...]
    constant: Dim

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        mine = (self.terms, self.constant)
        return isinstance(other, Index) and mine == (other.terms, other.constant)

    @cached_property
    def _hash(self) -> int:
        return hash((self.terms, self.constant))

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_const(self) -> bool:
        """Return whether no loop variable occurs."""
        return not self.terms

    @cached_property
    def variables(self) -> frozenset[Var]:
        """Return every loop variable that occurs, including inside quotients and remainders."""
        return frozenset[Var]().union(*(variables_of(atom) for atom, _ in self.terms))

    @cached_property
    def loaded(self) -> frozenset[Loaded]:
        """Return every loaded integer that occurs, including inside quotients and remainders."""
        found: set[Loaded] = set()
        for atom, _ in self.terms:
            if isinstance(atom, Loaded):
                found.add(atom)
            elif not isinstance(atom, Var):
                found |= atom.inner.loaded
        return frozenset(found)

    def coefficient(self, variable: Var) -> Dim | None:
        """Return a variable's coefficient; None if a quotient or remainder contains it too."""
        direct = dim(0)
        for atom, coefficient in self.terms:
            if atom == variable:
                direct = coefficient
            elif not isinstance(atom, Var) and variable in variables_of(atom):
                return None
        return direct

    def __add__(self, other: IndexLike) -> Index:
        right = index(other)
        if not right.terms and right.constant == 0:
            return self
        return _sum(self, right)

    __radd__ = __add__

    def __sub__(self, other: IndexLike) -> Index:
        return self + index(other) * -1

    def __mul__(self, factor: DimLike) -> Index:
        by = dim(factor)
        return self if by == 1 else _multiple(self, by)

    def __floordiv__(self, divisor: DimLike) -> Index:
        return _divide(self, dim(divisor))

    def __mod__(self, divisor: DimLike) -> Index:
        return _modulo(self, dim(divisor))

    def substitute(self, values: Mapping[Var, Index]) -> Index:
        """Return the index with variables replaced, simplified again."""
        if not self.variables & values.keys():
            return self
        total = index(self.constant)
        for atom, coefficient in self.terms:
            total = total + _substitute_atom(atom, values) * coefficient
        return total

    @cached_property
    def bounds(self) -> tuple[Dim | None, Dim | None]:
        """Return the smallest and the largest value (inclusive), None if unknown."""
        low: Dim | None = self.constant
        high: Dim | None = self.constant
        for atom, coefficient in self.terms:
            top = _largest(atom)
            if coefficient.at_least(0):
                high = None if high is None or top is None else high + coefficient * top
            elif (-coefficient).at_least(0):
                low = None if low is None or top is None else low + coefficient * top
            else:
                return None, None
        return low, high

    def within(self, low: DimLike, end: DimLike) -> bool:
        """Return whether low <= self < end is proven."""
        least, most = self.bounds
        return (
            least is not None
            and most is not None
            and least.at_least(low)
            and (dim(end) - 1).at_least(most)
        )

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    @cached_property
    def _text(self) -> str:
        parts = [(str(a) if c == 1 else f"{_atom_factor(a)} * {_factor(c)}") for a, c in self.terms]
        if not parts or self.constant != 0:
            parts.append(str(self.constant))
        return " + ".join(parts)


def _atom_factor(atom: Atom) -> str:
    return str(atom) if isinstance(atom, (Var, Loaded)) else f"({atom})"


def index(value: IndexLike) -> Index:
    """Return a constant, Dim or index as an Index."""
    return value if isinstance(value, Index) else Index((), dim(value))


def of_var(variable: Var) -> Index:
    """Return the index of one variable; 0 for an extent of 1."""
    return Index(() if variable.extent == 1 else ((variable, _ONE),), _ZERO)


def of_atom(atom: Atom) -> Index:
    """Return the index of one atom."""
    return Index(((atom, _ONE),), _ZERO)


def variables_of(atom: Atom) -> frozenset[Var]:
    """Return the loop variables on which an atom depends."""
    if isinstance(atom, Var):
        return frozenset({atom})
    if isinstance(atom, Loaded):
        return frozenset[Var]().union(*(c.variables for c in atom.coordinates))
    return atom.inner.variables


def _largest(atom: Atom) -> Dim | None:
    if isinstance(atom, (Var, Loaded)):
        return atom.extent - 1
    if isinstance(atom, Remainder):
        return atom.divisor - 1
    _, high = atom.inner.bounds
    return None if high is None else floordiv(high, atom.divisor)


def _order(term: tuple[Atom, Dim]) -> tuple[int, str]:
    return (0 if isinstance(term[0], Var) else 1, str(term[0]))


def _collect(terms: Iterable[tuple[Atom, Dim]], constant: Dim) -> Index:
    sums: dict[Atom, Dim] = {}
    for atom, coefficient in terms:
        sums[atom] = sums[atom] + coefficient if atom in sums else coefficient
    sums = {a: c for a, c in sums.items() if c != 0}
    for atom, coefficient in sums.items():
        if not isinstance(atom, Remainder):
            continue
        # d * (x / d) + x % d = x
        whole = _divide(atom.inner, atom.divisor)
        if len(whole.terms) != 1 or whole.constant != 0:
            continue
        quotient, scale = whole.terms[0]
        wanted = coefficient * atom.divisor
        if quotient in sums and sums[quotient] * 1 == wanted.divide(scale):
            rest = [(a, c) for a, c in sums.items() if a not in (atom, quotient)]
            inner = [(a, c * coefficient) for a, c in atom.inner.terms]
            return _collect([*rest, *inner], constant + atom.inner.constant * coefficient)
        for other, factor in sums.items():
            # d * ((x / d) % e) + x % d = x % (d * e)
            if isinstance(other, Remainder) and other.inner == whole and factor == wanted:
                merged = _modulo(atom.inner, atom.divisor * other.divisor) * coefficient
                rest = [(a, c) for a, c in sums.items() if a not in (atom, other)]
                return _collect([*rest, *merged.terms], constant + merged.constant)
    return Index(tuple(sorted(sums.items(), key=_order)), constant)


@lru_cache(1 << 14)
def _sum(left: Index, right: Index) -> Index:
    return _collect([*left.terms, *right.terms], left.constant + right.constant)


@lru_cache(1 << 14)
def _multiple(value: Index, by: Dim) -> Index:
    return _collect([(a, c * by) for a, c in value.terms], value.constant * by)


def _split(value: Index, by: Dim) -> tuple[Index, Index]:
    """Return (quotient of the terms that `by` divides, the rest)."""
    divisible, rest = list[tuple[Atom, Dim]](), list[tuple[Atom, Dim]]()
    for atom, coefficient in value.terms:
        exact = coefficient.divide(by)
        (rest if exact is None else divisible).append(
            (atom, coefficient if exact is None else exact)
        )
    exact, remaining = value.constant.divide(by), value.constant
    if exact is None and value.constant.is_const and by.is_const and by.value > 0:
        quotient, modulus = divmod(value.constant.value, by.value)
        exact, remaining = dim(quotient), dim(modulus)
    elif exact is not None:
        remaining = dim(0)
    return _collect(divisible, exact or dim(0)), _collect(rest, remaining)


def _split_positive(value: Index, by: Dim) -> tuple[Index, Index]:
    """Return (quotient, rest) of a nonnegative value with a nonnegative rest.

    The rest is divided in C, which truncates negative quotients.
    """
    whole, rest = _split(value, by)
    low, _ = rest.bounds
    if low is not None and low.at_least(0):
        return whole, rest
    if low is None or not low.is_const or not by.is_const:
        return index(0), value
    borrowed = low.value // by.value
    return whole + borrowed, rest - index(borrowed * by.value)


def _common_factor(value: Index, by: Dim) -> tuple[Dim, Index, Index] | None:
    """Return (g, x, j) with value = g * x + j, 0 <= j < g and g a proper divisor of `by`."""
    for _, coefficient in value.terms:
        if coefficient == 1 or len(coefficient.terms) != 1 or by.divide(coefficient) is None:
            continue
        multiple, rest = _split(value, coefficient)
        if rest.within(0, coefficient):
            return coefficient, multiple, rest
    return None


@lru_cache(1 << 14)
def _divide(value: Index, by: Dim) -> Index:
    if by == 1:
        return value
    if value.is_const:
        return index(floordiv(value.constant, by))
    whole, rest = _split_positive(value, by)
    if rest.within(0, by):
        return whole
    common = _common_factor(rest, by)
    if common is not None:
        factor, inner, _ = common
        quotient = by.divide(factor)
        assert quotient is not None
        return whole + _divide(inner, quotient)
    if len(rest.terms) == 1 and rest.constant == 0 and rest.terms[0][1] == 1:
        atom = rest.terms[0][0]
        if isinstance(atom, Quotient):
            return whole + _divide(atom.inner, atom.divisor * by)
    return whole + Index(((Quotient(rest, by), dim(1)),), dim(0))


@lru_cache(1 << 14)
def _modulo(value: Index, by: Dim) -> Index:
    if by == 1:
        return index(0)
    if value.is_const:
        return index(mod(value.constant, by))
    _, rest = _split_positive(value, by)
    if rest.within(0, by):
        return rest
    common = _common_factor(rest, by)
    if common is not None:
        factor, inner, small = common
        quotient = by.divide(factor)
        assert quotient is not None
        return _modulo(inner, quotient) * factor + small
    if len(rest.terms) == 1 and rest.constant == 0 and rest.terms[0][1] == 1:
        atom = rest.terms[0][0]
        if isinstance(atom, Remainder) and atom.divisor.divide(by) is not None:
            return _modulo(atom.inner, by)
    return Index(((Remainder(rest, by), dim(1)),), dim(0))


def _substitute_atom(atom: Atom, values: Mapping[Var, Index]) -> Index:
    if isinstance(atom, Var):
        return values.get(atom, of_atom(atom))
    if isinstance(atom, Loaded):
        at = tuple(c.substitute(values) for c in atom.coordinates)
        return of_atom(Loaded(atom.tensor, at, atom.extent))
    inner = atom.inner.substitute(values)
    return inner // atom.divisor if isinstance(atom, Quotient) else inner % atom.divisor


def linearize(indices: Iterable[Index], strides: Iterable[DimLike]) -> Index:
    """Return the address: the sum of index * stride."""
    return _linearized(tuple(indices), tuple(strides))


@lru_cache(1 << 14)
def _linearized(indices: tuple[Index, ...], strides: tuple[DimLike, ...]) -> Index:
    pairs = zip(indices, strides, strict=True)
    return sum((position * stride for position, stride in pairs), index(0))


def contiguous_strides(shape: Iterable[DimLike]) -> tuple[Dim, ...]:
    """Return row-major strides in elements."""
    return _contiguous(tuple(shape))


@lru_cache(4096)
def _contiguous(shape: tuple[DimLike, ...]) -> tuple[Dim, ...]:
    strides, size = list[Dim](), dim(1)
    for extent in reversed(shape):
        strides.append(size)
        size = size * extent
    return tuple(reversed(strides))


def delinearize(position: Index, shape: Iterable[DimLike]) -> tuple[Index, ...]:
    """Return the row-major coordinates of a linear position in `shape`; 0 if the shape is empty."""
    return _delinearized(position, tuple(dim(e) for e in shape))


@lru_cache(1 << 14)
def _delinearized(position: Index, extents: Shape) -> tuple[Index, ...]:
    if any(e == 0 for e in extents):
        return (index(0),) * len(extents)
    coordinates: list[Index] = []
    for extent, stride in zip(extents, contiguous_strides(extents), strict=True):
        if extent == 1:
            coordinates.append(index(0))
            continue
        whole = position // stride
        # The position is inside the shape, so the outermost coordinate needs no remainder.
        outermost = all(c.is_const and c.constant == 0 for c in coordinates)
        coordinates.append(whole if outermost else whole % extent)
    return tuple(coordinates)
