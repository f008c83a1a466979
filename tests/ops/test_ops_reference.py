"""References against Python's math module, known answers and identities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fusec.ir import dtype as dtypes
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.ops.numerics import special
from fusec.reference.evaluate import evaluate

GRID = np.concatenate([np.linspace(-7, 7, 1411), np.linspace(-0.02, 0.02, 41), [-30.0, 30.0]])


def close(found: Any, expected: Any, ulps: float = 16) -> None:
    np.testing.assert_allclose(found, expected, rtol=ulps * 2.0**-53, atol=1e-300)


def test_erf() -> None:
    close(special.erf(GRID), [math.erf(x) for x in GRID])
    assert np.isnan(special.erf(np.nan))
    assert list(special.erf([-np.inf, np.inf])) == [-1, 1]
    assert math.copysign(1, float(special.erf(-0.0))) == -1


def test_erfc() -> None:
    grid = np.linspace(-7, 26, 3301)
    np.testing.assert_allclose(special.erfc(grid), [math.erfc(x) for x in grid], rtol=4e-13)
    assert list(special.erfc([-np.inf, np.inf, 100.0])) == [2, 0, 0]
    assert np.isnan(special.erfc(np.nan))


def test_inverse_error_functions() -> None:
    y = np.concatenate([np.linspace(-3, 3, 601), [1e-12, -1e-300]])
    np.testing.assert_allclose(special.erfinv(special.erf(y)), y, rtol=2e-12, atol=1e-300)
    tail = np.linspace(0.2, 20, 400)
    np.testing.assert_allclose(special.erfcinv(special.erfc(tail)), tail, rtol=1e-12)
    assert list(special.erfinv([1, -1])) == [np.inf, -np.inf]
    assert list(special.erfcinv([0, 2])) == [np.inf, -np.inf]
    assert np.isnan(special.erfinv([1.5, np.nan])).all()
    assert np.isnan(special.erfcinv([-0.5, 2.5])).all()
    assert float(special.erfinv(0.0)) == 0


def test_lgamma() -> None:
    assert float(special.lgamma(5.0)) == pytest.approx(math.log(24))
    assert list(special.lgamma([0.0, -2.0, np.inf])) == [np.inf] * 3


def reference(op: str, *operands: Any, **attributes: Any) -> Any:
    return TABLE[op].reference(*(np.asarray(o) for o in operands), **attributes)


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        ("div", ([7, -7, 7, -7, 5], [2, 2, -2, -2, 0]), [3, -3, -3, 3, 0]),
        ("fmod", ([7, -7, 7, -7, 5], [3, 3, -3, -3, 0]), [1, -1, 1, -1, 0]),
        ("mod", ([7, -7], [3, 3]), [1, -1]),
        ("remainder", ([7, -7, 7, -7, 5], [3, 3, -3, -3, 0]), [1, 2, -2, -1, 0]),
        ("ceilDiv", ([7, 8, 0], [4, 4, 4]), [2, 2, 0]),
        ("pow", ([2, -1, -1, 3, 1], [10, -3, -2, -1, -5]), [1024, -1, 1, 0, 1]),
        ("gcd", ([12, -12, 0], [18, 18, 5]), [6, 6, 5]),
        ("sign", ([-5, 0, 3],), [-1, 0, 1]),
        ("relu", ([-5, 0, 3],), [0, 0, 3]),
        ("bitwise_not", ([0, -1],), [-1, 0]),
        ("logical_right_shift", ([-1, 8], [60, 2]), [15, 2]),
        ("bitwise_right_shift", ([-8, 8], [2, 2]), [-2, 2]),
        ("abs", ([-5, 3],), [5, 3]),
        ("clamp", ([-5, 3, 9], [0, 0, 0], [4, 4, 4]), [0, 3, 4]),
        ("threshold", ([1, 2, 3], [2, 2, 2], [9, 9, 9]), [9, 9, 3]),
        ("addcmul", ([1], [2], [3], [4]), [25]),
    ],
)
def test_integers(op: str, operands: Any, expected: list[int]) -> None:
    found = reference(op, *operands)
    assert found.dtype == np.int64
    assert found.tolist() == expected


def test_integers_wrap() -> None:
    assert reference("add", np.int8([127]), np.int8([1])).tolist() == [-128]
    assert reference("neg", np.uint8([1])).tolist() == [255]


NAN = float("nan")
INF = float("inf")


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        ("maximum", ([NAN, 1.0], [1.0, NAN]), [NAN, NAN]),
        ("minimum", ([NAN, -INF], [1.0, 0.0]), [NAN, -INF]),
        ("relu", ([NAN, -1.0],), [NAN, 0.0]),
        ("clamp", ([NAN, 5.0], [0.0, 0.0], [1.0, 1.0]), [NAN, 1.0]),
        ("threshold", ([NAN], [0.0], [1.0]), [NAN]),
        ("sign", ([NAN, -0.5],), [0.0, -1.0]),
        ("round", ([0.5, 1.5, -2.5],), [0.0, 2.0, -2.0]),
        ("frac", ([-1.25, 2.5],), [-0.25, 0.5]),
        ("rsqrt", ([0.0, -1.0],), [INF, NAN]),
        ("log", ([0.0, -1.0],), [-INF, NAN]),
        ("div", ([1.0, 0.0], [0.0, 0.0]), [INF, NAN]),
        ("remainder", ([-1.0, 1.0], [3.0, -3.0]), [2.0, -2.0]),
        ("fmod", ([-1.0, 7.5], [3.0, 2.0]), [-1.0, 1.5]),
        ("isposinf", ([INF, -INF, NAN],), [True, False, False]),
        ("isneginf", ([INF, -INF, NAN],), [False, True, False]),
        ("signbit", ([-0.0, 0.0],), [True, False]),
        ("lerp", ([1.0, 1.0], [3.0, 3.0], [0.25, 1.0]), [1.5, 3.0]),
    ],
)
def test_special_floats(op: str, operands: Any, expected: list[Any]) -> None:
    np.testing.assert_array_equal(reference(op, *operands), np.asarray(expected))


def test_extrema_keep_nan_and_start_from_the_worst() -> None:
    x = np.asarray([[1.0, NAN], [2.0, 0.0]])
    np.testing.assert_array_equal(reference("max", x, dims=(1,)), [NAN, 2.0])
    assert reference("max", np.zeros((2, 0)), dims=(1,)).tolist() == [-INF, -INF]
    assert reference("min", np.zeros((0,), np.int8), dims=(0,)).tolist() == 127


def test_welford_is_var_in_parts() -> None:
    x = np.random.default_rng(0).normal(size=(4, 9))
    mean, squares, count = reference("welford", x, dims=(1,))
    var, mean2 = reference("var_mean", x, dims=(1,), correction=1)
    np.testing.assert_array_equal(mean, mean2)
    np.testing.assert_allclose(squares / (count - 1), var)
    np.testing.assert_allclose(var, np.var(x, axis=1, ddof=1))
    assert reference("var", x[:1, :1], dims=(1,), correction=1).tolist() != [0.0]


def composite(op: str, arrays: list[Any], dtype: dtypes.DType, **attributes: Any) -> Any:
    """Evaluate the expansion of a composite."""
    builder = GraphBuilder()
    operands = [
        None if a is None else builder.input(f"x{k}", dtype, a.shape) for k, a in enumerate(arrays)
    ]
    (result,) = builder.call(op, operands, attributes)
    builder.output(result)
    inputs = {f"x{k}": a.astype(dtype.numpy) for k, a in enumerate(arrays) if a is not None}
    return next(iter(evaluate(builder.finish(), inputs, {}).values()))


COMPOSITES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("softmax", [(4, 9)], {"dim": -1}),
    ("softmax", [(4, 9)], {"dim": 0}),
    ("log_softmax", [(4, 9)], {"dim": 1}),
    ("mean", [(4, 9)], {"dims": [0, 1]}),
    ("mean", [(4, 9)], {"dims": [1], "keepdim": True}),
    ("layer_norm", [(4, 9)], {"norm_shape": [9]}),
    ("layer_norm", [(4, 3, 9), (3, 9), (3, 9)], {"norm_shape": [3, 9]}),
    ("layer_norm", [(4, 9), None, (9,)], {"norm_shape": [9]}),
    ("rms_norm", [(4, 9), (9,)], {"norm_shape": [9]}),
    ("gelu", [(4, 9)], {"approximate": "none"}),
    ("gelu", [(4, 9)], {"approximate": "tanh"}),
]


@pytest.mark.parametrize(("op", "shapes", "attributes"), COMPOSITES)
def test_expansions_mean_what_the_reference_says(
    op: str, shapes: list[Any], attributes: dict[str, Any]
) -> None:
    rng = np.random.default_rng(1)
    arrays = [None if s is None else rng.normal(size=s) for s in shapes]
    found = composite(op, arrays, dtypes.F64, **attributes)
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in attributes.items()}
    names = [p.name for p in TABLE[op].operands]
    operands = dict(zip(names, arrays, strict=False))
    expected = TABLE[op].reference(**operands, **given)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    rounded = composite(op, arrays, dtypes.BF16, **attributes)
    assert np.array_equal(rounded, rounded.astype(dtypes.BF16.numpy).astype(float))


def test_softmax_of_large_values_does_not_overflow() -> None:
    found = composite("softmax", [np.asarray([1000.0, 1000.0])], dtypes.F32, dim=0)
    assert found.tolist() == [0.5, 0.5]


def test_lgamma_around_its_zeros() -> None:
    """Relative errors stay small where the value vanishes: compare with the first two terms."""
    euler, half_zeta2 = 0.57721566490153286, np.pi**2 / 12
    for z in (1e-6, -1e-6, 3e-8):
        at_one, at_two = TABLE["lgamma"].reference(np.array([1 + z, 2 + z]))
        one, two = (1 + z) - 1, (2 + z) - 2
        assert at_one == pytest.approx(-euler * one + half_zeta2 * one * one, rel=1e-11)
        assert at_two == pytest.approx(
            (1 - euler) * two + (half_zeta2 - 0.5) * two * two, rel=1e-11
        )
    between = TABLE["lgamma"].reference(np.array([0.5, 1.5, 2.5]))
    expected = [np.log(np.pi) / 2, np.log(np.pi / 4) / 2, np.log(np.pi * 9 / 16) / 2]
    assert between == pytest.approx(expected, rel=1e-15)
