"""Terms of a sum that are equal, and whose errors are therefore one and the same."""

from __future__ import annotations

import numpy as np
import pytest
from rank_verdicts import verdict_of
from test_parallel_examples import small

from fusec.ir.dtype import BF16
from fusec.ir.evaluate import round_to
from fusec.parse.reader import read_text
from fusec.reference.errors.repeats import alike
from fusec.reference.verdict import LEAST_POWER, compare

TERMS = 4096


def rounded_terms() -> np.ndarray:
    """Return terms of a half type: few values, though no two were equal before."""
    draw = np.random.default_rng(0)
    return round_to(draw.uniform(1, 2, (1, TERMS)), BF16)


@pytest.mark.parametrize("kinds", [1, 2, 40, 1000])
def test_equal_terms_are_counted(kinds: int) -> None:
    """With or without variances, which are equal where the values are."""
    x = np.random.default_rng(0).integers(1, kinds + 1, (1, TERMS)).astype(np.float64)
    expected = 1 + (TERMS - 1) / kinds
    for variance in (None, np.square(x) * 1e-12, np.square(x) * 1e-12 * (1 + 1e-15 * x)):
        assert alike(x, (1,), variance) == pytest.approx(expected, rel=0.1)


def test_values_that_rounding_made_equal_err_each_on_its_own() -> None:
    x = rounded_terms()
    assert alike(x, (1,)) > 20
    variance = 1e-6 + 1e-12 * np.random.default_rng(1).uniform(1, 2, x.shape)
    assert alike(x, (1,), variance) == 1


def test_equal_terms_count_by_their_errors() -> None:
    """Half of the terms are one value: what is exact, or nearly, adds nothing to the sum."""
    x = np.random.default_rng(0).uniform(1, 2, (1, TERMS))
    x[np.random.default_rng(1).uniform(size=x.shape) < 0.5] = 1.0
    for faint, least, most in ((0.0, 1.0, 1.0), (1e-9, 1.0, 1.01), (1.0, TERMS / 8, TERMS / 6)):
        variance = np.where(x == 1, faint, np.square(x))
        assert least <= alike(x, (1,), variance) <= most


def test_errors_of_equal_terms_add_up() -> None:
    """To the square of what all terms of one value err together, for each value."""
    x = np.random.default_rng(0).integers(1, 9, (1, TERMS)).astype(np.float64)
    variance = np.square(x)
    right = sum((k * np.count_nonzero(x == k)) ** 2 for k in range(9))
    assert np.sum(variance) * alike(x, (1,), variance) == pytest.approx(right, rel=0.1)


def test_long_products_of_rounded_activations_are_decided() -> None:
    """Of 4096 activations, rounded to bf16, many have one value, but errors of their own."""
    verdict = verdict_of(small("sequence_parallel_mlp", 2, "bf16", "{T: 16, D: 1024, F: 4096}"))
    assert verdict.ok, verdict.text()
    assert verdict.power <= LEAST_POWER


FLIPPING = """\
fusion: flipping
inputs: { x: "f32[1, 4096]" }
ops:
  - p = cast(mul(x, 1.1), bf16)
  - s = sum(cast(p, f32), dims=[1])
outputs: [s]
"""


def test_equal_terms_may_all_be_rounded_to_the_other_neighbour() -> None:
    """Half of the terms are one number next to a boundary of bf16, the others are random."""
    fusion = read_text(FLIPPING, "flipping.yaml")
    x = np.random.default_rng(0).uniform(1, 2, (1, TERMS)).astype(np.float32)
    at_boundary = np.random.default_rng(1).uniform(size=x.shape) < 0.5
    x[at_boundary] = np.float32((1 + 2**-8) / 1.1)  # between 1 and 1 + 2**-7
    right = round_to(x.astype(np.float64) * 1.1, BF16)
    flipped = np.where(at_boundary, 2 + 2**-7 - right, right)
    for terms in (right, flipped):
        outputs = {"s": np.sum(terms, axis=1).astype(np.float32)}
        assert compare(fusion, {}, {"x": x}, outputs).word != "differs"
    far = np.sum(right, axis=1) + 12 * np.abs(np.sum(flipped - right, axis=1))
    assert compare(fusion, {}, {"x": x}, {"s": far.astype(np.float32)}).word == "differs"
