"""Complex numbers in kernels: run on the host and compared with NumPy's own complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from complex_on_cpu import check_on_cpu, fusion_of, run_on_cpu

from fusec.run.arrays import StridedArray


def logistic(z: Any) -> Any:
    """Return the logistic function, 0 where exp(-z) overflows with a direction."""
    plain = 1 / (1 + np.exp(-z))
    return np.where((z.real == -np.inf) & np.isfinite(z.imag), 0, plain)


UNARY = {
    "neg": np.negative, "reciprocal": np.reciprocal, "abs": np.abs, "exp": np.exp,
    "log": np.log, "log2": np.log2, "log10": np.log10, "sqrt": np.sqrt,
    "rsqrt": lambda z: 1 / np.sqrt(z), "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "real": np.real, "imag": np.imag,
    "isfinite": np.isfinite, "isnan": np.isnan, "isinf": np.isinf, "isreal": np.isreal,
    "logical_not": np.logical_not, "sigmoid": logistic,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip
INVERSES = ("asin", "acos", "atan", "asinh", "acosh", "atanh")
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "truediv": np.divide, "pow": np.power, "eq": np.equal, "ne": np.not_equal,
    "logical_and": np.logical_and,
}  # fmt: skip
HARD = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 1e-3, -1e-3, 3.0, -0.25]


def grid(kind: str) -> StridedArray:
    """Return all pairs of parts that branch cuts, zeros and signs of zero make hard."""
    z = np.empty((len(HARD), len(HARD)), kind)
    z.real, z.imag = np.array(HARD)[:, None], np.array(HARD)[None]
    flat = z.reshape(-1)
    return StridedArray(flat, flat.shape, (1,))


def close(found: np.ndarray, expected: np.ndarray, kind: str) -> None:
    """Assert that parts agree to the precision of the modulus where that is finite."""
    tolerance = 1e-5 if kind == "complex64" else 1e-13
    finite = np.isfinite(expected)
    scale = np.maximum(np.abs(expected[finite]), 1)
    assert np.all(np.abs(found[finite] - expected[finite]) <= tolerance * scale)
    assert not np.any(np.isfinite(found[~finite]))


@pytest.mark.parametrize(("dtype", "kind"), [("c64", "complex64"), ("c128", "complex128")])
def test_functions_of_one_operand(dtype: str, kind: str) -> None:
    lines = "; ".join(f"y_{op} = {op}(x)" for op in UNARY)
    fusion = fusion_of(f"x: {dtype}[N]", lines, ", ".join(f"y_{op}" for op in UNARY), "{N: 121}")
    check_on_cpu(fusion)
    values = grid(kind)
    outputs, _, _ = run_on_cpu(fusion, {"x": values})
    wide = values.array.astype(np.complex128)
    with np.errstate(all="ignore"):
        for op, function in UNARY.items():
            expected = function(wide)
            if expected.dtype == bool:
                np.testing.assert_array_equal(outputs[f"y_{op}"], expected, err_msg=op)
            else:
                close(outputs[f"y_{op}"], expected, kind)


@pytest.mark.parametrize(("dtype", "kind"), [("c64", "complex64"), ("c128", "complex128")])
def test_functions_of_parts_that_are_not_finite(dtype: str, kind: str) -> None:
    names = ("exp", "log", "log2", "sqrt", "abs", "sigmoid", *INVERSES)
    lines = "; ".join(f"y_{op} = {op}(x)" for op in names)
    fusion = fusion_of(f"x: {dtype}[N]", lines, ", ".join(f"y_{op}" for op in names), "{N: 25}")
    parts = [np.inf, -np.inf, np.nan, 0.0, -2.0]
    values = np.array([complex(re, im) for re in parts for im in parts], kind)
    outputs, _, _ = run_on_cpu(fusion, {"x": StridedArray(values, values.shape, (1,))})
    with np.errstate(all="ignore"):
        for op in names:
            found, expected = outputs[f"y_{op}"], UNARY[op](values.astype(np.complex128))
            # A number with a part that is NaN is NaN, as PyTorch counts.
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected), err_msg=op)
            known = ~np.isnan(expected)
            for part in (np.real, np.imag):
                np.testing.assert_allclose(
                    part(found)[known], part(expected)[known], rtol=1e-5, atol=1e-30, err_msg=op
                )


@pytest.mark.parametrize(("dtype", "kind"), [("c64", "complex64"), ("c128", "complex128")])
def test_functions_of_two_operands(dtype: str, kind: str) -> None:
    lines = "; ".join(f"y_{op} = {op}(a, b)" for op in BINARY)
    names = ", ".join(f"y_{op}" for op in BINARY)
    fusion = fusion_of(f"a: {dtype}[N]; b: {dtype}[N]", lines, names, "{N: 40}")
    given = check_on_cpu(fusion)
    assert given["y_mul"].dtype == kind
    z = np.array([1, -1j, 2 + 1j, 1e-30 + 1e-25j, -3e30 + 1e30j, 0, 0.5 - 4j], kind)
    a, b = (np.ascontiguousarray(v.reshape(-1)) for v in np.meshgrid(z, z))
    pair = {"a": StridedArray(a, a.shape, (1,)), "b": StridedArray(b, b.shape, (1,))}
    outputs, _, _ = run_on_cpu(fusion, pair)
    wide = a.astype(np.complex128), b.astype(np.complex128)
    with np.errstate(all="ignore"):
        quotient = wide[0] / wide[1]
    fits = np.isfinite(quotient) & (np.abs(quotient) < 1e37) & (np.abs(quotient) > 1e-30)
    error = np.abs(outputs["y_div"][fits] - quotient[fits]) / np.abs(quotient[fits])
    assert fits.sum() > 20
    assert error.max() < (2e-6 if kind == "complex64" else 3e-15)


def test_squares_whose_sum_overflows_have_a_quotient_and_a_modulus() -> None:
    fusion = fusion_of(
        "a: c64[N]; b: c64[N]", "q = div(a, b); m = abs(a); r = sqrt(a)", "q, m, r", "{N: 2}"
    )
    a = np.array([2e30 + 2e30j, 1e-30 - 2e-30j], np.complex64)
    b = np.array([1e30 - 1e30j, 2e-30 + 1e-30j], np.complex64)
    given = {"a": StridedArray(a, (2,), (1,)), "b": StridedArray(b, (2,), (1,))}
    outputs = check_on_cpu(fusion, given)
    np.testing.assert_allclose(outputs["q"], [2j, -1j], atol=1e-6)
    np.testing.assert_allclose(outputs["m"], np.abs(a.astype(complex)), rtol=1e-6)
    np.testing.assert_allclose(outputs["r"], np.sqrt(a.astype(complex)), rtol=1e-6)


def test_types_are_promoted_as_in_pytorch() -> None:
    fusion = fusion_of(
        "x: c64[N]; r: f32[N]; d: f64[N]; h: bf16[N]; i: i64[N]; s: c128 = [0.5, -1]",
        "a = mul(x, r); b = add(x, d); c = mul(h, x); e = sub(i, x); f = mul(x, s); g = mul(d, s);"
        "j = mul(i, s); k = mul(x, 2.5); l = add(r, c64(1, -2)); m = pow(x, 3); n = pow(x, -2)",
        "a, b, c, e, f, g, j, k, l, m, n", "{N: 9}",
    )  # fmt: skip
    found = {o.value.name: o.value.dtype.name for o in fusion.outputs}
    assert found == {
        "a": "c64", "b": "c128", "c": "c64", "e": "c64", "f": "c64", "g": "c128", "j": "c64",
        "k": "c64", "l": "c64", "m": "c64", "n": "c64",
    }  # fmt: skip
    check_on_cpu(fusion)


def test_casts() -> None:
    fusion = fusion_of(
        "x: c64[N]; r: f32[N]; i: i32[N]",
        "a = cast(x, c128); b = cast(x, f32); c = cast(x, f16); d = cast(x, bool);"
        "e = cast(r, c64); f = cast(i, c128); g = cast(x, i32); h = complex(r, i);"
        "k = complex(r, 1.5); l = cast(a, c64)",
        "a, b, c, d, e, f, g, h, k, l", "{N: 9}",
    )  # fmt: skip
    outputs = check_on_cpu(fusion)
    assert outputs["f"].dtype == np.complex128
    assert not outputs["e"].imag.any()
    assert np.all(outputs["k"].imag == 1.5)


def test_literals_selections_and_tensors_of_one_value() -> None:
    fusion = fusion_of(
        "x: c64[N]; m: bool[N]; s: c64 = [1, -1]",
        "a = where(m, x, c64(3, 5)); b = where(m, 2, x); c = where(m, c128(1, 2), c128(3, 4));"
        "d = full(shape=[N], fill_value=c64(0.1, -0.2)); e = full(shape=[N], fill_value=s);"
        "f = where(eq(x, s), x, neg(x)); g = addcmul(x, x, x, 0.5)",
        "a, b, c, d, e, f, g", "{N: 9}",
    )  # fmt: skip
    outputs = check_on_cpu(fusion)
    assert outputs["c"].dtype == np.complex128
    assert outputs["d"][3] == np.complex64(0.1 - 0.2j)
    assert outputs["e"][3] == 1 - 1j


@pytest.mark.nightly
def test_movements_do_the_same_to_both_parts() -> None:
    fusion = fusion_of(
        "x: c64[B, H]; y: c64[B, H]; row: c64[H]; k: i64[4]; j: i64[B, 2]",
        "a = permute(x, dims=[1, 0]); b = reshape(x, new_shape=[H, B]); c = flip(x, dims=[1]);"
        "d = slice(x, start_indices=[0, 1], end_indices=[B, H], strides=[1, 2]);"
        "e = pad(x, pad_widths=[1, 2], value=c64(1, 2)); f = cat([x, y, x], dim=1);"
        "g = add(x, row); h = broadcast_in_dim(row, shape=[2, H], broadcast_dims=[1]);"
        "i = squeeze(reshape(x, new_shape=[B, 1, H]), dims=[1]); l = index_select(x, k, dim=1);"
        "m = gather(x, j, dim=1); n = select(x, 2, dim=1); o = set(x);"
        "p = repeat(x, repeats=[2, 1]); q = expand(broadcast(row, [true, false]), shape=[5, H]);"
        "r = take_along_axis(x, j, dim=1); t = stride_order(x, stride_order=[0, 1]);"
        "u = triu(x, 1); v = tril(x); w = scatter(x, j, c64(3, 4), dim=1)",
        "a, b, c, d, e, f, g, h, i, l, m, n, o, p, q, r, t, u, v, w",
    )  # fmt: skip
    outputs = check_on_cpu(fusion)
    assert outputs["e"][0, 0] == 1 + 2j


def test_sums_means_and_variances() -> None:
    fusion = fusion_of(
        "x: c64[B, H]; z: c128[B, H]; r: f32[B, H]",
        "a = sum(x, dims=[1]); b = sum(x); c = sum(z, dims=[0], keepdim=true);"
        "d = mean(x, dims=[1]); e = var(x, dims=[1]); f, g = var_mean(z, dims=[0], correction=0);"
        "h = sum(r, dims=[1], dtype=c64); i = sum(x, dims=[0], dtype=c128);"
        "j = sub(x, mean(x, dims=[1], keepdim=true)); k = cumsum(x, dim=1)",
        "a, b, c, d, e, f, g, h, i, j, k", "{B: 5, H: 70}",
    )  # fmt: skip
    outputs = check_on_cpu(fusion)
    assert [outputs[n].dtype.name for n in "efgi"] == [
        "float32", "float64", "complex128", "complex128",
    ]  # fmt: skip


def test_a_normalisation_by_the_modulus_stays_one_kernel() -> None:
    fusion = fusion_of(
        "x: c64[B, H]",
        "s = abs(x); e = mean(mul(s, s), dims=[1], keepdim=true); y = mul(x, rsqrt(e))",
        "y", "{B: 4, H: 64}",
    )  # fmt: skip
    _, verdict, planned = run_on_cpu(fusion)
    assert verdict.ok, verdict.text()
    assert [s.scheduler for s in planned.segmented.segments] == ["inner_persistent"]


def test_layouts() -> None:
    """Strided, expanded and permuted inputs, and outputs in another order."""
    fusion = fusion_of(
        """x:
    type: c64[B, H]
    contiguity: [false, true]
  e:
    type: c64[B, H]
    contiguity: [null, true]
  p:
    type: c64[B, H]
    stride_order: [0, 1]""",
        "y = mul(add(x, e), p); z = add(x, p)", "y, z]\n#",
    )  # fmt: skip
    outputs = check_on_cpu(fusion)
    assert outputs["y"].shape == (3, 10)


def test_extents_that_are_half_of_a_dim() -> None:
    """The strides of the parts are whole again: D, which is even, and D // 2 pairs."""
    dims = "{B: 2, D: {default: 8, multiple_of: 2}}"
    check_on_cpu(fusion_of("x: c64[B, 3, D // 2]", "y = x * x; z = real(y)", "y, z", dims))


def test_products_of_matrices() -> None:
    fusion = fusion_of(
        "a: c64[M, K]; b: c64[K, N]; w: c64[N, K]; v: c64[N]",
        "y = matmul(a, b); z = linear(a, w, v)", "y, z", "{M: 6, K: 20, N: 5}",
    )  # fmt: skip
    check_on_cpu(fusion)


@pytest.mark.parametrize(
    "line",
    [
        "y = mul(x, w)",
        "y = mul(x, c64(0, 1))",
        "y = complex(imag(x), real(x))",
        "y = flip(x, dims=[0])",
    ],
)
def test_outputs_written_into_inputs(line: str) -> None:
    fusion = fusion_of(
        "x: c64[N]; w: c64[N]", f"{line}; s = add(x, w)", "{y: {alias: x}}, s", "{N: 700}"
    )
    outputs, verdict, _ = run_on_cpu(fusion)
    assert verdict.ok, verdict.text()
    assert list(outputs) == ["y", "s"]


def test_empty_and_one_element_tensors() -> None:
    fusion = fusion_of(
        "x: c64[N]; s: c64[]", "y = mul(x, s); z = exp(s); t = sum(x)", "y, z, t", "{N: 0}"
    )
    outputs = check_on_cpu(fusion)
    assert outputs["y"].shape == (0,)
    assert outputs["t"] == 0


def test_pointwise_kernels_move_both_parts_at_once() -> None:
    fusion = fusion_of("x: c64[N]; w: c128[N]", "y = mul(x, 2); z = imag(w)", "y, z", "{N: 700}")
    _, verdict, planned = run_on_cpu(fusion)
    assert verdict.ok, verdict.text()
    (source,) = planned.kernel_sources
    assert source.text.count("fusec::load_readonly<2>(x_re + ") == 1
    assert source.text.count("fusec::store(y_re + ") == 1
    assert "x_im[" not in source.text
    assert "w_im[" in source.text  # nobody reads the other part


def test_parts_that_are_stored_apart() -> None:
    fusion = fusion_of(
        "x: f32[N, N]", "r = exp(x); y = complex(r, permute(r, dims=[1, 0]))", "y", "{N: 20}"
    )
    check_on_cpu(fusion)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_scattered_numbers_claim_places_within_their_workspace(dtype: str) -> None:
    inputs = f"base: {dtype}[A, 48]; index: i32[A, A]; values: {dtype}[A, A]"
    check_on_cpu(fusion_of(inputs, "y = scatter(base, index, values, dim=1)", "y", "{A: 17}"))
