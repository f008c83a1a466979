"""Index expressions equal integer arithmetic, however they are simplified."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from draws import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from fusec.index.access import Facts, access_class
from fusec.ir.dim import Dim, dim, symbol
from fusec.ir.expression import (
    Index,
    Loaded,
    Quotient,
    Var,
    contiguous_strides,
    delinearize,
    index,
    linearize,
    of_var,
)

QUICK = settings(drawn(60), derandomize=True)
SIZES = {"S": 3, "T": 5}
VARIABLES = (Var("a", dim(2)), Var("b", dim(7)), Var("c", dim(12)), Var("s", symbol("S")))
Env = Mapping[Var, int]


def evaluate(value: Index, at: Env, sizes: Mapping[str, int] = SIZES) -> int:
    """Return the number that an index stands for."""
    total = value.constant.evaluate(sizes)
    for atom, coefficient in value.terms:
        assert not isinstance(atom, Loaded)
        if isinstance(atom, Var):
            number = at[atom]
        else:
            inner, by = evaluate(atom.inner, at, sizes), atom.divisor.evaluate(sizes)
            # C would cut a negative quotient towards zero.
            assert inner >= 0
            number = inner // by if isinstance(atom, Quotient) else inner % by
        total += number * coefficient.evaluate(sizes)
    return total


def environments(variables: tuple[Var, ...] = VARIABLES) -> list[Env]:
    ranges = [range(v.extent.evaluate(SIZES)) for v in variables]
    return [dict(zip(variables, at, strict=True)) for at in itertools.product(*ranges)]


ALL = environments()


@dataclass(frozen=True)
class Pair:
    """An index, and the same computed on plain integers."""

    index: Index
    number: Callable[[Env], int]

    @property
    def most(self) -> int:
        return max(self.number(at) for at in ALL)


def leaf(variable: Var) -> Pair:
    return Pair(of_var(variable), lambda at: at[variable])


def constant(value: int) -> Pair:
    return Pair(index(value), lambda at: value)


def grown(pairs: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    small = st.integers(1, 9)

    def scaled(pair: Pair, by: int) -> Pair:
        return Pair(pair.index * by, lambda at: pair.number(at) * by)

    def times_symbol(pair: Pair) -> Pair:
        return Pair(pair.index * symbol("T"), lambda at: pair.number(at) * SIZES["T"])

    def added(a: Pair, b: Pair) -> Pair:
        return Pair(a.index + b.index, lambda at: a.number(at) + b.number(at))

    def divided(pair: Pair, by: int) -> Pair:
        return Pair(pair.index // by, lambda at: pair.number(at) // by)

    def divided_by_symbol(pair: Pair) -> Pair:
        return Pair(pair.index // symbol("T"), lambda at: pair.number(at) // SIZES["T"])

    def remainder(pair: Pair, by: int) -> Pair:
        return Pair(pair.index % by, lambda at: pair.number(at) % by)

    def remainder_by_symbol(pair: Pair) -> Pair:
        return Pair(pair.index % symbol("T"), lambda at: pair.number(at) % SIZES["T"])

    def turned(pair: Pair, beyond: int) -> Pair:
        """Count from the other end, as a flip does; still not negative."""
        top = pair.most + beyond
        return Pair(index(top) - pair.index, lambda at: top - pair.number(at))

    return st.one_of(
        st.builds(scaled, pairs, small),
        st.builds(times_symbol, pairs),
        st.builds(added, pairs, pairs),
        st.builds(divided, pairs, small),
        st.builds(remainder, pairs, small),
        st.builds(divided_by_symbol, pairs),
        st.builds(remainder_by_symbol, pairs),
        st.builds(turned, pairs, st.integers(0, 3)),
    )


LEAVES = st.one_of(st.sampled_from(VARIABLES).map(leaf), st.integers(0, 20).map(constant))
PAIRS = st.recursive(LEAVES, grown, max_leaves=6)


@QUICK
@given(PAIRS)
def test_simplified_indices_are_the_same_numbers(pair: Pair) -> None:
    for at in ALL:
        assert evaluate(pair.index, at) == pair.number(at)


@QUICK
@given(PAIRS)
def test_bounds_hold(pair: Pair) -> None:
    low, high = pair.index.bounds
    for at in ALL:
        number = pair.number(at)
        assert low is None or low.evaluate(SIZES) <= number
        assert high is None or number <= high.evaluate(SIZES)


@QUICK
@given(PAIRS, st.integers(0, 5), st.integers(1, 60))
def test_what_is_proven_to_lie_within_does(pair: Pair, low: int, end: int) -> None:
    if pair.index.within(low, end):
        assert all(low <= pair.number(at) < end for at in ALL)


@QUICK
@given(PAIRS, PAIRS)
def test_substitution_is_composition(outer: Pair, inner: Pair) -> None:
    variable = VARIABLES[2]
    extent = variable.extent.evaluate(SIZES)
    inside = inner.index % extent
    replaced = outer.index.substitute({variable: inside})
    for at in ALL:
        moved = {**at, variable: inner.number(at) % extent}
        assert evaluate(replaced, at) == outer.number(moved)


@QUICK
@given(PAIRS)
def test_a_coefficient_is_the_difference_of_neighbours(pair: Pair) -> None:
    for variable in VARIABLES:
        step = pair.index.coefficient(variable)
        if step is None:
            continue
        for at in ALL:
            if at[variable] + 1 < variable.extent.evaluate(SIZES):
                following = {**at, variable: at[variable] + 1}
                assert pair.number(following) - pair.number(at) == step.evaluate(SIZES)


SHAPES = st.lists(
    st.one_of(st.integers(1, 6).map(dim), st.sampled_from([symbol("S"), symbol("T")])),
    min_size=1,
    max_size=4,
).map(tuple)


@QUICK
@given(SHAPES)
def test_coordinates_of_positions_and_back(shape: tuple[Dim, ...]) -> None:
    extents = [e.evaluate(SIZES) for e in shape]
    size = int(np.prod(extents))
    total = dim(1)
    for extent in shape:
        total = total * extent
    position = Var("p", total)
    at = delinearize(of_var(position), shape)
    grid = np.stack(np.unravel_index(np.arange(size), extents), axis=-1)
    for number in range(size):
        env = {position: number}
        assert [evaluate(c, env) for c in at] == list(grid[number])
    assert linearize(at, contiguous_strides(shape)) == of_var(position)


@QUICK
@given(SHAPES)
def test_positions_of_coordinates_and_back(shape: tuple[Dim, ...]) -> None:
    axes = [Var(f"i{k}", e) for k, e in enumerate(shape)]
    at = [of_var(a) for a in axes]
    assert list(delinearize(linearize(at, contiguous_strides(shape)), shape)) == at


def test_the_normal_form_joins_what_belongs_together() -> None:
    x = of_var(Var("x", dim(120)))
    assert (x // 8) * 8 + x % 8 == x
    assert (x // 4) // 5 == x // 20
    assert (x * 6) // 3 == x * 2
    assert (x * 6) % 3 == index(0)
    assert (x + 240) // 120 == index(2)
    assert (x % 12) % 4 == x % 4
    assert (x // 4) % 3 * 4 + x % 4 == x % 12
    assert x // 120 == index(0)
    assert x % 120 == x
    b, h = symbol("B"), symbol("H")
    row, column = of_var(Var("r", b)), of_var(Var("c", h))
    assert (row * h + column) // h == row
    assert (row * h + column) % h == column


LANE = Var("v", dim(4))
CHUNK = Var("chunk", dim(16))
ROW = Var("row", dim(10))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (lambda r, c, v: r * 64 + c * 4 + v, "vector"),
        (lambda r, c, v: r * 62 + c * 4 + v, "scalar"),
        (lambda r, c, v: r * 64 + c * 4 + v + 1, "scalar"),
        (lambda r, c, v: r, "uniform"),
        (lambda r, c, v: (c * 4 + v) * 10 + r, "scalar"),
        (lambda r, c, v: r * 64 + (c * 4 + v) * 2, "scalar"),
        (lambda r, c, v: r * 64 + (c * 4 + v) // 4, "uniform"),
        (lambda r, c, v: (c * 4 + v) % 8 + r * 8, "vector"),
        (lambda r, c, v: index(63) - c * 4 - v, "scalar"),
    ],
)
def test_access_classes(address: Callable[..., Any], expected: str) -> None:
    position = index(address(of_var(ROW), of_var(CHUNK), of_var(LANE)))
    assert access_class(position, (), LANE, 4, Facts({})) == expected


def test_facts_are_asked_for_and_remembered() -> None:
    facts = Facts({"H": 64})
    position = of_var(ROW) * symbol("H") + of_var(CHUNK) * 4 + of_var(LANE)
    assert access_class(position, (), LANE, 4, facts) == "vector"
    assert [(str(v), by) for v, by in facts.assumed] == [("H", 4)]
    assert access_class(position, (), LANE, 4, Facts({"H": 63})) == "scalar"


def test_a_shape_without_elements_has_no_places() -> None:
    shape = (symbol("S"), dim(0), dim(3))
    assert delinearize(of_var(Var("p", dim(0))), shape) == (index(0),) * 3
