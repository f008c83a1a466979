"""Complex numbers on the GPU: functions, layouts, reductions, products, writing in place."""

from __future__ import annotations

import numpy as np
import pytest
from complex_on_cpu import fusion_of
from gpu_check import check_on_gpu

from fusec.run.arrays import StridedArray

pytestmark = pytest.mark.gpu

UNARY = [
    "neg",
    "reciprocal",
    "abs",
    "exp",
    "log",
    "log2",
    "log10",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "real",
    "imag",
    "isfinite",
    "isnan",
    "isinf",
    "isreal",
    "logical_not",
    "sigmoid",
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
]
BINARY = ["add", "sub", "mul", "div", "pow", "eq", "ne", "logical_or"]


@pytest.mark.parametrize("dtype", ["c64", "c128"])
@pytest.mark.parametrize("op", UNARY)
def test_functions_of_one_operand(op: str, dtype: str) -> None:
    check_on_gpu(fusion_of(f"x: {dtype}[N]", f"y = {op}(x)", "y", "{N: 100003}"))


@pytest.mark.parametrize("dtypes", ["c64 c64", "c128 c128", "c64 f32", "c64 f64", "i32 c64"])
@pytest.mark.parametrize("op", BINARY)
def test_functions_of_two_operands(op: str, dtypes: str) -> None:
    a, b = dtypes.split()
    check_on_gpu(fusion_of(f"a: {a}[B, H]; b: {b}[H]", f"y = {op}(a, b)", "y", "{B: 37, H: 1030}"))


def test_literals_scalars_and_casts() -> None:
    fusion = fusion_of(
        "x: c64[N]; r: bf16[N]; m: bool[N]; s: c64 = [1, -0.5]",
        "a = where(m, mul(x, s), c64(3, 5)); b = add(cast(r, c64), x);"
        "c = cast(cast(x, c128), c64); d = cast(x, f32); e = complex(r, 1.5);"
        "f = full(shape=[N], fill_value=s); g = pow(x, 3)",
        "a, b, c, d, e, f, g", "{N: 5001}",
    )  # fmt: skip
    given = check_on_gpu(fusion, inputs={"s": 2 - 3j})
    assert np.all(given.outputs["f"] == 2 - 3j)


def test_movements() -> None:
    fusion = fusion_of(
        "x: c64[B, H]; y: c64[B, H]; k: i64[40]",
        "a = permute(x, dims=[1, 0]); b = cat([x, y], dim=0); c = pad(x, pad_widths=[1, 2]);"
        "d = flip(y, dims=[1]); e = index_select(x, k, dim=0);"
        "f = slice(x, start_indices=[0, 3], end_indices=[B, H], strides=[1, 2])",
        "a, b, c, d, e, f", "{B: 67, H: 130}",
    )  # fmt: skip
    check_on_gpu(fusion)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
@pytest.mark.parametrize("dims", ["0", "1", "0, 1"])
def test_reductions(dtype: str, dims: str) -> None:
    fusion = fusion_of(
        f"x: {dtype}[B, H]",
        f"a = sum(x, dims=[{dims}]); b = mean(x, dims=[{dims}]);"
        f"v, m = var_mean(x, dims=[{dims}])", "a, b, v, m", "{B: 300, H: 1100}",
    )  # fmt: skip
    check_on_gpu(fusion)


def test_a_normalisation_in_one_kernel() -> None:
    fusion = fusion_of(
        "x: c64[B, H]; w: c64[H]",
        "s = abs(x); e = mean(mul(s, s), dims=[1], keepdim=true); y = mul(mul(x, rsqrt(e)), w)",
        "y", "{B: 500, H: 2048}",
    )  # fmt: skip
    check_on_gpu(fusion, scheduler="inner_persistent")


@pytest.mark.parametrize("op", ["matmul(a, b)", "linear(a, permute(b, dims=[1, 0]), v)"])
def test_products_of_matrices(op: str) -> None:
    fusion = fusion_of(
        "a: c64[M, K]; b: c64[K, N]; v: c64[N]", f"y = {op}", "y", "{M: 200, K: 160, N: 72}"
    )
    check_on_gpu(fusion, scheduler="matmul" if op.startswith("matmul") else None)


def test_layouts() -> None:
    fusion = fusion_of(
        """x:
    type: c64[B, H]
    contiguity: [false, true]
  p:
    type: c64[B, H]
    stride_order: [0, 1]""",
        "y = mul(x, p)", "y", "{B: 130, H: 260}",
    )  # fmt: skip
    check_on_gpu(fusion)


@pytest.mark.parametrize("line", ["mul(x, w)", "complex(imag(x), real(x))", "flip(x, dims=[0])"])
def test_outputs_written_into_inputs(line: str) -> None:
    fusion = fusion_of(
        "x: c64[N]; w: c64[N]", f"y = {line}; s = add(x, w)", "{y: {alias: x}}, s", "{N: 70001}"
    )
    check_on_gpu(fusion, repeats=3)


def test_quotients_whose_squares_overflow() -> None:
    fusion = fusion_of("a: c64[N]; b: c64[N]", "q = div(a, b); m = abs(a)", "q, m", "{N: 2}")
    a = np.array([2e30 + 2e30j, 1e-30 - 2e-30j], np.complex64)
    b = np.array([1e30 - 1e30j, 2e-30 + 1e-30j], np.complex64)
    given = {"a": StridedArray(a, (2,), (1,)), "b": StridedArray(b, (2,), (1,))}
    found = check_on_gpu(fusion, inputs=given)
    np.testing.assert_allclose(found.outputs["q"], [2j, -1j], atol=1e-6)
