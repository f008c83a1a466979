"""Recognizes masks that depend only on positions: causal masks, windows, and key lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Protocol

from fusec.dataclasses import dataclass, replace
from fusec.index.instances import Instance
from fusec.ir.dim import Dim, Symbol, dim
from fusec.ir.dtype import I64, U64, DType
from fusec.ir.expression import Index, Var, index, of_var
from fusec.ops.acts import Act, act_of

_ORDERS = {
    Act.AT_MOST: (1, 0, 0),
    Act.LESS: (1, 0, 1),
    Act.AT_LEAST: (0, 1, 0),
    Act.GREATER: (0, 1, 1),
}
"""For a comparison: index of the larger operand, of the smaller, and their least difference."""
MOST_ROWS = 1 << 30
"""More queries or keys than any GPU has memory for, at 64 16-bit features per row."""


def does(instance: Instance, act: Act) -> bool:
    """Return whether an instance is the result of the given operation."""
    node = instance.node
    return instance.kind == "op" and node is not None and act_of(node.op) is act


@dataclass(frozen=True)
class Bound:
    """A limit of the keys that a query sees.

    is_end: the last visible key, else the first; by_row: relative to the query's index, else to 0;
    offset: added to that.
    """

    is_end: bool
    by_row: bool
    offset: Dim


@dataclass(frozen=True)
class Axes:
    """The loop variables of scores: the query, and the key as chunk * width + lane."""

    row: Var
    chunk: Var
    lane: Var
    width: int


@dataclass(frozen=True)
class Limit:
    """A limit of the keys that a batch sees, read from data.

    is_end: the first key that is not visible, else the first that is; at: that key minus an offset.
    """

    is_end: bool
    at: Instance
    offset: int


def masks_of(scores: Instance, axes: Axes) -> list[tuple[Bound, Instance]]:
    """Return the limits beyond which scores are minus infinity, each with its test."""
    found: list[tuple[Bound, Instance]] = []
    while is_masked(scores):
        for test in _parts(scores.operands[0]):
            bound = _bound(test, axes)
            if bound is not None:
                found.append((bound, test))
        scores = scores.operands[1]
    return found


def limits_of(scores: Instance, axes: Axes, known: frozenset[Var]) -> list[Limit]:
    """Return the limits of visible keys that are data of the given loop variables alone."""
    found: list[Limit] = []
    while is_masked(scores):
        found += [limit for t in _parts(scores.operands[0]) if (limit := _limit(t, axes, known))]
        scores = scores.operands[1]
    return found


def _limit(test: Instance, axes: Axes, known: frozenset[Var]) -> Limit | None:
    order = next((o for act, o in _ORDERS.items() if does(test, act)), None)
    if order is None:
        return None
    larger, smaller, least = order
    for place, is_end in ((smaller, True), (larger, False)):
        key, at = affine(test.operands[place]), test.operands[larger + smaller - place]
        if key is None or not at.dtype.is_integer or not at.variables <= known:
            continue
        if at.dtype == U64:
            return None  # the limit is computed in signed 64-bit integers
        if affine(at) is not None:
            return None  # known without data
        rest = key - of_var(axes.chunk) * axes.width - of_var(axes.lane)
        if rest.variables or not rest.is_const or not rest.constant.is_const:
            continue
        before = least - 1 if is_end else -least
        return Limit(is_end, at, -rest.constant.value - before)
    return None


def unmasked(scores: Instance, axes: Axes) -> Instance:
    """Return scores for tiles of visible keys only, without masks that only express bounds."""
    if not is_masked(scores):
        return scores
    test, given, lowest = scores.operands
    inside = unmasked(given, axes)
    if all(_bound(part, axes) is not None for part in _parts(test)):
        return inside
    return scores if inside is given else replace(scores, operands=(test, inside, lowest))


def is_masked(scores: Instance) -> bool:
    """Return whether scores are minus infinity wherever a test fails."""
    if not does(scores, Act.SELECT):
        return False
    lowest = scores.operands[2]
    return lowest.kind == "constant" and lowest.constant == -inf


def _parts(test: Instance) -> Iterator[Instance]:
    """Yield the conjuncts of a test."""
    if does(test, Act.BOTH) and test.operands[0].dtype.kind == "bool":
        for operand in test.operands:
            yield from _parts(operand)
    else:
        yield test


def _bound(test: Instance, axes: Axes) -> Bound | None:
    order = next((o for act, o in _ORDERS.items() if does(test, act)), None)
    if order is None:
        return None
    larger, smaller, least = order
    over, under = affine(test.operands[larger]), affine(test.operands[smaller])
    if over is None or under is None:
        return None
    # At least 0 where the test holds.
    slack = over - under - index(least)
    key, row = slack.coefficient(axes.lane), slack.coefficient(axes.row)
    if axes.lane.extent == 1:
        key = slack.coefficient(axes.chunk)
    if key is None or row is None or key not in (1, -1):
        return None
    whole = of_var(axes.chunk) * axes.width + of_var(axes.lane)
    rest = slack - whole * key - of_var(axes.row) * row
    if rest.variables or not rest.is_const:
        return None
    if key == -1 and row in (0, 1):
        return Bound(True, row == 1, rest.constant)
    if key == 1 and row in (0, -1):
        return Bound(False, row == -1, dim(0) - rest.constant)
    return None


def affine(instance: Instance) -> Index | None:
    """Return an integer as an affine expression of loop variables and sizes.

    None if it is anything else, or if its type may wrap or round where the expression would not.
    """
    place = _affine(instance)
    return place if place is not None and _holds(instance.dtype, place) else None


def _affine(instance: Instance) -> Index | None:
    if instance.kind == "index":
        return instance.address
    if instance.kind == "dim" and instance.dim is not None:
        return index(instance.dim)
    if instance.kind == "constant" and type(instance.constant) is int:
        return index(instance.constant)
    if instance.kind != "op" or instance.node is None or not instance.dtype.is_integer:
        return None
    if instance.node.op.converts and instance.operands[0].dtype.is_integer:
        return affine(instance.operands[0])
    sides = [affine(o) for o in instance.operands]
    if len(sides) != 2 or sides[0] is None or sides[1] is None:
        return None
    if does(instance, Act.ADD):
        return sides[0] + sides[1]
    return sides[0] - sides[1] if does(instance, Act.SUBTRACT) else None


def _holds(dtype: DType, place: Index) -> bool:
    """Return whether a type can represent all values of an integer; 64 bits hold any position."""
    if dtype == I64:
        return True
    limits = _limits(place)
    if limits is None:
        return False
    least, most = limits
    if dtype.is_float:
        exact = round(1 / dtype.epsilon)
        return -exact <= least and most <= exact
    if not dtype.is_integer:
        return False
    bits = dtype.bits - (dtype.kind == "int")
    return (-(1 << bits) if dtype.kind == "int" else 0) <= least and most < 1 << bits


def _limits(place: Index) -> tuple[int, int] | None:
    """Return the range of an integer of loop variables; None if unknown."""
    found = _limits_of_dim(place.constant)
    for atom, coefficient in place.terms:
        if found is None or not isinstance(atom, Var) or not coefficient.is_const:
            return None
        last = atom.extent.value - 1 if atom.extent.is_const else MOST_ROWS
        ends = sorted((0, coefficient.value * last))
        found = found[0] + ends[0], found[1] + ends[1]
    return found


def _limits_of_dim(size: Dim) -> tuple[int, int] | None:
    least = most = 0
    for monomial, coefficient in size.terms:
        ends = (coefficient, coefficient)
        if monomial:
            (first, *others) = monomial
            if others or not isinstance(first, Symbol) or not first.extent:
                return None
            ends = tuple(sorted((0, coefficient * MOST_ROWS)))
        least, most = least + ends[0], most + ends[1]
    return least, most


def size_of(place: Index) -> int | None:
    """Return an upper bound of an affine integer's absolute value; None if unknown."""
    dims = [place.constant, *(c for _, c in place.terms)]
    if any(not d.is_const for d in dims):
        return None
    size = abs(place.constant.value)
    for atom, coefficient in place.terms:
        if not isinstance(atom, Var) or not atom.extent.is_const:
            return None
        size += abs(coefficient.value) * (atom.extent.value - 1)
    return size


def seen_part(bounds: Sequence[Bound], rows: int, keys: int, hints: Mapping[str, int]) -> float:
    """Return the fraction of query-key pairs that the bounds let through."""
    seen, steps = 0.0, min(rows, 64)
    for step in range(steps):
        row = (step + 0.5) * rows / steps
        ends = [row * b.by_row + b.offset.evaluate(hints) for b in bounds if b.is_end]
        starts = [row * b.by_row + b.offset.evaluate(hints) for b in bounds if not b.is_end]
        seen += max(0.0, min([keys, *ends]) - max([0.0, *starts])) / keys
    return seen / steps


class Masked(Protocol):
    """A GEMM of queries and keys with bounds."""

    @property
    def bounds(self) -> Sequence[Bound]:
        """Return the limits of the keys that a row of queries sees."""
        ...

    @property
    def m(self) -> Dim:
        """Return the rows of queries."""
        ...

    @property
    def n(self) -> Dim:
        """Return the keys."""
        ...


def visible(products: Masked, hints: Mapping[str, int]) -> float:
    """Return the fraction of query-key pairs that positional masks let through."""
    if not products.bounds:
        return 1.0
    return seen_part(products.bounds, products.m.evaluate(hints), products.n.evaluate(hints), hints)
