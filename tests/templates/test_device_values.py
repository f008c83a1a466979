"""The arithmetic of the device headers against NumPy, built for the host with a C++ compiler."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
from paths import TESTS

from fusec.run.binary import headers

SOURCE = TESTS / "device" / "host_values.cpp"
CASES = 4000


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("host")
    for name, text in headers.device_headers().items():
        (folder / name).write_text(text)
    target = folder / "values.so"
    command = [compiler, "-std=c++17", "-O1", "-w", "-shared", "-fPIC", f"-I{folder}"]
    subprocess.run([*command, str(SOURCE), "-o", str(target)], check=True)
    return ctypes.CDLL(str(target))


def call(function: ctypes._NamedFuncPointer, count: int, *arguments: object) -> None:
    function(
        ctypes.c_longlong(count),
        *(ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else a for a in arguments),
    )


def operands(dtype: np.dtype[np.generic]) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    low, high = (0, 256) if dtype == np.uint8 else (-300, 300)
    a = generator.integers(low, high, CASES).astype(dtype)
    b = generator.integers(low, 40, CASES).astype(dtype)
    b[b == 0] = 3
    return a, b


@pytest.mark.parametrize(("name", "dtype"), [("i32", "i4"), ("i64", "i8"), ("u8", "u1")])
def test_integers(library: ctypes.CDLL, name: str, dtype: str) -> None:
    a, b = operands(np.dtype(dtype))
    out = np.zeros((10, CASES), dtype)
    call(library[f"integers_{name}"], CASES, a, b, out)
    unsigned = np.dtype(dtype.replace("i", "u"))
    exponent = (b.astype(np.uint32) % 5).astype(dtype)
    shift = (b.astype(np.uint32) % 70).astype(unsigned)
    expected = [
        np.floor_divide(a, b),
        np.remainder(a, b),
        np.trunc(a / b).astype(dtype),
        np.fmod(a, b),
        np.gcd(a, b),
        np.sign(a),
        np.power(a, exponent),
        np.right_shift(a.view(unsigned), shift).view(dtype),
        np.right_shift(a, shift.view(dtype)),
        np.left_shift(a, shift.view(dtype)),
    ]
    for row, want in zip(out, expected, strict=True):
        np.testing.assert_array_equal(row, want)


def test_doubles(library: ctypes.CDLL) -> None:
    generator = np.random.default_rng(4)
    special = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 7.0, 0.1])
    a, b = (grid.ravel() for grid in np.meshgrid(special, special))
    a = np.concatenate([a, generator.normal(0, 10, CASES), np.arange(CASES) * 0.1])
    b = np.concatenate([b, generator.normal(0, 3, CASES), np.full(CASES, 0.1)])
    out = np.zeros((10, a.size))
    call(library.doubles, a.size, a, b, out)
    with np.errstate(all="ignore"):
        kinds = (
            np.isnan(a)
            + 2 * np.isposinf(a)
            + 4 * np.isneginf(a)
            + 8 * np.isfinite(a)
            + 16 * np.signbit(a)
            + 32 * np.isinf(a)
        )
        expected = [
            np.floor_divide(a, b),
            np.remainder(a, b),
            np.trunc(a / b),
            np.fmod(a, b),
            np.maximum(a, b),
            np.minimum(a, b),
            np.where(np.isnan(a), 0, np.sign(a)),
            a - np.trunc(a),
            np.rint(a),
            kinds,
        ]
    for row, want in zip(out, expected, strict=True):
        np.testing.assert_array_equal(row, want)


def test_fp8_encoding_rounds_to_even_and_e4m3_saturates(library: ctypes.CDLL) -> None:
    """Every float whose lower 12 bits are 0, 1, or the tie, rounds as ml_dtypes does."""
    upper = np.arange(1 << 20, dtype=np.uint32) << 12
    values = np.concatenate([upper, upper | 1, upper | 0x800]).view(np.float32)
    four = np.zeros(values.size, np.uint8)
    five = np.zeros(values.size, np.uint8)
    call(library.encode, values.size, values, four, five)
    for bits, dtype, largest in (
        (four, ml_dtypes.float8_e4m3fn, 448.0),
        (five, ml_dtypes.float8_e5m2, np.inf),
    ):
        with np.errstate(all="ignore"):
            want = np.clip(values, -largest, largest).astype(dtype)
        number = ~np.isnan(values)
        np.testing.assert_array_equal(bits[number], want.view(np.uint8)[number])
        assert np.isnan(bits.view(dtype).astype(np.float32)[~number]).all()


@pytest.mark.parametrize("parts", [1, 7, 2000])
def test_welford(library: ctypes.CDLL, parts: int) -> None:
    values = np.random.default_rng(6).normal(1e6, 1.0, 1000)
    out = np.zeros(3)
    call(library.moments, values.size, values, ctypes.c_longlong(parts), out)
    np.testing.assert_allclose(out, [values.mean(), values.var(ddof=1), 1000], rtol=1e-9)
