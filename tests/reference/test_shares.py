"""Shares of a whole, whose errors are limited, and infinities, which have none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hard_inputs import Case, attention, projected
from nightly import mostly_nightly
from test_hard_inputs import judged_on_cpu

from fusec.ir.graph import Fusion
from fusec.parse.reader import read_text
from fusec.reference.errors.estimate import LIMIT, Estimate
from fusec.reference.errors.nodes import Model
from fusec.reference.errors.shares import find_shares, limit_logarithm, limit_quotient
from fusec.reference.stream import estimate
from fusec.reference.verdict import compare

BF16 = ml_dtypes.bfloat16
HEAD = "fusion: t\ninputs: {x: 'f32[4, 4]', m: 'bool[4, 1]'}\nops:\n  - e = exp(x)\n"
TOTAL = "  - t = sum(e, dims=[1], keepdim=true)\n"
SHARES = {
    "keepdim": TOTAL + "  - y = div(e, t)\n",
    "expanded": TOTAL + "  - y = div(e, expand(t, [4, 4]))\n",
    "in dim": "  - y = div(e, broadcast_in_dim(sum(e, dims=[1]), [4, 4], [0]))\n",
    "columns": "  - y = div(e, sum(e, dims=[0]))\n",
    "guarded": TOTAL + "  - y = div(e, where(m, 1.0, t))\n",
    "all": "  - y = div(e, sum(e, dims=[0, 1]))\n",
    "logarithm": TOTAL + "  - y = log(t)\n",
}
OTHERS = {
    "another row's sum": "  - y = div(e, broadcast_in_dim(sum(e, dims=[1]), [4, 4], [1]))\n",
    "turned": TOTAL + "  - y = div(e, flip(t, [0]))\n",
    "permuted": TOTAL + "  - y = div(e, permute(t, [1, 0]))\n",
    "of other terms": "  - y = div(e, sum(exp(mul(x, 2.0)), dims=[1], keepdim=true))\n",
    "the other way": TOTAL + "  - y = div(t, e)\n",
    "no exponentials": "  - y = div(x, sum(x, dims=[1], keepdim=true))\n",
}


def read(lines: str) -> Fusion:
    return read_text(HEAD + lines + "outputs: [y]\n", "t.yaml")


@pytest.mark.parametrize("name", [*SHARES, *OTHERS])
def test_shares_are_divided_by_the_sum_that_they_are_in(name: str) -> None:
    fusion = read((SHARES | OTHERS)[name])
    found = {n.output.name for n in find_shares(fusion, {})}
    assert found == ({"y"} if name in SHARES else set())


def exponentials(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of exponents, and how far each may be off."""
    d = rng.normal(0, 10, (300, 6))
    d -= d.max(axis=1, keepdims=True)
    return d, np.exp(rng.uniform(-8, 0.5, d.shape))


def test_right_shares_lie_within_their_limits() -> None:
    """However far exponents are off, up to the limit of all their errors together."""
    rng = np.random.default_rng(0)
    d, sigma = exponentials(rng)
    e = np.exp(d)
    off = e * np.expm1(LIMIT * sigma) / LIMIT
    part = Estimate(e, np.square(off))
    whole = Estimate(e.sum(1, keepdims=True), np.square(off).sum(1, keepdims=True))
    nothing = Estimate(e / whole.value, np.full(e.shape, np.inf))
    share = limit_quotient(nothing, [part, whole])
    logarithm = limit_logarithm(Estimate(np.log(whole.value), np.full((300, 1), np.inf)), [whole])
    vague = whole.sigma > whole.value / 64
    assert 0.3 < vague.mean() < 1
    assert (np.isfinite(share.sigma) == vague).all()
    least = np.full(e.shape, np.inf)
    for number in range(2000):
        z = rng.normal(0, 1, d.shape) ** (1 + 2 * (number % 3))  # of few elements, or of all
        z *= LIMIT * rng.random((300, 1)) ** 0.2 / np.linalg.norm(z, axis=1, keepdims=True)
        moved = np.exp(d + sigma * z)
        total = moved.sum(1, keepdims=True)
        least = np.minimum(least, LIMIT * share.sigma - np.abs(moved / total - nothing.value))
        lse = np.abs(np.log(total) - np.log(whole.value))
        assert (lse <= LIMIT * logarithm.sigma + 1e-12).all()
    assert (least >= -1e-12).all()
    # A weight that is nearly all is so whatever it is off.
    sure = (whole.value - e) * np.exp(2 * LIMIT * sigma.max(1, keepdims=True)) < 1e-4
    assert (sure & vague).any()
    assert share.sigma[sure & vague].max() < 1e-4


def test_a_wrong_share_of_a_vague_sum_differs() -> None:
    """Two scores that may be rounded the other way: most of a row is one weight nevertheless."""
    text = (
        "fusion: t\ninputs: {a: 'bf16[64, 32]', b: 'bf16[32, 16]', c: 'bf16[32, 32]'}\nops:\n"
        "  - s = cast(matmul(matmul(a, c), b), f32)\n  - m = max(s, dims=[1], keepdim=true)\n"
        "  - e = exp(sub(s, m))\n  - y = div(e, sum(e, dims=[1], keepdim=true))\noutputs: [y]\n"
    )
    fusion = read_text(text, "t.yaml")
    rng = np.random.default_rng(0)
    shapes = {"a": (64, 32), "b": (32, 16), "c": (32, 32)}
    inputs: dict[str, Any] = {n: rng.normal(0, 2, s).astype(BF16) for n, s in shapes.items()}
    expected = estimate(fusion, inputs, {}, ["y"])["y"]
    right = expected.value.astype(np.float32)
    assert compare(fusion, {}, inputs, {"y": right}).ok
    largest = right.max(axis=1)
    rows = np.flatnonzero((largest > 0.999) & (expected.sigma.max(axis=1) < 1e-3))
    assert rows.size > 8
    for row in rows[:8]:
        for scale in (0.98, 1.02):
            wrong = right.copy()
            wrong[row, right[row].argmax()] *= np.float32(scale)
            assert compare(fusion, {}, inputs, {"y": wrong}).word == "differs"


MASKED = {
    "added": "  - t = add(where(m, s, -inf), b)\n",
    "scaled": "  - t = mul(where(m, s, -inf), add(mul(b, b), 1.0))\n",
    "divided": "  - t = div(where(m, s, -inf), add(mul(b, b), 1.0))\n",
    "summed": "  - t = sum(add(where(m, s, -inf), b), dims=[1], keepdim=true)\n",
}
UNSURE = {
    "of either sign": "  - t = mul(where(m, s, -inf), b)\n",
    "of a jump": "  - t = where(gt(sub(b, b), 0.0), s, -inf)\n",
}


@pytest.mark.parametrize("name", [*MASKED, *UNSURE])
def test_infinities_are_sure_whatever_is_added_to_them(name: str) -> None:
    text = (
        "fusion: t\ninputs: {x: 'f32[8, 16]', m: 'bool[8, 16]'}\nops:\n  - s = exp(x)\n"
        "  - b = sub(exp(mul(x, 1.5)), 1.0)\n"
        + (MASKED | UNSURE)[name]
        + "  - y = eq(t, -inf)\noutputs: [y]\n"
    )
    fusion = read_text(text, "t.yaml")
    x = np.random.default_rng(0).normal(0, 1, (8, 16)).astype(np.float32)
    if name == "of either sign":
        x[:] = 0
    inputs = {"x": x, "m": np.random.default_rng(1).random((8, 16)) < 0.5}
    (t, y) = estimate(fusion, inputs, {}, ["t", "y"]).values()
    infinite = np.isinf(t.value) if name in MASKED else ~np.isfinite(t.value)
    assert infinite.any()
    assert (np.asarray(t.sigma)[infinite] == 0).all() == (name in MASKED)
    assert y.exact == (name in MASKED) or not y.sigma.any()
    if name in MASKED:
        verdict = compare(fusion, {}, inputs, {"y": y.value})
        assert verdict.ok, verdict.text()
        assert compare(fusion, {}, inputs, {"y": ~y.value}).word == "differs"


def test_the_largest_of_few_weights_is_rounded_to_one() -> None:
    """Of a row within one tile of keys, unless another one may be the largest."""
    text = (
        "fusion: t\ninputs: {s: 'f32[3, 4]', v: 'bf16[4, 8]'}\nops:\n"
        "  - p = cast(softmax(s, 1), bf16)\n  - y = matmul(p, v)\noutputs: [y]\n"
    )
    fusion = read_text(text, "t.yaml")
    s = np.array(
        [[1, 5, 2, 3], [0, 4, np.nextafter(np.float32(4), 0), 1], [9, 0, 0, 0]], np.float32
    )
    v = np.ones((4, 8), BF16)
    off = {}
    for terms in (0, 3, 4, 64):
        (p,) = estimate(fusion, {"s": s, "v": v}, {}, ["p"], Model(early={"p": terms})).values()
        off[terms] = p.sigma / p.value
        assert (off[terms][:, 3] > 1e-4).all()
        assert (off[terms][1] > 1e-4).all()
    for terms in (0, 3):
        assert off[terms][[0, 2], [1, 0]].min() > 1e-4
    for terms in (4, 64):
        assert off[terms][[0, 2], [1, 0]].max() < 1e-5


def test_attention_over_few_keys_is_decided(tmp_path: Path) -> None:
    case = attention(np.random.default_rng(0), "bool", rows=64, keys=8, features=64)
    q = np.random.default_rng(1).normal(0, 4, (1, 2, 64, 64)).astype(BF16)
    steep: Case = replace(case, given={**case.given, "q": q})
    judged_on_cpu(steep, tmp_path, "attention")


@pytest.mark.parametrize(
    ("keys", "scale"), mostly_nightly([(3, 0.5), (3, 0.4), (5, 0.4), (5, 0.5)], 4)
)
def test_projected_attention_is_decided(keys: int, scale: float, tmp_path: Path) -> None:
    """Where scores are exact, so is the maximum; what is taken off is rounded nevertheless."""
    case = projected(np.random.default_rng(0), keys=keys, scale=scale)
    judged_on_cpu(case, tmp_path, "attention_decode")
