"""What every operation says to bad input: an error at its call, with the shapes involved."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fusec import driver
from fusec.diagnostics import FusecError
from fusec.ops import TABLE
from fusec.parse import read_text

HEAD = """\
fusion: bad
dims: {B: 4, H: 6}
inputs:
  x: f32[B, H]
  y: f32[4, 6]
  v: f32[6]
  m: f32[2, 4, 6]
  i: i64[4]
  j: i64[4, 6]
  w: f32[4, 6]
  s: f32 = 1.0
ops:
"""
LINE = HEAD.count("\n") + 1
HALF = ("f4e2m1", "f8e8m0")


def error_of(call: str) -> FusecError:
    """Return the error of a file with one call, placed at it."""
    op = TABLE[call.partition("(")[0]]
    names = ", ".join(f"o{k}" for k in range(len(op.results))) if op.name != "shape" else "o0"
    with pytest.raises(FusecError) as caught:
        read_text(f"{HEAD}  - {names} = {call}\noutputs: [o0]\n", "bad.yaml")
    error = caught.value
    span = error.diagnostic.span
    assert span is not None, error.render()
    assert (span.file, span.line) == ("bad.yaml", LINE), error.render()
    assert call.endswith(span.text[span.column - 1 :]), error.render()
    return error


# -- dims out of range, for every operation that names dims

AXES = {
    "softmax": "y, {d}", "log_softmax": "y, {d}", "size": "y, {d}", "index_select": "y, i, {d}",
    "select": "y, 0, {d}", "gather": "y, j, {d}", "take_along_axis": "y, j, {d}",
    "cumsum": "y, {d}", "cumprod": "y, {d}", "cummax": "y, {d}", "cummin": "y, {d}",
    "scatter": "y, j, w, {d}", "scatter_add": "y, j, w, {d}", "index_add": "y, i, w, {d}",
    "argsort": "y, {d}", "sort": "y, {d}", "topk": "y, 1, {d}", "cat": "[y, w], {d}",
    "mean": "y, [{d}]", "argmax": "y, [{d}]", "argmin": "y, [{d}]", "squeeze": "y, [{d}]",
    "flip": "y, [{d}]", "sum": "y, [{d}]", "prod": "y, [{d}]", "max": "y, [{d}]",
    "min": "y, [{d}]", "any": "y, [{d}]", "all": "y, [{d}]", "var": "y, [{d}]",
    "var_mean": "y, [{d}]", "welford": "y, [{d}]", "permute": "y, [0, {d}]",
    "broadcast_in_dim": "v, [4, 6], [{d}]", "stride_order": "y, [0, {d}]",
    "transpose": "y, 0, {d}", "glu": "y, {d}", "narrow": "y, {d}, 0, 1", "split": "y, 2, {d}",
    "unflatten": "y, {d}, [2, -1]", "chunk": "y, 2, {d}", "unbind": "y, {d}",
    "repeat_interleave": "y, 2, {d}", "std": "y, [{d}]", "norm": "y, 2.0, [{d}]",
    "normalize": "y, 2.0, {d}", "cosine_similarity": "y, w, {d}", "softmin": "y, {d}",
    "logsumexp": "y, [{d}]", "count_nonzero": "y, [{d}]", "nansum": "y, [{d}]",
}  # fmt: skip


@pytest.mark.parametrize("dim", [2, 7, -3])
@pytest.mark.parametrize("op", AXES)
def test_dims_out_of_range(op: str, dim: int) -> None:
    error = error_of(f"{op}({AXES[op].format(d=dim)})")
    text = error.render()
    assert error.exit_code == 2
    assert re.search(rf"{dim}\b", error.diagnostic.message), text
    assert "f32[4, 6]" in text or "[4, 6]" in text, text


def test_every_operation_with_dims_is_among_them() -> None:
    kinds = {"axis", "dims"}
    named = {n for n, op in TABLE.items() if any(p.kind in kinds for p in op.attributes)}
    assert named <= set(AXES)


# -- sizes below zero, for every operation that takes sizes

SIZES = {
    "uniform": "0.0, 1.0, [4, {n}]", "normal": "0.0, 1.0, [4, {n}]", "full": "[4, {n}], 1.0",
    "iota": "{n}", "layer_norm": "y, [{n}]", "rms_norm": "y, [{n}]",
    "broadcast_in_dim": "v, [{n}, 6], [1]", "expand": "v, [{n}, 6]", "repeat": "y, [1, {n}]",
    "reshape": "y, [{n}, 6]", "topk": "y, {n}", "slice": "y, [0, 0], [4, {n}]",
    "pad": "y, [{n}, {n}]", "update_slice": "y, y, [0, {n}]", "narrow": "y, 0, 0, {n}",
    "unflatten": "y, 0, [{n}, 2]", "split": "y, {n}", "chunk": "y, {n}", "zeros": "[4, {n}]",
    "ones": "[4, {n}]", "arange": "{n}", "eye": "{n}", "one_hot": "i, {n}",
    "repeat_interleave": "y, {n}, 0", "group_norm": "y, {n}",
}  # fmt: skip
FROM_THE_END = {"slice"}
"""Negative numbers count from the end; far below zero they cut everything off."""


@pytest.mark.parametrize("op", sorted(set(SIZES) - FROM_THE_END))
def test_negative_sizes(op: str) -> None:
    error = error_of(f"{op}({SIZES[op].format(n=-9)})")
    assert error.exit_code == 2
    assert "-" in error.diagnostic.message, error.render()


def test_every_operation_with_sizes_is_among_them() -> None:
    kinds = {"shape", "size"}
    named = {n for n, op in TABLE.items() if any(p.kind in kinds for p in op.attributes)}
    assert named <= set(SIZES)


# -- an index that holds no integers, or is out of bounds

INDICES = {
    "index_select": "y, {i}, 0", "select": "y, {i}, 0", "gather": "y, {i}, 0",
    "take_along_axis": "y, {i}, 0", "embedding_fwd": "{i}, y", "scatter": "y, {i}, w, 0",
    "scatter_add": "y, {i}, w, 0", "index_add": "y, {i}, w, 0",
    "index_put_accumulate": "y, {i}, w", "cross_entropy": "y, {i}", "nll_loss": "y, {i}",
    "grouped_mm": "y, m, {i}",
}  # fmt: skip
RANK = {"gather", "take_along_axis", "scatter", "scatter_add"}


@pytest.mark.parametrize("op", INDICES)
def test_an_index_that_holds_no_integers(op: str) -> None:
    index = "x" if op in RANK else "s" if op == "select" else "v"
    error = error_of(f"{op}({INDICES[op].format(i=index)})")
    assert error.exit_code == 2
    assert re.search("integers, got f32", error.diagnostic.message), error.render()
    assert f"{index} is f32" in error.render()


def test_every_operation_with_an_index_is_among_them() -> None:
    families = ("indexing", "scatter")
    assert {n for n, op in TABLE.items() if op.family in families} <= set(INDICES)


# -- what does not fit

MISFITS = {
    "reshape(y, [5, 5])": "changes the number of elements",
    "reshape(x, [7, B])": "reshape",
    "reshape(y, [-1, -1])": "-1",
    "reshape(y, [-1, 7])": "24|7",
    "expand(y, [4, 7])": "7",
    "expand(y, [6])": "expand",
    "topk(y, 7)": "k is 7",
    "topk(y, 5, 0)": "k is 5",
    "squeeze(y, [0])": "squeeze",
    "permute(y, [0, 0])": "permute|twice",
    "permute(y, [0])": "permute",
    "slice(y, [0], [4])": "slice",
    "pad(y, [1, 1, 1, 1, 1, 1])": "pad",
    "pad(y, [1])": "pad",
    "cat([y, m])": "cat",
    "cat([y, x], 0)": "cat",
    "matmul(y, w)": "matmul",
    "matmul(y, s)": "matmul",
    "linear(v, m, y)": "linear",
    "layer_norm(y, [5])": "layer_norm",
    "gather(y, i, 0)": "1 dims",
    "index_select(y, j, 0)": "2 dims",
    "embedding_fwd(i, m)": "3 dims",
    "scatter(y, j, v, 0)": "scatter",
    "where(y, i, v)": "",
    "select(y, 9, 0)": "index 9 is out of bounds",
    "select(y, -7, 1)": "index -7 is out of bounds",
    "batch_norm(y, v, v, v, i)": "batch_norm|i64",
    "group_norm(m, 3)": "group",
    "cross_entropy(y, j)": "dims",
    "softmax(s, 0)": "softmax",
    "triu(v)": "at least 2 dims",
    "grouped_mm(y, m, j)": "",
    "sdpfa_fwd(y, y, y)": "",
    "broadcast(y, [true])": "broadcast",
    "stride_order(y, [1, 1])": "permutation",
    "repeat(y, [2])": "repeat",
    "flip(y, [0, 0])": "twice",
}


@pytest.mark.parametrize("call", MISFITS)
def test_what_does_not_fit(call: str) -> None:
    error = error_of(call)
    assert error.exit_code == 2
    assert re.search(MISFITS[call], error.diagnostic.message), error.render()
    assert re.search(r"f32|i64|\[", error.render().split("|")[-1]), error.render()


# -- casts that cannot be


@pytest.mark.parametrize("dtype", HALF)
def test_types_that_are_known_by_name_only(dtype: str) -> None:
    assert error_of(f"cast(y, {dtype})").exit_code == 3


@pytest.mark.parametrize("call", ["cast(y, f33)", "cast(y, 3)", "cast(y, [f32])", "cast(y)"])
def test_types_that_are_none(call: str) -> None:
    assert error_of(call).exit_code == 2


# -- the reference names a bad index as kernels with --check-bounds do


@pytest.mark.parametrize("op", sorted(set(INDICES) - {"grouped_mm"}))
def test_the_reference_places_a_bad_index(op: str) -> None:
    index = "j" if op in RANK else "k" if op == "select" else "i"
    text = HEAD.replace("  s: f32", "  k: i64[]\n  s: f32")
    call = f"{op}({INDICES[op].format(i=index)})"
    fusion = read_text(f"{text}  - o0 = {call}\noutputs: [o0]\n", "bad.yaml")
    inputs = {
        e.value.name: np.full([d.evaluate(fusion.hints) for d in e.value.shape], 77)
        for e in fusion.inputs
    }
    with pytest.raises(FusecError, match="index 77") as caught:
        driver.reference(fusion, inputs, fusion.hints)
    span = caught.value.diagnostic.span
    assert span is not None
    assert (span.line, span.text) == (LINE + 1, f"  - o0 = {call}")
