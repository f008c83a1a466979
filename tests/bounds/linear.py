"""Whole numbers that depend on threads and loops, and what is proven of them.

A number is a sum of unknowns with whole coefficients. An unknown has limits, and facts: sums that
are never negative. `proven` shows by linear programming that a sum is not negative where some
conditions hold; the multipliers that it finds are rounded and checked in whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, gcd

import numpy as np

MOST_SPLITS = 6
"""Unknowns of which each case is tried by itself."""


@dataclass(eq=False)
class Unknown:
    """A number that is not known: from `low` to `high`, where these are not None.

    facts: sums that are not negative. cases: numbers one of which it is, each where a condition
    holds. is_exact: whether each value within limits and facts occurs; reason: why it is not known.
    """

    name: str
    low: int | None = None
    high: int | None = None
    facts: list[Sum] = field(default_factory=list["Sum"])
    cases: list[tuple[Formula, Sum]] = field(default_factory=list["tuple[Formula, Sum]"])
    is_exact: bool = True
    reason: str = ""

    def __repr__(self) -> str:
        return self.name


class Sum:
    """A constant and unknowns with whole coefficients."""

    __slots__ = ("constant", "key", "terms")

    def __init__(self, constant: int, terms: Mapping[Unknown, int] | None = None) -> None:
        self.constant = int(constant)
        self.terms: dict[Unknown, int] = {u: c for u, c in (terms or {}).items() if c}
        self.key = (self.constant, frozenset((id(u), c) for u, c in self.terms.items()))

    def __repr__(self) -> str:
        return " + ".join([*(f"{c} {u}" for u, c in self.terms.items()), str(self.constant)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sum) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __add__(self, other: Sum | int) -> Sum:
        if isinstance(other, int):
            return Sum(self.constant + other, self.terms)
        terms = dict(self.terms)
        for unknown, count in other.terms.items():
            terms[unknown] = terms.get(unknown, 0) + count
        return Sum(self.constant + other.constant, terms)

    def __mul__(self, factor: int) -> Sum:
        return Sum(self.constant * factor, {u: c * factor for u, c in self.terms.items()})

    def __neg__(self) -> Sum:
        return self * -1

    def __sub__(self, other: Sum | int) -> Sum:
        return self + -other

    @property
    def value(self) -> int | None:
        """Return the number, None where it is not known."""
        return None if self.terms else self.constant

    def limit(self, side: int) -> int | None:
        """Return the least (side -1) or the largest value by the limits of the unknowns alone."""
        found = self.constant
        for unknown, count in self.terms.items():
            at = unknown.high if (count > 0) == (side > 0) else unknown.low
            if at is None:
                return None
            found += count * at
        return found

    def put(self, unknown: Unknown, value: Sum) -> Sum:
        """Return the sum with a number in the place of an unknown."""
        count = self.terms.get(unknown)
        if not count:
            return self
        rest = Sum(self.constant, {u: c for u, c in self.terms.items() if u is not unknown})
        return rest + value * count

    def tightened(self) -> Sum:
        """Return what a sum that is not negative says in whole numbers."""
        common = 0
        for count in self.terms.values():
            common = gcd(common, count)
        if common <= 1:
            return self
        return Sum(self.constant // common, {u: c // common for u, c in self.terms.items()})


@dataclass(frozen=True)
class Formula:
    """A condition: `true`, `false`, `unknown`, `sum` (not negative), `and` and `or` of others."""

    kind: str
    sum: Sum | None = None
    parts: tuple[Formula, ...] = ()

    def __invert__(self) -> Formula:
        if self.kind == "sum":
            assert self.sum is not None
            return at_least_zero(-self.sum - 1)
        if self.kind in ("and", "or"):
            return joined("or" if self.kind == "and" else "and", [~p for p in self.parts])
        return {"true": FALSE, "false": TRUE}.get(self.kind, self)

    def __and__(self, other: Formula) -> Formula:
        return joined("and", [self, other])

    def __or__(self, other: Formula) -> Formula:
        return joined("or", [self, other])

    @property
    def is_exact(self) -> bool:
        """Return whether all of it is known."""
        return self.kind != "unknown" and all(p.is_exact for p in self.parts)


TRUE, FALSE, PERHAPS = Formula("true"), Formula("false"), Formula("unknown")


def at_least_zero(value: Sum) -> Formula:
    """Return the condition that a number is not negative."""
    low, high = value.limit(-1), value.limit(1)
    if low is not None and low >= 0:
        return TRUE
    if high is not None and high < 0:
        return FALSE
    return Formula("sum", value.tightened())


def joined(kind: str, parts: Iterable[Formula]) -> Formula:
    """Return the conjunction or the disjunction of conditions."""
    neutral, decisive = (TRUE, FALSE) if kind == "and" else (FALSE, TRUE)
    found: dict[Formula, None] = {}
    for part in parts:
        if part.kind == decisive.kind:
            return decisive
        if part.kind == kind:
            found |= dict.fromkeys(part.parts)
        elif part.kind != neutral.kind:
            found[part] = None
    if len(found) <= 1:
        return next(iter(found), neutral)
    return Formula(kind, parts=tuple(found))


def split_of(conditions: Iterable[Formula]) -> tuple[list[Sum], list[Formula]]:
    """Return the sums that are not negative where all conditions hold, and the disjunctions."""
    whole = joined("and", conditions)
    parts = whole.parts if whole.kind == "and" else (whole,)
    sums = [p.sum for p in parts if p.sum is not None]
    if whole.kind == "false":
        sums.append(Sum(-1))
    return sums, [p for p in parts if p.kind == "or"]


def related(goal: Sum, facts: Sequence[Sum]) -> list[Sum]:
    """Return the facts that can say something of a sum, those of its unknowns among them."""
    seen, todo = set[Unknown](), list(goal.terms)
    found: dict[Sum, None] = {}
    while todo:
        unknown = todo.pop()
        if unknown in seen:
            continue
        seen.add(unknown)
        for fact in (*unknown.facts, *(f for f in facts if unknown in f.terms)):
            found[fact] = None
            todo += [u for u in fact.terms if u not in seen]
    return [*found]


def contradict(facts: Sequence[Sum]) -> bool:
    """Return whether facts surely do not hold together: none do unless something is added."""
    added = Unknown("added", 0)
    found = least(Sum(0, {added: 1}), [f + Sum(0, {added: 1}) for f in facts], slack=False)
    return found is not None and found > 0


def least(goal: Sum, facts: Sequence[Sum], *, slack: bool = True) -> int | None:
    """Return a number that a sum is never below where facts are not negative; None without one.

    slack: whether it is seen where facts contradict each other; 0 then.
    """
    by_limits = goal.limit(-1)
    near = related(goal, facts)
    unknowns = [*dict.fromkeys(u for s in (goal, *near) for u in s.terms)]
    if not near or not unknowns:
        return by_limits
    place = {u: k for k, u in enumerate(unknowns)}
    rows = np.zeros((len(near), len(unknowns)))
    for number, fact in enumerate(near):
        for unknown, count in fact.terms.items():
            rows[number, place[unknown]] = -count
    from scipy.optimize import linprog  # half a second, of any process that collects the tests

    costs = np.array([goal.terms.get(u, 0) for u in unknowns], float)
    bounds = [(u.low, u.high) for u in unknowns]
    answer = linprog(costs, rows, [f.constant for f in near], bounds=bounds, method="highs")
    if answer.status == 2 and slack and contradict(near):
        return max(by_limits or 0, 0)  # nothing is here
    if answer.status != 0:
        return by_limits
    best = by_limits
    for most in (64, 1 << 20):
        # What is taken off is never negative, so that the rest is below the goal.
        rest: dict[Unknown, Fraction] = {u: Fraction(c) for u, c in goal.terms.items()}
        constant = Fraction(goal.constant)
        for fact, price in zip(near, answer.ineqlin.marginals, strict=True):
            times = Fraction(max(0.0, -float(price))).limit_denominator(most)
            constant -= times * fact.constant
            for unknown, count in fact.terms.items():
                rest[unknown] = rest.get(unknown, Fraction(0)) - times * count
        for unknown, count in rest.items():
            at = unknown.low if count > 0 else unknown.high
            if count and at is None:
                break
            constant += count * (at or 0)
        else:
            best = ceil(constant) if best is None else max(best, ceil(constant))
    return best


def proven(goal: Sum, conditions: Sequence[Formula], splits: int = MOST_SPLITS) -> bool:
    """Return whether a number is surely not negative where conditions hold."""
    low = goal.limit(-1)
    if low is not None and low >= 0:
        return True
    facts, disjunctions = split_of(conditions)
    if any(not f.terms and f.constant < 0 for f in facts):
        return True
    found = least(goal, facts)
    if found is not None and found >= 0:
        return True
    if splits == 0:
        return False
    near = related(goal, facts)
    unknowns = [*dict.fromkeys(u for s in (goal, *near, *facts) for u in s.terms)]
    split = next((u for u in unknowns if u.cases), None)
    if split is not None:
        return all(
            proven(
                goal.put(split, value),
                [*(put_in(c, split, value) for c in conditions), put_in(test, split, value),
                 *(at_least_zero(f.put(split, value)) for f in split.facts)],
                splits - 1,
            )
            for test, value in split.cases
        )  # fmt: skip
    for each in disjunctions:
        others = [c for c in conditions if c is not each]
        rest = [*(p for p in joined("and", conditions).parts if p is not each)] or others
        return all(proven(goal, [*rest, part], splits - 1) for part in each.parts)
    return False


def put_in(condition: Formula, unknown: Unknown, value: Sum) -> Formula:
    """Return a condition with a number in the place of an unknown."""
    if condition.sum is not None:
        return at_least_zero(condition.sum.put(unknown, value))
    if condition.parts:
        return joined(condition.kind, [put_in(p, unknown, value) for p in condition.parts])
    return condition


def witness(goal: Sum, conditions: Sequence[Formula]) -> Mapping[Unknown, int] | None:
    """Return numbers for which conditions hold and a number is negative; None without any found."""
    if not all(c.is_exact for c in conditions):
        return None
    facts, disjunctions = split_of(conditions)
    if disjunctions:
        whole = [p for p in joined("and", conditions).parts if p is not disjunctions[0]]
        tried = (witness(goal, [*whole, part]) for part in disjunctions[0].parts)
        return next((w for w in tried if w is not None), None)
    facts = [*facts, -goal - 1]
    near = [*dict.fromkeys(f for s in facts for f in (s, *related(s, facts)))]
    unknowns = [*dict.fromkeys(u for s in near for u in s.terms)]
    if not all(u.is_exact for u in unknowns):
        return None
    split = next((u for u in unknowns if u.cases), None)
    if split is not None:
        tried = (
            witness(goal.put(split, v), [*(put_in(c, split, v) for c in conditions), test])
            for test, v in split.cases
        )
        return next((w for w in tried if w is not None), None)
    if not unknowns:
        return {} if all(f.constant >= 0 for f in near) else None
    from scipy.optimize import LinearConstraint, milp

    rows = np.array([[f.terms.get(u, 0) for u in unknowns] for f in near], float)
    limits = LinearConstraint(rows, [-f.constant for f in near], np.inf)
    lows = [-np.inf if u.low is None else u.low for u in unknowns]
    highs = [np.inf if u.high is None else u.high for u in unknowns]
    answer = milp(
        np.zeros(len(unknowns)), constraints=limits, bounds=(lows, highs),
        integrality=np.ones(len(unknowns)), options={"time_limit": 2},
    )  # fmt: skip
    if answer.x is None:
        return None
    found = {u: round(float(x)) for u, x in zip(unknowns, answer.x, strict=True)}
    value = lambda s: s.constant + sum(c * found[u] for u, c in s.terms.items())  # noqa: E731
    return found if all(value(f) >= 0 for f in near) else None


def unknowns_of(value: Sum) -> Iterator[Unknown]:
    """Yield the unknowns that a number depends on."""
    seen, todo = set[Unknown](), list(value.terms)
    while todo:
        unknown = todo.pop()
        if unknown not in seen:
            seen.add(unknown)
            yield unknown
            for fact in unknown.facts:
                todo += fact.terms
