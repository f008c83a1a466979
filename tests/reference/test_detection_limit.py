"""The detection limit: which elements it rests on, and what is said where it is too large."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fusec.diagnostics import EnvironmentProblem
from fusec.ir.dtype import BF16, F32
from fusec.parse.reader import read_text
from fusec.reference import cause
from fusec.reference.detection import joined, power
from fusec.reference.errors.estimate import LIMIT, Estimate, Shared
from fusec.reference.errors.nodes import Model
from fusec.reference.errors.repeats import alike, repeats
from fusec.reference.errors.shared import fit
from fusec.reference.stream import estimate, outputs_of
from fusec.reference.verdict import Verdict, compare
from tools.injected_faults import orders_of
from tools.single import Arithmetic
from tools.verdicts import ORDERS

LOWEST = np.finfo(np.float32).min


def fusion_of(shape: str, *lines: str, outputs: str = "[y]", more: str = "") -> Any:
    ops = "".join(f"  - {line}\n" for line in lines)
    text = f"fusion: t\ninputs:\n  x: f32{shape}\n{more}ops:\n{ops}outputs: {outputs}\n"
    return read_text(text, "t.yaml")


def judged(fusion: Any, inputs: dict[str, Any], found: Any, model: Model | None = None) -> Verdict:
    return compare(fusion, {}, inputs, {"y": found}, model=model)


SOFTMAX = (
    "m = max(x, dims=[1], keepdim=true)",
    "e = exp(sub(x, m))",
    "y = div(e, sum(e, dims=[1], keepdim=true))",
)


@pytest.mark.parametrize("deviation", [50.0, 200.0, 1000.0, 1e4])
def test_the_largest_weights_of_a_steep_softmax_decide(deviation: float) -> None:
    """Of 4 000 weights four are near 1, and nearly all others underflow."""
    fusion = fusion_of("[4, 1000]", *SOFTMAX)
    x = np.random.default_rng(0).normal(0, deviation, (4, 1000)).astype(np.float32)
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    right = (wide / wide.sum(axis=1, keepdims=True)).astype(np.float32)
    verdict = judged(fusion, {"x": x}, right)
    assert verdict.ok, verdict.text()
    assert verdict.power < 1e-4
    for wrong in (right * np.float32(1.001), np.zeros_like(right), np.roll(right, 1, axis=1)):
        assert judged(fusion, {"x": x}, wrong).word == "differs"


def test_blocks_that_contribute_nothing_are_left_out_in_any_order() -> None:
    """Blocks come as threads end: the largest element is known last."""
    rng = np.random.default_rng(0)
    blocks = []
    for size in (1e-30, 1e-12, 1.0, 1e-4):
        value = rng.uniform(1, 2, 2000) * size
        blocks.append(power(Estimate(value, np.full(2000, (0.1 * size) ** 2)), F32))
    sharp = power(Estimate(rng.uniform(1, 2, 50), np.full(50, 1e-12)), F32)
    found = [joined(order) for order in permutations([*blocks, sharp])]
    assert len({(p.scale_error(rounded=True), p.beyond, p.lost, p.looked) for p in found}) == 1
    assert found[0].looked == 2000 + 2000 + 50  # of 1, 1e-4, and the sharp ones


def test_infinite_halves_are_not_the_largest() -> None:
    """In f32 they were numbers, next to which all others contribute nothing."""
    fusion = read_text(
        "fusion: t\ninputs: {x: 'f32[4000]'}\nops: ['y = cast(exp(x), f16)']\noutputs: [y]\n",
        "t.yaml",
    )
    x = np.random.default_rng(0).uniform(-1, 80, 4000).astype(np.float32)
    with np.errstate(over="ignore"):
        right = np.exp(x.astype(np.float64)).astype(np.float16)
    assert np.isinf(right).any()
    assert judged(fusion, {"x": x}, right).power < 1e-3
    with np.errstate(over="ignore"):
        wrong = right * np.float16(1.02)
    assert judged(fusion, {"x": x}, wrong).word == "differs"


def test_elements_that_are_lost_are_not_zeros() -> None:
    """A variance as the difference of two squares: 2 % of it would not show, and that is said."""
    fusion = fusion_of(
        "[4, 768]",
        "m = mean(x, dims=[1])",
        "y = sub(mean(mul(x, x), dims=[1]), mul(m, m))",
    )
    x = np.random.default_rng(0).normal(1e4, 1, (4, 768)).astype(np.float32)
    right = x.astype(np.float64).var(axis=1).astype(np.float32)
    for scale in (1, 1.02, 0):
        verdict = judged(fusion, {"x": x}, right * np.float32(scale))
        assert verdict.word == "inconclusive"
        assert "at `y = sub(...)`, terms of up to 1e+08 nearly cancel" in verdict.text()
        assert "inputs nearer to 0, or compute in f64" in verdict.text()


NORM = (
    "v, m = var_mean(x, dims=[1], correction=0, keepdim=true)",
    "y = mul(sub(x, m), rsqrt(add(v, 1e-5)))",
)
BY_HAND = (
    "m = mean(x, dims=[1], keepdim=true)",
    "d = sub(x, m)",
    "y = mul(d, rsqrt(add(mean(mul(d, d), dims=[1], keepdim=true), 1e-5)))",
)

BY_POWER = (*BY_HAND[:2], BY_HAND[2].replace("mul(d, d)", "pow(d, 2.0)"))
BY_QUOTIENT = (*BY_HAND[:2], "y = div(d, sqrt(add(mean(mul(d, d), dims=[1], keepdim=true), 1e-5)))")


@pytest.mark.parametrize("lines", [NORM, BY_HAND, BY_POWER, BY_QUOTIENT])
def test_a_mean_that_is_off_shifts_a_row_and_scales_nothing(lines: tuple[str, ...]) -> None:
    fusion = fusion_of("[8, 1024]", *lines)
    x = np.random.default_rng(0).normal(1e5, 1, (8, 1024)).astype(np.float32)
    wide = x.astype(np.float64)
    right = (wide - wide.mean(axis=1, keepdims=True)) / np.sqrt(wide.var(axis=1) + 1e-5)[:, None]
    inputs, shift = {"x": x}, np.float32(2.0**-7)  # one unit in the last place of the mean
    model = Model(orders_of(fusion, {}, Arithmetic(ORDERS["chains"])))
    ranks = replace(model, ranks=True)
    for row_off in (0, shift, -shift):
        found = (right + row_off).astype(np.float32)
        verdict = judged(fusion, inputs, found, model)
        assert verdict.ok, verdict.text()
        wrong = found * np.float32(1.02)
        assert judged(fusion, inputs, wrong, model).word == "differs"
    # Ranks whose means differ do not shift all elements of a row alike: 2 % would not show.
    assert judged(fusion, inputs, right.astype(np.float32), ranks).word == "inconclusive"
    mixed = (right + shift * np.where(np.arange(1024) % 2, 3, -3)).astype(np.float32)
    assert judged(fusion, inputs, mixed, model).word == "differs"
    assert judged(fusion, inputs, mixed, ranks).word != "differs"


def test_what_no_shared_error_explains_is_beyond_its_limits() -> None:
    rng = np.random.default_rng(0)
    slope, own = rng.normal(0, 1, (5, 300)), rng.uniform(-1, 1, (5, 300)) * 1e-3
    shared = Shared(np.full((5, 1), (0.5 / LIMIT) ** 2), slope, None)
    for amount in (0, 0.4, -0.5):
        left, limits = fit(shared, amount * slope + own, np.full((5, 300), 1e-3))
        assert (np.abs(left) <= limits).all()
    for off in (0.6 * slope, np.full((5, 300), 0.1)):
        left, limits = fit(shared, off + own, np.full((5, 300), 1e-3))
        assert (np.abs(left) > limits).any()


def test_what_a_sum_absorbs_has_no_error() -> None:
    """The lowest number as a mask: whatever a score is, the sum is that number."""
    fusion = fusion_of(
        "[2, 4]", "s = exp(x)", "y = add(s, m)", "z = sub(m, s)", outputs="[y, z]",
        more="  m: f32[2, 4]\n",
    )  # fmt: skip
    mask = np.where(np.arange(8).reshape(2, 4) % 2, LOWEST, 0).astype(np.float32)
    given = {"x": np.ones((2, 4), np.float32), "m": mask}
    for found, sign in zip(estimate(fusion, given, {}).values(), (1, 1), strict=True):
        assert (found.sigma[mask == 0] > 0).all()
        assert (found.sigma[mask != 0] == 0).all()
        assert (found.value[mask != 0] == sign * LOWEST).all()
    for plain in outputs_of(fusion, given, {}).values():
        assert (plain[mask != 0] == LOWEST).all()
    near = {"x": given["x"], "m": np.full((2, 4), 2.0**24, np.float32)}
    assert all((e.sigma > 0).all() for e in estimate(fusion, near, {}).values())


def test_rows_of_equal_terms_do_not_widen_others() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 2, (8, 500))
    x[0], x[5, :250] = 1.5, 1.25
    variance = np.square(x) * 1e-12
    assert alike(x, (1,), variance) > 400
    times = repeats(x, (1,), variance)[:, 0]
    assert times[0] == pytest.approx(500)
    assert 30 < times[5] < 100
    assert times[[1, 2, 3, 4, 6, 7]].tolist() == [1.0] * 6
    across = repeats(np.ascontiguousarray(x.T), (0,), np.ascontiguousarray(variance.T))
    np.testing.assert_allclose(across[0], times)


def test_large_masks_are_evaluated_as_kernels_do() -> None:
    """A row of which all is masked by -1e9 has equal weights: scores are lost next to it."""
    fusion = fusion_of("[2, 64]", "t = add(x, -1e9)", "y = softmax(t, 1)")
    x = np.random.default_rng(0).normal(0, 3, (2, 64)).astype(np.float32)
    equal = np.full((2, 64), 1 / 64, np.float32)
    verdict = judged(fusion, {"x": x}, equal)
    assert verdict.ok, verdict.text()
    assert judged(fusion, {"x": x}, equal * np.float32(1.02)).word == "differs"
    assert (outputs_of(fusion, {"x": x}, {})["y"] == equal).all()


EARLY = """\
fusion: weights
inputs: { s: "f32[3, 64]", v: "bf16[64, 16]" }
ops:
  - p = cast(softmax(s, 1), bf16)
  - y = matmul(p, v)
outputs: [y]
"""


def test_weights_of_one_are_rounded_to_one() -> None:
    """Kernels that round weights before they divide: of equal scores each weight is 1."""
    fusion = read_text(EARLY, "weights.yaml")
    s = np.random.default_rng(0).normal(0, 1, (3, 64)).astype(np.float32)
    s[0], s[1, 1:] = LOWEST, -np.inf
    v = np.random.default_rng(1).normal(0, 1, (64, 16)).astype(ml_dtypes.bfloat16)
    (weights,) = estimate(fusion, {"s": s, "v": v}, {}, ["p"], Model(early={"p": 0})).values()
    off = weights.sigma / np.maximum(weights.value, 1e-30)
    assert off[0].max() < 1e-5
    assert off[1, 0] < 1e-5
    assert off[2].min() > 0.1 * BF16.epsilon


def test_causes_are_told_where_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    jump = fusion_of("[1000]", "y = gt(exp(x), 1.0)")
    at_jump = judged(jump, {"x": np.zeros(1000, np.float32)}, np.zeros(1000, np.bool_))
    assert (
        "at `y = gt(...)`, values are within their errors of a pole or discontinuity"
        in at_jump.text()
    )
    far = fusion_of("[1000]", "y = sub(add(exp(x), 1e7), 1e7)")
    given = {"x": np.random.default_rng(0).uniform(1, 2, 1000).astype(np.float32)}
    right = np.exp(given["x"].astype(np.float64)).astype(np.float32)
    verdict = judged(far, given, right)
    assert "at `y = sub(...)`, terms of up to 1e+07 nearly cancel" in verdict.text()
    assert judged(jump, {"x": np.ones(1000, np.float32)}, np.ones(1000, np.bool_)).ok
    monkeypatch.setattr(cause, "Stream", _refuses)
    assert judged(far, given, right).outputs[0].cause is None


def _refuses(*arguments: Any) -> Any:
    raise EnvironmentProblem("too large")
