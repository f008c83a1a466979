"""The maximum that a softmax subtracts: its error cancels, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from fusec.ir.graph import Fusion
from fusec.parse.reader import read_text
from fusec.reference.errors.shifts import free_shifts
from fusec.reference.stream import estimate
from fusec.reference.verdict import compare
from fusec.run.inputs import choose_sizes, random_inputs

HEAD = """\
fusion: weights
dims: {M: 48, K: 64, N: 96}
inputs: {a: "bf16[M, K]", b: "bf16[K, N]"}
ops:
  - s = mul(cast(matmul(a, b), f32), 0.05)
  - m = max(s, dims=[1], keepdim=true)
"""
SOFTMAX = """\
  - e = exp(sub(s, m))
  - t = sum(e, dims=[1], keepdim=true)
  - p = div(e, t)
outputs: [p]
"""
GUARDED = """\
  - c = eq(m, -inf)
  - g = where(c, 0.0, m)
  - e = exp(sub(s, g))
  - t = sum(e, dims=[1], keepdim=true)
  - p = div(e, where(c, 1.0, t))
"""
FREE = {
    "guarded": GUARDED + "outputs: [p]\n",
    "guarded by isfinite": GUARDED.replace("eq(m, -inf)", "isfinite(m)")
    .replace("0.0, m", "m, 0.0")
    .replace("1.0, t", "t, 1.0")
    + "outputs: [p]\n",
    "guarded, with log-sum-exp": GUARDED + "  - l = add(g, log(t))\noutputs: [p, l, c]\n",
    "softmax": SOFTMAX,
    "composite": "  - p = softmax(s, dim=1)\noutputs: [p]\n",
    "with log-sum-exp": SOFTMAX.replace("outputs: [p]", "  - l = add(m, log(t))\noutputs: [p, l]"),
    "log-softmax": """\
  - d = sub(s, m)
  - p = sub(d, log(sum(exp(d), dims=[1], keepdim=true)))
outputs: [p]
""",
}
BOUND = {
    "compared with a number": GUARDED.replace("-inf", "1.0") + "outputs: [p]\n",
    "the other way round": GUARDED.replace("0.0, m", "m, 0.0") + "outputs: [p]\n",
    "guarded by another": GUARDED.replace("eq(m, -inf)", "gt(m, 1.0)") + "outputs: [p]\n",
    "the guarded maximum is an output": GUARDED + "outputs: [p, g]\n",
    "the maximum is an output": SOFTMAX.replace("outputs: [p]", "outputs: [p, m]"),
    "weights are an output": SOFTMAX.replace("outputs: [p]", "outputs: [p, e]"),
    "the sum is an output": SOFTMAX.replace("outputs: [p]", "outputs: [p, t]"),
    "weights of another sum": SOFTMAX.replace("sum(e, dims=[1]", "sum(mul(e, s), dims=[1]"),
    "a sum over rows": SOFTMAX.replace("sum(e, dims=[1]", "sum(e, dims=[0]"),
    "the maximum scales": SOFTMAX.replace("div(e, t)", "mul(div(e, t), m)"),
    "divided the other way": SOFTMAX.replace("div(e, t)", "div(t, e)"),
    "the difference is squared": SOFTMAX.replace("div(e, t)", "mul(div(e, t), sub(s, m))"),
    "one sum of the logarithm": SOFTMAX.replace("outputs: [p]", "  - l = log(t)\noutputs: [p, l]"),
}


def read(text: str) -> Fusion:
    return read_text(HEAD + text, "weights.yaml")


@pytest.mark.parametrize("name", FREE)
def test_a_softmax_does_not_depend_on_its_maximum(name: str) -> None:
    fusion = read(FREE[name])
    (top,) = free_shifts(fusion)
    assert top.name.startswith(("m", "max"))


@pytest.mark.parametrize("name", BOUND)
def test_other_results_do(name: str) -> None:
    assert free_shifts(read(BOUND[name])) == frozenset()


def weights(scores: np.ndarray, shift: float = 0.0) -> np.ndarray:
    """Return a softmax in f32 whose maximum is off."""
    s = scores.astype(np.float32)
    e = np.exp(s - (s.max(axis=1, keepdims=True) + np.float32(shift)))
    return e / e.sum(axis=1, keepdims=True, dtype=np.float32)


def test_a_maximum_that_is_off_leaves_the_weights() -> None:
    """And errors of one score show in these as they would not, were they common to a row."""
    fusion = read(SOFTMAX)
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 1)
    scores = estimate(fusion, inputs, sizes, ["s"])["s"].settled.value
    for shift in (0.0, 0.25):
        verdict = compare(fusion, sizes, inputs, {"p": weights(scores, shift)})
        assert verdict.word == "verified", verdict.text()
    wrong = weights(scores)
    wrong[3] *= np.float32(1.01)
    assert compare(fusion, sizes, inputs, {"p": wrong}).word == "differs"


def test_a_maximum_that_may_be_no_number_counts() -> None:
    text = HEAD.replace("mul(cast(matmul(a, b), f32), 0.05)", "log(cast(matmul(a, b), f32))")
    fusion = read_text(text + SOFTMAX, "weights.yaml")
    inputs = {"a": np.zeros((48, 64)), "b": np.zeros((64, 96))}
    dtype = fusion.inputs[0].value.dtype.numpy
    arrays = {name: array.astype(dtype) for name, array in inputs.items()}
    found = estimate(fusion, arrays, choose_sizes(fusion), ["p"])["p"]
    assert np.isnan(found.value).all()


def test_a_sum_that_weights_are_divided_by_scales_what_they_weigh() -> None:
    """Its error is one factor for a row of weights, whatever the signs of what they weigh."""
    lines = SOFTMAX.replace("outputs: [p]", "  - o = matmul(p, c)\noutputs: [o, t]")
    text = HEAD.replace("inputs: {", 'inputs: {c: "f32[N, M]", ') + lines
    text = text.replace("K: 64", "K: 4096").replace("0.05", "0.01")
    fusion = read_text(text, "weights.yaml")
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 1)
    found = estimate(fusion, inputs, sizes, ["p", "t", "o"])
    total, weighed = found["t"], found["o"]
    assert total.variance is not None
    assert weighed.common is not None
    relative = np.sqrt(np.broadcast_to(total.variance, total.value.shape)) / total.value
    shared = np.abs(weighed.value) * relative
    c = np.abs(np.asarray(inputs["c"], np.float64))
    sum_of_sizes = (found["p"].value @ c) * relative
    common = np.sqrt(np.broadcast_to(weighed.common, shared.shape))
    assert (common >= shared).all()
    # Where scores may be rounded the other way, nothing else that rows have in common counts.
    rows = relative[:, 0] > 1e-5
    assert rows.sum() >= 5
    assert np.median((common / sum_of_sizes)[rows]) < 0.5
