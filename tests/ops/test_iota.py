"""Sequences of any type, whose start and step may be known only at the launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_check import check_on_gpu
from rows_on_cpu import check_on_cpu

from fusec.ir.dtype import (
    BF16,
    F8E4M3,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    DType,
    find,
)
from fusec.ir.evaluate import round_to
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.reference.evaluate import evaluate

LITERALS = [(0, 1), (2.5, -0.25), (-3, 2)]
KINDS = [F64, F32, F16, BF16, F8E4M3, I64, I32, I16, I8, U8]


def literal_sequence(dtype: DType, start: float, step: float) -> Fusion:
    builder = GraphBuilder("sequence")
    x = builder.input("x", F32, [37])
    made = builder.apply("iota", 37, start, step, dtype=dtype)
    builder.output(made)
    wide = builder.apply("cast", made, dtype=F32)
    builder.output(builder.apply("add", x, wide))
    return builder.finish()


def given_sequence(dtype: DType, scalar: str) -> Fusion:
    """Return a sequence of scalar inputs, by rows of a matrix too."""
    builder = GraphBuilder("sequence")
    rows = builder.declare_dim("N", 5)
    start, step = (builder.input(name, find(scalar), None) for name in ("start", "step"))
    made = builder.apply("iota", rows, start, step, dtype=dtype)
    builder.output(made)
    builder.output(builder.apply("broadcast_in_dim", made, shape=[rows, 3], broadcast_dims=[0]))
    return builder.finish()


def sized_sequence() -> Fusion:
    """Return a sequence that begins and steps by the extents of a tensor."""
    builder = GraphBuilder("sequence")
    x = builder.input("x", F32, [builder.declare_dim("N", 7), builder.declare_dim("K", 4)])
    sizes = [builder.apply("size", x, dim=axis) for axis in (0, 1)]
    made = builder.apply("iota", 9, *sizes, dtype=I64)
    builder.output(made)
    doubled = builder.apply("mul", sizes[0], 2.5)
    builder.output(builder.apply("iota", 9, doubled, sizes[1], dtype=F32))
    return builder.finish()


GIVEN: dict[str, dict[str, Any]] = {
    "f32": {"start": np.float32(-1.3), "step": np.float32(0.1)},
    "f64": {"start": np.float64(1e9), "step": np.float64(-1e-3)},
    "i64": {"start": np.int64(-7), "step": np.int64(3)},
}


LITERAL_CASES = [
    (dtype, start, step)
    for start, step in LITERALS
    for dtype in KINDS
    if dtype.is_float or (isinstance(start, int) and (dtype is not U8 or start >= 0))
]


@pytest.mark.parametrize(("dtype", "start", "step"), LITERAL_CASES, ids=str)
def test_literals(dtype: DType, start: float, step: float, tmp_path: Path) -> None:
    outputs = check_on_cpu(literal_sequence(dtype, start, step), "pointwise", tmp_path)
    expected = start + step * np.arange(37.0)
    assert np.array_equal(next(iter(outputs.values())), expected.astype(dtype.numpy))


@pytest.mark.parametrize("scalar", sorted(GIVEN))
@pytest.mark.parametrize("dtype", [F64, F32, BF16, I64, I32], ids=str)
def test_scalar_inputs(dtype: DType, scalar: str, tmp_path: Path) -> None:
    outputs = check_on_cpu(given_sequence(dtype, scalar), "pointwise", tmp_path, GIVEN[scalar])
    start, step = (float(v) for v in GIVEN[scalar].values())
    if dtype.is_float:
        expected = (start + step * np.arange(5.0)).astype(dtype.numpy)
        assert np.array_equal(next(iter(outputs.values())), expected)


def test_ties_are_rounded_once() -> None:
    start, step = np.float32(-1.3), np.float32(0.1)
    fusion = given_sequence(F16, "f32")
    made = evaluate(fusion, {"start": start, "step": step}, {"N": 40994})["iota_1"]
    assert made[40993] == np.float16(np.float64(start) + np.float64(step) * 40993)
    fusion = given_sequence(F32, "f64")
    made = evaluate(fusion, {"start": 1e9, "step": -0.001}, {"N": 32001})["iota_1"]
    assert made[32000] == 1e9


def test_sizes(tmp_path: Path) -> None:
    first, second = check_on_cpu(sized_sequence(), "pointwise", tmp_path).values()
    assert first.tolist() == list(range(7, 43, 4))
    assert second.tolist() == [17.5 + 4 * k for k in range(9)]


@pytest.mark.gpu
@pytest.mark.parametrize("scalar", sorted(GIVEN))
@pytest.mark.parametrize("dtype", KINDS[:-1], ids=str)
def test_on_a_gpu(dtype: DType, scalar: str) -> None:
    check_on_gpu(given_sequence(dtype, scalar), inputs=GIVEN[scalar])
    check_on_gpu(given_sequence(dtype, scalar), {"N": 70001}, inputs=GIVEN[scalar])


def test_halves_of_doubles_are_rounded_once() -> None:
    """Doubles just beside ties, which lie on them as floats, go to their own side."""
    for dtype in (BF16, F8E4M3):
        kind = dtype.numpy
        values = np.arange(1, 100, dtype=np.uint8).astype(np.uint16 if dtype == BF16 else np.uint8)
        bits = values + (0x4000 if dtype == BF16 else 0)
        low = bits.astype(bits.dtype).view(kind).astype(np.float64)
        high = (bits + 1).astype(bits.dtype).view(kind).astype(np.float64)
        tie = (low + high) / 2
        assert np.array_equal(round_to(tie * (1 + 2.0**-40), dtype), high)
        assert np.array_equal(round_to(tie * (1 - 2.0**-40), dtype), low)
        assert np.array_equal(round_to(-tie * (1 + 2.0**-40), dtype), -high)
