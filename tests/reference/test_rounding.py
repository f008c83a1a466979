"""Doubles rounded to types of 16 bits, against all numbers of the type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fusec.ir.dtype import BF16, F16, DType
from fusec.ir.evaluate import round_to
from fusec.parse import read_text
from fusec.reference.errors.estimate import ulp
from fusec.reference.errors.nodes import Model
from fusec.reference.verdict import compare

TYPES = {"bf16": (BF16, ml_dtypes.bfloat16), "f16": (F16, np.float16)}


def numbers_of(kind: type) -> np.ndarray:
    """Return all finite numbers of a type of 16 bits as doubles, sorted, and -0.0 not."""
    with np.errstate(all="ignore"):
        every = np.arange(1 << 16, dtype=np.uint16).view(kind).astype(np.float64)
    return np.unique(every[np.isfinite(every)])


def nearest(x: np.ndarray, kind: type) -> np.ndarray:
    """Return the nearest numbers, to even where two are as near; infinity beyond the last one."""
    known = numbers_of(kind)
    step = known[-1] - known[-2]
    known = np.concatenate([[known[0] - step], known, [known[-1] + step]])
    above = np.clip(np.searchsorted(known, x), 1, len(known) - 1)
    low, high = known[above - 1], known[above]
    middle = low + (high - low) / 2
    # Neighbours in order are odd and even in turn, 0 is even.
    even_low = (above - 1 - np.searchsorted(known, 0.0)) % 2 == 0
    found = np.where(x == middle, np.where(even_low, low, high), np.where(x < middle, low, high))
    found = np.where(np.abs(found) > known[-2], np.copysign(np.inf, found), found)
    return np.where(np.isnan(x), x, found)


def samples(kind: type) -> np.ndarray:
    """Return random doubles, numbers of the type, ties between them, and what lies beside those."""
    rng = np.random.default_rng(7)
    known = numbers_of(kind)
    middles = known[:-1] + np.diff(known) / 2
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 1e-300, 5e-324])
    exact = np.concatenate([known, middles, special])
    with np.errstate(all="ignore"):
        beside = np.concatenate([np.nextafter(exact, np.inf), np.nextafter(exact, -np.inf)])
    bits = rng.integers(0, 1 << 64, 50_000, dtype=np.uint64).view(np.float64)
    return np.concatenate([exact, beside, bits, rng.standard_normal(50_000)])


@pytest.mark.parametrize("name", TYPES)
def test_doubles_are_rounded_to_the_nearest_even(name: str) -> None:
    dtype, kind = TYPES[name]
    x = samples(kind)
    found, expected = round_to(x, dtype), nearest(x, kind)
    np.testing.assert_array_equal(found, expected)
    assert np.array_equal(np.signbit(found), np.signbit(x) & ~np.isnan(x) | np.signbit(x))
    # Some arrays hold no special number at all: these take a shorter way.
    for part in (x[np.abs(x) > 2.0**-14], x[(np.abs(x) > 1) & (np.abs(x) < 2)], x[:0], x[7]):
        np.testing.assert_array_equal(round_to(part, dtype), nearest(part, kind))


def test_views_are_rounded_like_arrays() -> None:
    x = np.random.default_rng(1).standard_normal((6, 8))
    for view in (x.T, x[:, ::2], x[::-1], np.broadcast_to(x[0], (3, 8))):
        np.testing.assert_array_equal(round_to(view, BF16), round_to(view.copy(), BF16))


@pytest.mark.parametrize("name", TYPES)
def test_the_unit_in_the_last_place_is_the_distance_to_the_next_number(name: str) -> None:
    dtype, kind = TYPES[name]
    known = numbers_of(kind)
    positive = known[known >= 0]
    np.testing.assert_array_equal(ulp(positive[:-1], dtype), np.diff(positive))
    np.testing.assert_array_equal(ulp(-positive[:-1], dtype), np.diff(positive))
    assert np.isfinite(ulp(np.array([np.inf, np.nan]), dtype)).all()


def test_a_type_that_is_rounded_to_zero_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(array: np.ndarray, dtype: DType) -> np.ndarray:
        bits = np.asarray(array, np.float64).view(np.uint64) & np.uint64((1 << 64) - (1 << 45))
        return bits.view(np.float64)

    monkeypatch.setitem(globals(), "round_to", cut)
    with pytest.raises(AssertionError):
        test_doubles_are_rounded_to_the_nearest_even("bf16")


def test_a_cast_to_the_same_type_rounds_nothing() -> None:
    """A value that kernels keep in f32 stays so where a model casts it to the type that it has."""
    text = (
        "fusion: cast\ninputs:\n  x: f32[64]\nops:\n  - h = cast(x, bf16)\n"
        "  - again = cast(h, bf16)\n  - y = cast(again, f32)\noutputs: [y]\n"
    )
    fusion = read_text(text)
    x = np.linspace(1.0, 2.0, 64, dtype=np.float32)
    assert compare(fusion, {}, {"x": x}, {"y": x}, model=Model(wide=frozenset({"h"}))).ok
    assert not compare(fusion, {}, {"x": x}, {"y": x}).ok


def test_an_output_that_is_cast_to_its_own_type_is_rounded() -> None:
    text = (
        "fusion: cast\ninputs:\n  x: bf16[8, 64]\n  w: bf16[64, 8]\nops:\n"
        "  - h = matmul(x, w)\n  - y = cast(h, bf16)\noutputs: [y]\n"
    )
    fusion = read_text(text)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((8, 64), (64, 8)))
    exact = x.astype(np.float64) @ w.astype(np.float64)
    y = round_to(exact, BF16).astype(ml_dtypes.bfloat16)
    assert compare(fusion, {}, {"x": x, "w": w}, {"y": y}).ok
