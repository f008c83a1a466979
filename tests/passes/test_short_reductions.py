"""Reductions of few terms: the axis is moved in front, and nothing else changes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fusec.ir.dtype import F32
from fusec.ops.builder.build import GraphBuilder
from fusec.reference.errors import reductions, sums
from fusec.reference.errors.sums import least_spacing, spacing
from fusec.reference.stream import estimate


@pytest.mark.parametrize("op", ["sum", "max", "prod", "var", "argmax"])
@pytest.mark.parametrize("shape", [(40, 2), (6, 1, 9), (3, 5, 4), (2, 30)])
def test_expected_errors_do_not_depend_on_where_the_axis_lies(
    op: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = GraphBuilder("few")
    x = builder.apply("exp", builder.input("x", F32, list(shape)))
    axis = 0 if shape[0] == 2 else next(k for k, e in enumerate(shape) if e < 6 and k)
    where = {"dims": [axis]}
    builder.output(builder.apply(op, x, **where))
    fusion = builder.finish()
    given = {"x": np.random.default_rng(3).standard_normal(shape).astype(np.float32)}
    (name,) = (o.value.name for o in fusion.outputs)
    moved = estimate(fusion, given, {})[name]
    monkeypatch.setattr(reductions, "SHORT", 0)
    kept = estimate(fusion, given, {})[name]
    np.testing.assert_array_equal(moved.value, kept.value)
    np.testing.assert_allclose(moved.sigma, kept.sigma, rtol=1e-12)


def test_the_spacing_of_a_number_is_its_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(-(1 << 16), 1 << 16, 1000) * 2.0 ** rng.integers(-30, 30, 1000)
    found = spacing(x, F32)
    assert found is not None
    for number, step in zip(x.tolist(), found.tolist(), strict=True):
        if number == 0:
            assert step == np.inf
            continue
        assert (Fraction(number) / Fraction(step)).denominator == 1
        assert (Fraction(number) / Fraction(step)).numerator % 2
    for axis in (0, 1):
        for pieces in (1, 300, 1 << 17):
            monkeypatch.setattr(sums, "BATCH_ELEMENTS", pieces)
            least = least_spacing(x.reshape(20, 50), axis, F32)
            np.testing.assert_array_equal(least, found.reshape(20, 50).min(axis=axis))
    assert spacing(np.array([[1.0, 1 + 2.0**-23]]), F32) is None  # as fine as floats get
    assert spacing(np.array([[1.0, 1 + 2.0**-30]]), F32) is None  # no float
