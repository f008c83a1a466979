"""The reference's sums: right to a few units in the last place for terms of any kind."""

from __future__ import annotations

from math import fsum

import numpy as np
import pytest

from fusec.ir.totals import running, total

COUNTS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 100, 255, 4097]


@pytest.mark.parametrize("count", COUNTS)
def test_sums_are_exact_but_for_few_roundings(count: int):
    random = np.random.default_rng(count).uniform(0, 1, (count, 3))
    for x in (random, np.broadcast_to(np.float64(1.18065836), (count, 3))):
        exact = np.array([fsum(x[:, k]) for k in range(3)])
        unit = np.spacing(exact[0])
        assert np.abs(total(x, [0]) - exact).max() <= 8 * unit
        assert np.abs(total(x.T, [-1], keepdims=True)[:, 0] - exact).max() <= 8 * unit
        assert np.abs(total(x, None) - fsum(x.ravel())) <= 32 * unit
        sums = running(x, 0)
        assert np.array_equal(sums[0], x[0])
        assert np.abs(sums[-1] - exact).max() <= 8 * unit
        assert np.allclose(running(x.T, -1), np.cumsum(x.T, 1), rtol=1e-12)


def test_integers_and_nothing():
    counts = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    assert np.array_equal(total(counts, [0, 2]), counts.sum((0, 2)))
    assert total(np.ones(5, bool), [0]) == 5
    assert np.array_equal(running(counts, 1), counts.cumsum(1))
    assert np.array_equal(total(np.zeros((0, 2)), [0]), [0, 0])
    assert running(np.zeros((2, 0)), 1).shape == (2, 0)
    assert total(np.float64(3), ()) == 3
    assert running(np.array([1j, 2.0]), 0)[1] == 2 + 1j


def test_infinities_stay():
    x = np.array([1.0, np.inf, 2.0, -np.inf, 1.0])
    with np.errstate(invalid="ignore"):
        assert np.array_equal(running(x, 0), np.cumsum(x), equal_nan=True)
        assert np.isnan(total(x, [0]))
    assert total(x[:3], [0]) == np.inf
