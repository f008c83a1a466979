"""Sums in blocks, as kernels take them: to the bit, and every term once."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from draws import drawn
from hypothesis import given
from hypothesis import strategies as st

from fusec.reference.errors.order import Order, Stage, performed, roundings, running

STAGES = st.lists(
    st.builds(
        Stage,
        chain=st.integers(1, 40),
        depth=st.integers(0, 6),
        width=st.integers(0, 40),
        run=st.integers(1, 5),
        cut=st.integers(0, 60),
    ),
    max_size=4,
)
ORDERS = st.builds(Order, st.builds(tuple, STAGES), st.sampled_from([1, 16]))


def add(a: np.float32, b: np.float32) -> np.float32:
    return np.float32(a + b)


def in_a_row(terms: list[np.float32]) -> np.float32:
    return reduce(add, terms, np.float32(0))


def halves(terms: list[np.float32], lanes: int) -> np.float32:
    """Return what a shuffle over `lanes` lanes gives, those without a term with 0."""
    values = [*terms, *[np.float32(0)] * (lanes - len(terms))]
    while len(values) > 1:
        half = len(values) // 2
        values = [add(a, b) for a, b in zip(values[:half], values[half:], strict=True)]
    return values[0]


def terms_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


def total(terms: np.ndarray, order: Order) -> np.float32:
    """Return one sum, which must not depend on what is summed beside it."""
    alone = performed(terms[None, :, None], order)[0, 0]
    beside = np.stack([terms, terms[::-1], terms * 3], -1)
    assert performed(beside[None], order)[0, 0] == alone
    assert performed(np.stack([terms, terms * 3]).reshape(2, -1, 1), order)[0, 0] == alone
    return alone


@pytest.mark.parametrize("count", [1, 5, 64, 1000, 1021, 4096, 5000])
def test_a_block_of_warps(count: int) -> None:
    threads, vector = 96, 4
    dealt: list[list[np.float32]] = [[] for _ in range(threads)]
    for k, term in enumerate(terms_of(count)):
        dealt[k // vector % threads].append(term)
    warps = [halves([in_a_row(t) for t in dealt[w : w + 32]], 32) for w in range(0, threads, 32)]
    chain = -(-count // (vector * threads)) * vector
    order = Order((Stage(chain, 5, threads, vector), Stage(3, width=1)))
    assert total(terms_of(count), order) == in_a_row(warps)


@pytest.mark.parametrize("height", [1, 3, 24, 100, 131])
def test_ranges_that_begin_anew_with_each_group(height: int) -> None:
    groups, rows, threads = 5, 24, 8
    terms, parts = terms_of(groups * height), list[np.float32]()
    for group in range(groups):
        own = terms[group * height : (group + 1) * height]
        for first in range(0, height, rows):
            band = own[first : first + rows]
            parts.append(halves([in_a_row(list(band[t::threads])) for t in range(threads)], 8))
    chain = min(rows, -(-height // threads) * threads) // threads
    order = Order((Stage(chain, 3, threads, cut=height), Stage(len(parts), width=1)))
    assert total(terms, order) == in_a_row(parts)


def test_a_part_of_a_sum_has_fewer_chains_of_the_same_length() -> None:
    whole = Order((Stage(64, 5, 512, 8), Stage(16, width=1)))
    assert whole.within(64 * 512)[0] == Stage(64, 5, 512, 8)
    # One thread has 8 terms less, or has none: still the whole.
    assert whole.within(64 * 512 - 8)[0].width == 512
    assert whole.within(56 * 512 + 1)[0].width == 512
    assert whole.within(64 * 100)[0] == Stage(64, 5)
    # Its chains end as the whole's do.
    chain = in_a_row([np.float32(0.1)] * 64)
    assert total(np.full(128, 0.1, np.float32), whole) == add(chain, chain)


@pytest.mark.parametrize("count", [5, 100, 1000])
def test_a_tree_adds_neighbours(count: int) -> None:
    terms = terms_of(count)
    warps = [halves(list(terms[k : k + 32]), 32) for k in range(0, count, 32)]
    order = Order((Stage(1, 5, count), Stage(len(warps), width=1)))
    assert total(terms, order) == in_a_row(warps)


@drawn(100)
@given(ORDERS, st.integers(0, 700))
def test_every_term_counts_once(order: Order, count: int) -> None:
    terms = np.random.default_rng(count).integers(-1000, 1000, (2, count, 3)).astype(np.float32)
    assert np.array_equal(performed(terms, order), terms.sum(1))
    assert np.array_equal(running(terms, order), np.cumsum(terms, 1))
    for none in (terms[:0], terms[..., :0]):
        assert performed(none, order).shape == none.sum(1).shape
        assert running(none, order).shape == none.shape
    assert np.isfinite(roundings(terms.sum(1), np.square(terms).sum(1), count, order, 2**-24)).all()


@drawn(50)
@given(ORDERS, st.integers(1, 700))
def test_stages_leave_one_sum_of_each_group(order: Order, count: int) -> None:
    left = -(-count // order.group)
    for stage in order.within(count):
        left = -(-stage.chains(left) // 2**stage.depth)
    assert left == 1


@pytest.mark.parametrize("count", [1, 7, 8, 100, 1001])
def test_running_sums_of_spans_one_after_the_other(count: int) -> None:
    span, terms = 8, terms_of(count)
    found, carry = list[np.float32](), np.float32(0)
    for first in range(0, count, span):
        own = np.add.accumulate(terms[first : first + span])
        found += [add(carry, x) for x in own]
        carry = add(carry, own[-1])
    order = Order((Stage(span, width=1), Stage(-(-count // span), width=1)))
    assert np.array_equal(running(terms[None, :, None], order)[0, :, 0], found)


def test_running_sums_of_the_lanes_of_a_warp() -> None:
    terms = terms_of(32)
    lanes = list(terms)
    for distance in (1, 2, 4, 8, 16):
        lanes = [add(lanes[k - distance], x) if k >= distance else x for k, x in enumerate(lanes)]
    found = running(terms[None, :, None], Order((Stage(1, 5, 1),)))[0, :, 0]
    # What lies before a lane is what the lane below has in the end.
    before = [np.float32(0), *lanes[:-1]]
    assert np.array_equal(found, [add(b, x) for b, x in zip(before, terms, strict=True)])


def test_orders_one_after_the_other() -> None:
    parts = Order((Stage(64),), 16).then(Order((Stage(4, width=1),)))
    assert parts == Order((Stage(64), Stage(4, width=1)), 16)
    assert parts.within(16 * 256) == (Stage(64), Stage(4, width=1))
