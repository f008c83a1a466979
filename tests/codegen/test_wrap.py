"""Integers wrap in kernels as they do in the reference, also where C++ leaves it undefined."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from rows_on_cpu import OPTIONS

from fusec import driver
from fusec.parse import read_text
from fusec.run.arrays import lay_out

TYPES = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
BINARY = (
    "add", "sub", "mul", "div", "fmod", "mod", "remainder", "ceilDiv", "bitwise_left_shift",
    "bitwise_right_shift", "logical_right_shift", "gcd", "pow", "minimum",
)  # fmt: skip
NOT_NEGATIVE = ("ceilDiv",)


def extremes(dtype: Any) -> np.ndarray:
    """Return values at and beside the limits of a type, and small ones."""
    limits = np.iinfo(dtype)
    near = [limits.min, limits.min + 1, limits.max, limits.max - 1, limits.max // 2 + 1]
    small = [0, 1, 2, 3, 7, 31, 63] + ([-1, -2, -7] if limits.min else [])
    return np.array([*near, *small], dtype)


def kernels(text: str, inputs: dict[str, np.ndarray], folder: Path) -> Any:
    """Return what the kernels of a fusion compute on the host, and what the reference does."""
    fusion = read_text(text, "wrap.yaml")
    planned = driver.plan(fusion, OPTIONS)
    assert len(planned.plans) == 1
    given = {n: lay_out(a, tuple(s // a.itemsize for s in a.strides)) for n, a in inputs.items()}
    return run_plan(planned.plans[0], given, folder), driver.reference(fusion, inputs, {})


@pytest.mark.parametrize("dtype", TYPES)
def test_pairs(dtype: str, tmp_path: Path) -> None:
    kind = np.dtype({"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    pairs = np.array(list(itertools.product(extremes(kind), repeat=2)), kind)
    a, b = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    names = [f"y_{op}" for op in BINARY] + ["y_neg", "y_abs", "y_addcmul"]
    lines = [f"  - y_{op} = {op}(a, b)" for op in BINARY]
    lines += ["  - y_neg = neg(a)", "  - y_abs = abs(a)", "  - y_addcmul = addcmul(a, b, a, 3)"]
    text = (
        f"fusion: wrap\ninputs:\n  a: {dtype}[{len(a)}]\n  b: {dtype}[{len(a)}]\nops:\n"
        + "\n".join(lines)
        + f"\noutputs: [{', '.join(names)}]\n"
    )
    found, expected = kernels(text, {"a": a, "b": b}, tmp_path)
    for name in names:
        whole = (a >= 0) & (b >= 0) if name[2:] in NOT_NEGATIVE else np.ones(len(a), bool)
        wrong = np.flatnonzero((found[name] != expected[name]) & whole)
        assert not len(wrong), (
            name, [(a[k], b[k], found[name][k], expected[name][k]) for k in wrong[:4]],
        )  # fmt: skip


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize("op", ["sum", "prod", "cumsum"])
def test_sums(op: str, dtype: str, tmp_path: Path) -> None:
    kind = np.dtype("int" + dtype[1:])
    x = np.tile(extremes(kind), (4, 5)).astype(kind)
    attribute = "1" if op == "cumsum" else f"[1], dtype={dtype}"
    text = (
        f"fusion: wrap\ninputs:\n  x: {dtype}[{x.shape[0]}, {x.shape[1]}]\nops:\n"
        f"  - y = {op}(neg(x), {attribute})\noutputs: [y]\n"
    )
    found, expected = kernels(text, {"x": x}, tmp_path)
    np.testing.assert_array_equal(found["y"], expected["y"])


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_products(dtype: str, tmp_path: Path) -> None:
    kind = np.dtype("int" + dtype[1:])
    a = np.tile(extremes(kind), 3).reshape(5, 9)
    text = (
        f"fusion: wrap\ninputs:\n  a: {dtype}[5, 9]\n  b: {dtype}[9, 5]\nops:\n"
        "  - y = matmul(a, b)\noutputs: [y]\n"
    )
    b = np.ascontiguousarray(a[::-1].T)
    found, expected = kernels(text, {"a": a, "b": b}, tmp_path)
    np.testing.assert_array_equal(found["y"], expected["y"])


def test_a_position_that_is_data_has_the_type_of_the_data(tmp_path: Path) -> None:
    text = (
        "fusion: wrap\ninputs:\n  x: i64[40]\nops:\n  - y = add(iota(40, 0, 1, i64), x)\n"
        "outputs: [y]\n"
    )
    found, expected = kernels(text, {"x": np.full(40, 2**63 - 20)}, tmp_path)
    np.testing.assert_array_equal(found["y"], expected["y"])
