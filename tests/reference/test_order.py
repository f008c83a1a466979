"""Orders of sums: the sum itself, and what its roundings add up to."""

from __future__ import annotations

import numpy as np
import pytest

from fusec.ir.dtype import BF16, F32
from fusec.reference.errors.order import Order, Stage, as_terms, performed, roundings, unknown

ROUNDOFF = 2.0**-24
ORDERS = {
    "serial": Order((Stage(1 << 40),)),
    "chains": Order((Stage(32),)),
    "tree": Order(()),
    "block": Order((Stage(16, 5), Stage(8))),
    "split": Order((Stage(16, 5), Stage(8), Stage(4, 2))),
}


def one_by_one(terms: np.ndarray, order: Order) -> np.float32:
    """Return a sum as the stages say, with a loop."""
    parts = list(terms)
    for stage in order.within(len(parts)):
        chains = -(-len(parts) // min(stage.chain, len(parts)))
        sums = parts[:chains]
        for k in range(chains, len(parts)):
            sums[k % chains] = np.float32(sums[k % chains] + parts[k])
        parts = sums
        for _ in range(stage.depth):
            parts = halved(parts)
    while len(parts) > 1:
        parts = halved(parts)
    return parts[0]


def halved(parts: list) -> list:
    half = -(-len(parts) // 2)
    return [
        np.float32(parts[k] + parts[k + half]) if k + half < len(parts) else parts[k]
        for k in range(half)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 31, 257, 1000])
@pytest.mark.parametrize("name", ORDERS)
def test_a_sum_is_taken_in_its_order(name: str, count: int):
    terms = np.random.default_rng(count).random((3, count, 2), np.float32)
    found = performed(terms, ORDERS[name])
    for row in range(3):
        for column in range(2):
            assert found[row, column] == one_by_one(terms[row, :, column], ORDERS[name])
    # However the terms lie in memory.
    turned = np.asfortranarray(terms)
    assert np.array_equal(performed(turned, ORDERS[name]), found)
    (single,) = performed(terms[:1, :, :1], ORDERS[name])
    assert single[0] == found[0, 0]


def test_no_terms_add_up_to_nothing():
    assert performed(np.zeros((2, 0, 3), np.float32), ORDERS["block"]).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("count", [2, 100, 4096, 1 << 16])
@pytest.mark.parametrize("name", ORDERS)
def test_stages_take_in_all_terms(name: str, count: int):
    reached = 1
    for stage in ORDERS[name].within(count):
        reached *= stage.chain * 2**stage.depth
    assert reached >= count


@pytest.mark.parametrize("low", [-1.0, 0.0])
@pytest.mark.parametrize("count", [64, 1000, 4096])
@pytest.mark.parametrize("name", ORDERS)
def test_roundings_add_up_as_they_do(name: str, count: int, low: float):
    """Within a factor of 2 of the spread over many sums: neither too small nor too large."""
    terms = np.random.default_rng(7).uniform(low, 1, (400, count, 1)).astype(np.float32)
    exact = terms.astype(np.float64).sum(axis=1)
    squares = np.square(terms.astype(np.float64)).sum(axis=1)
    off = performed(terms, ORDERS[name]).astype(np.float64) - exact
    expected = roundings(exact, squares, count, ORDERS[name], ROUNDOFF)
    ratio = np.sqrt(np.mean(expected) / np.mean(np.square(off)))
    assert 0.7 < ratio < 2.5


def test_fewer_terms_round_less():
    """Of running sums each has terms of its own: the first are not as far off as the last."""
    counts = np.arange(1, 4097, dtype=np.float64)
    for order in ORDERS.values():
        variance = roundings(counts, counts, counts, order, ROUNDOFF)
        assert variance[0] == 0
        assert np.all(np.diff(variance) >= 0)
        small = roundings(np.asarray(16.0), np.asarray(16.0), 16, order, ROUNDOFF)
        assert variance[15] <= 4 * small + 1e-30


def test_a_sum_of_sums_goes_through_both_orders():
    first, second = Order((Stage(8, 2),)), Order((Stage(4),))
    assert first.then(second).stages == (Stage(8, 2), Stage(4))


def test_what_is_cut_off_drifts():
    """A matrix unit that cuts off instead of rounding is off by more, and all one way."""
    total, squares = np.asarray(4096.0), np.asarray(4096.0)
    cut, rounds = unknown(4096, (BF16, BF16))[0], Order((Stage(256),), 1)
    assert cut.group == 16
    assert roundings(total, squares, 4096, cut, ROUNDOFF) > 20 * roundings(
        total, squares, 4096, rounds, ROUNDOFF
    )
    assert all(order.group == 1 for order in unknown(4096, (F32, F32)))


def test_terms_of_several_axes_lie_in_the_middle():
    array = np.arange(120).reshape(2, 3, 4, 5)
    for axes in ((0,), (3,), (1, 2), (0, 2), (0, 1, 2, 3), (1, 3)):
        terms = as_terms(array, axes)
        assert np.array_equal(terms.sum(axis=1).reshape(-1), array.sum(axis=axes).reshape(-1))
