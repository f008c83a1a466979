"""What a verdict says beside verified: what differs, what is inconclusive, and what would show."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest

from fusec.diagnostics import EnvironmentProblem
from fusec.ir.dtype import BF16, BOOL, F8E4M3, F16, F32, F64, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import read_text
from fusec.reference import memory
from fusec.reference.errors.estimate import LIMIT
from fusec.reference.errors.nodes import Model
from fusec.reference.errors.order import Order, Stage, performed
from fusec.reference.stream import estimate
from fusec.reference.verdict import Verdict, compare
from fusec.run.inputs import choose_sizes, random_inputs
from tools.injected_faults import orders_of
from tools.single import Arithmetic, evaluate_single, stored
from tools.verdicts import ORDERS, with_entropy


def total_of(count: int, columns: int, dtype: DType = F32) -> Fusion:
    b = GraphBuilder()
    x = b.input("x", dtype, [count, columns])
    b.output(b.apply("sum", b.apply("cast", x, dtype=F32), dims=[0]))
    return b.finish()


def judged(fusion: Fusion, inputs: dict, found: np.ndarray, model: Model | None = None) -> Verdict:
    return compare(fusion, {}, inputs, {fusion.outputs[0].value.name: found}, model=model)


def test_zeros_for_a_long_column_sum_differ():
    fusion = total_of(1 << 17, 8, BF16)
    x = np.random.default_rng(0).uniform(-2, 2, (1 << 17, 8)).astype(ml_dtypes.bfloat16)
    right = x.astype(np.float64).sum(axis=0).astype(np.float32)
    assert judged(fusion, {"x": x}, right).ok
    for wrong in (np.zeros(8, np.float32), right * np.float32(1.001)):
        verdict = judged(fusion, {"x": x}, wrong)
        assert verdict.word == "differs"
        assert verdict.outputs[0].wrong == 8


def test_a_serial_sum_is_no_tree():
    """Of 2^20 terms it is 50 times as far off as a sum that is taken in a tree may be."""
    count = 1 << 20
    fusion = total_of(count, 1)
    x = np.random.default_rng(1).random((count, 1), np.float32)
    serial = performed(x[None], ORDERS["serial"])[0]
    name = fusion.outputs[0].value.name
    for order, word in (("tree", "differs"), ("serial", "verified")):
        assert judged(fusion, {"x": x}, serial, Model({name: ORDERS[order]})).word == word


@pytest.mark.parametrize("order", ORDERS)
def test_sums_of_equal_terms_are_judged_by_their_order(order: str):
    fusion = total_of(5000, 3)
    for term in (0.1, 1 / 3, 1.7):
        x = np.full((5000, 3), term, np.float32)
        found = performed(x[None], ORDERS[order])[0]
        name = fusion.outputs[0].value.name
        assert judged(fusion, {"x": x}, found, Model({name: ORDERS[order]})).ok
        # Without a plan any of the orders may be.
        assert order == "serial" or judged(fusion, {"x": x}, found).ok


def test_four_products_of_halves_are_no_zeros():
    b = GraphBuilder()
    value = b.input("x", BF16, [64, 256])
    for number in range(4):
        value = b.apply("matmul", value, b.input(f"w{number}", BF16, [256, 256]))
    b.output(value)
    fusion = b.finish()
    inputs = random_inputs(fusion, {}, 1)
    right = next(iter(estimate(fusion, inputs, {}).values())).settled.value
    assert judged(fusion, inputs, right.astype(ml_dtypes.bfloat16)).ok
    for scale in (0.0, 1.02):
        assert judged(fusion, inputs, (right * scale).astype(ml_dtypes.bfloat16)).word == "differs"


def test_the_power_is_what_would_show():
    """An error of twice the power that is printed shows, one of a tenth does not."""
    b = GraphBuilder()
    x = b.input("x", F32, [4096])
    b.output(b.apply("exp", b.apply("mul", x, 0.7)))
    fusion = b.finish()
    inputs = {"x": np.random.default_rng(2).uniform(1, 2, 4096).astype(np.float32)}
    right = np.exp(inputs["x"].astype(np.float64) * np.float32(0.7))
    verdict = judged(fusion, inputs, right.astype(np.float32))
    power = verdict.outputs[0].power
    assert 0 < power < 1e-5
    assert f"detection limit: {power:.1g}" in verdict.text()
    for times, word in ((2, "differs"), (0.1, "verified")):
        found = (right * (1 + times * power)).astype(np.float32)
        assert judged(fusion, inputs, found).word == word


def test_a_lost_part_shows_where_it_is_said_to():
    fusion = total_of(1 << 14, 64)
    x = np.random.default_rng(3).uniform(-1, 1, (1 << 14, 64)).astype(np.float32)
    right = x.astype(np.float64).sum(axis=0)
    (output,) = judged(fusion, {"x": x}, right.astype(np.float32)).outputs
    assert output.lost is not None
    assert output.lost < 0.1
    part = x[: (1 << 14) // 64].astype(np.float64).sum(axis=0)
    assert judged(fusion, {"x": x}, (right - part).astype(np.float32)).word == "differs"


def test_what_cancels_is_judged_by_what_was_added():
    """Its own size says nothing: the right result is zero."""
    b = GraphBuilder()
    x = b.input("x", F32, [64, 2048])
    b.output(
        b.apply("sum", b.apply("sub", x, b.apply("mean", x, dims=[1], keepdim=True)), dims=[1])
    )
    fusion = b.finish()
    x = np.random.default_rng(4).random((64, 2048), np.float32)
    away = x - x.mean(axis=1, keepdims=True, dtype=np.float32)
    found = away.sum(axis=1, dtype=np.float32)
    verdict = judged(fusion, {"x": x}, found)
    assert verdict.ok, verdict.text()
    assert judged(fusion, {"x": x}, found + np.float32(0.5)).word == "differs"


def test_too_little_power_is_not_decided():
    """A difference that has lost all of its digits proves nothing, however right it is."""
    b = GraphBuilder()
    x = b.input("x", F32, [4096])
    wide = b.apply("add", b.apply("exp", x), 1e7)
    b.output(b.apply("sub", wide, 1e7))
    fusion = b.finish()
    inputs = {"x": np.random.default_rng(5).uniform(-1, 1, 4096).astype(np.float32)}
    right = next(iter(estimate(fusion, inputs, {}).values())).value
    verdict = judged(fusion, inputs, right.astype(np.float32))
    assert (verdict.word, verdict.ok) == ("inconclusive", False)
    assert "a scale error of" in verdict.text()
    assert "is below the detection limit" in verdict.text()


def test_types_that_show_no_more_are_decided():
    """Half of a unit in the last place of an fp8 number is more than two percent of it."""
    b = GraphBuilder()
    b.output(b.apply("cast", b.input("x", BF16, [3]), dtype=F8E4M3))
    fusion = b.finish()
    x = np.array([1.5, -0.3, 7.0], ml_dtypes.bfloat16)
    found = x.astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    assert judged(fusion, {"x": x}, found).ok
    found[1] = 0.34375
    assert judged(fusion, {"x": x}, found).outputs[0].wrong == 1


def test_zeros_are_rounded_to_zero():
    """What is zero but for what may be flushed is no jump of the half type."""
    b = GraphBuilder()
    x = b.input("x", F32, [8])
    b.output(b.apply("cast", b.apply("exp", x), dtype=BF16))
    found = estimate(b.finish(), {"x": np.full(8, -np.inf, np.float32)}, {})
    (zeros,) = found.values()
    assert np.all(LIMIT * zeros.settled.sigma < 2.0**-120)


def test_sums_of_few_halves_are_exact():
    b = GraphBuilder()
    x = b.input("x", F16, [4096, 2])
    b.output(b.apply("sum", x, dims=[1]))
    fusion = b.finish()
    x = np.random.default_rng(6).uniform(0.5, 2, (4096, 2)).astype(np.float16)
    (sums,) = estimate(fusion, {"x": x}, {}).values()
    assert sums.exact
    # Small ones among many are too fine.
    fine = np.random.default_rng(6).uniform(0, 2, (8192, 2)).astype(np.float16)
    (sums,) = estimate(total_of(8192, 2, F16), {"x": fine}, {}).values()
    assert not sums.exact


def test_a_bool_that_may_turn_is_open():
    b = GraphBuilder()
    x = b.input("x", F32, [1000])
    b.output(b.apply("gt", b.apply("exp", x), 1.0))
    fusion = b.finish()
    x = np.linspace(-1, 1, 1000).astype(np.float32)
    x[500] = 0
    found = np.exp(x.astype(np.float64)) > 1
    found[500] = not found[500]
    verdict = judged(fusion, {"x": x}, found)
    assert verdict.ok
    assert verdict.outputs[0].open == 1
    assert fusion.outputs[0].value.dtype == BOOL


LAYER_NORM = """
fusion: norm
inputs: {x: 'bf16[64, 1024]', w: 'bf16[1024]'}
ops:
  - xf = cast(x, f32)
  - var, mean = var_mean(xf, dims=[1], correction=0, keepdim=true)
  - y = cast(mul(mul(sub(xf, mean), rsqrt(add(var, 1e-5))), w), bf16)
outputs: [y]
"""


def test_a_framework_that_rounds_each_operation_agrees():
    """Its results are further off than a kernel's: they are told from wrong ones all the same."""
    fusion = read_text(LAYER_NORM, "norm.yaml")
    inputs = random_inputs(fusion, choose_sizes(fusion), 7)
    kind = ml_dtypes.bfloat16
    x, w = (np.asarray(inputs[n]).astype(np.float32) for n in "xw")

    def rounded(array: np.ndarray) -> np.ndarray:
        return array.astype(kind).astype(np.float32)

    mean = rounded(x.mean(axis=1, keepdims=True))
    var = rounded(rounded(rounded(x - mean) ** 2).mean(axis=1, keepdims=True))
    eager = rounded(rounded(rounded(x - mean) * rounded(1 / np.sqrt(rounded(var + 1e-5)))) * w)
    right = next(iter(estimate(fusion, inputs, {}).values())).settled.value.astype(kind)
    for given, word in ((eager, "verified"), (eager * 1.3, "differs"), (eager * 0, "differs")):
        verdict = compare(
            fusion, {}, inputs, {"y": right}, given={"y": given.astype(kind)},
            model=Model(eager=True),
        )  # fmt: skip
        assert verdict.word == word, verdict.text()
    # A kernel is not as far off.
    assert compare(fusion, {}, inputs, {"y": eager.astype(kind)}).word == "differs"


def test_what_does_not_fit_is_refused_before_it_is_evaluated(monkeypatch: pytest.MonkeyPatch):
    fusion = read_text(
        "fusion: big\ninputs: {x: 'f32[4096, 4096]'}\nops: ['y = exp(x)']\noutputs: [y]\n",
        "big.yaml",
    )
    inputs = random_inputs(fusion, {}, 0)
    monkeypatch.setattr(memory, "available", lambda: 1 << 20)
    with pytest.raises(EnvironmentProblem, match="the reference of `big` takes about") as caught:
        compare(fusion, {}, inputs, {"y": np.zeros((4096, 4096), np.float32)})
    assert "0.001 GB of memory is available" in caught.value.diagnostic.notes[0]


def test_inputs_of_little_entropy_are_drawn():
    fusion = read_text(LAYER_NORM, "norm.yaml")
    drawn = random_inputs(fusion, choose_sizes(fusion), 7)
    for kind, values in (("constant", 1), ("two values", 2), ("mask", 2)):
        inputs = with_entropy(fusion, drawn, kind, 0)
        assert len(np.unique(np.asarray(inputs["x"]).astype(np.float32))) == values


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2", "bf16", "f32"])
def test_what_is_moved_alone_is_decided(dtype: str) -> None:
    fusion = read_text(
        f"fusion: t\ninputs: {{x: '{dtype}[64, 100]'}}\n"
        "ops: ['y = permute(x, [1, 0])']\noutputs: [y]\n",
        "t.yaml",
    )
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 0)
    moved = np.ascontiguousarray(inputs["x"].array.T)
    assert compare(fusion, sizes, inputs, {"y": moved}).word == "verified"
    moved[3, 5] = moved[3, 5] + moved.dtype.type(1)
    assert compare(fusion, sizes, inputs, {"y": moved}).word == "differs"


@pytest.mark.nightly
def test_a_comparison_leaves_no_cycles() -> None:
    """Arrays in cycles stay until Python looks for these: gigabytes, where they are large."""
    fusion = read_text(
        "fusion: t\ninputs: {x: 'bf16[64, 100]'}\n"
        "ops: ['y = softmax(x, 1)', 'z = sum(y, dims=[1])']\noutputs: [y, z]\n",
        "t.yaml",
    )
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 0)
    found = stored(fusion, evaluate_single(fusion, inputs, sizes))
    compare(fusion, sizes, inputs, found)
    gc.collect()
    flags = gc.get_debug()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        compare(fusion, sizes, inputs, found)
        gc.collect()
        left = {type(thing).__name__ for thing in gc.garbage}
    finally:
        gc.set_debug(flags)
        gc.garbage.clear()
    assert not left & {"Estimate", "Stream", "ndarray"}


SERIAL = Order((Stage(1 << 40),))


def right_by(fusion: Fusion, inputs: dict[str, np.ndarray], order: Order, seed: int = 0) -> Verdict:
    """Return the verdict on what f32 arithmetic gives, sums taken and judged by one order."""
    sizes = choose_sizes(fusion)
    arithmetic = Arithmetic(order, seed)
    found = stored(fusion, evaluate_single(fusion, inputs, sizes, arithmetic))
    model = Model(orders_of(fusion, sizes, arithmetic))
    return compare(fusion, sizes, inputs, found, model=model)


def test_products_of_what_is_lost_in_its_error_are_not_exact() -> None:
    fusion = read_text(
        "fusion: t\ninputs: {x: 'f32[1, 513]'}\n"
        "ops: ['v = var(x, dims=[1], correction=0)', 'a = broadcast(v, [false, true])',\n"
        "  'b = broadcast(v, [true, false])', 'y = matmul(a, b)']\noutputs: [y]\n",
        "t.yaml",
    )
    verdict = right_by(fusion, {"x": np.full((1, 513), 0.3, np.float32)}, SERIAL)
    assert verdict.word != "differs"


@pytest.mark.parametrize("seed", [0, 1, 59, 299, 529, 773])
def test_roundings_of_repeated_squares_repeat(seed: int) -> None:
    fusion = read_text(
        "fusion: t\ninputs: {x: 'f32[1024]'}\n"
        "ops: ['l = log1p(x)', 'v = var(l, dims=[0], correction=0)']\noutputs: [v]\n",
        "t.yaml",
    )
    rng = np.random.default_rng(seed)
    x = (rng.random(1024) < 0.48).astype(np.float32) * np.float32(1 + seed / 10)
    assert right_by(fusion, {"x": x}, SERIAL, seed).word != "differs"


def test_errors_whose_squares_are_lost_are_none() -> None:
    b = GraphBuilder()
    x = b.input("x", F64, [2, 1024])
    b.output(b.apply("prod", x, dims=[1]))
    fusion = b.finish()
    given = np.random.default_rng(0).uniform(0.5, 0.9, (2, 1024))
    given[1] += 0.2
    backwards = np.cumprod(given[:, ::-1], axis=1)[:, -1]
    assert 1e-170 < backwards[0] < 1e-160
    assert (backwards != np.cumprod(given, axis=1)[:, -1]).all()
    assert judged(fusion, {"x": given}, backwards).ok
    assert judged(fusion, {"x": given}, backwards * [1, 1 + 1e-9]).word == "differs"
    tiny = given * [[1], [0.7]]
    assert judged(fusion, {"x": tiny}, np.zeros(2)).word == "inconclusive"


@pytest.mark.parametrize("factor", [0.877225935459137, 0.8844797611236572, 0.99])
def test_products_of_equal_factors_are_rounded_alike(factor: float) -> None:
    x = np.full((1, 512), factor, np.float32)
    chunks = np.multiply.accumulate(x.reshape(32, 16), axis=1)
    before = np.multiply.accumulate(np.append(np.float32(1), chunks[:-1, -1]))
    found = (chunks * before[:, None]).reshape(1, 512)
    for op, attributes, results in (
        ("cumprod", {"dim": 1}, found), ("prod", {"dims": [1]}, found[:, -1])
    ):  # fmt: skip
        b = GraphBuilder()
        b.output(b.apply(op, b.input("x", F32, [1, 512]), **attributes))
        fusion = b.finish()
        assert judged(fusion, {"x": x}, results).ok
        assert judged(fusion, {"x": x}, results * np.float32(1.01)).word == "differs"


def merged_in_pairs(x: np.ndarray) -> np.ndarray:
    """Return squared distances from rows' means: states of 8 terms, halves of them merged."""
    vectors = x.reshape(len(x), -1, 8)
    own = np.add.accumulate(vectors * np.float32(1 / 8), axis=2)[..., -1]
    squares = np.square(vectors - own[..., None]).sum(axis=2)
    given = np.stack([own, squares, np.full_like(own, 8)])
    states = np.pad(given, ((0, 0), (0, 0), (0, 128 - own.shape[1])))
    while states.shape[2] > 1:
        (mean, m2, n), (other, q, m) = np.split(states, 2, axis=2)
        share, delta = m / np.maximum(n + m, 1), other - mean
        states = np.stack([mean + delta * share, m2 + q + delta * delta * n * share, n + m])
    return states[1, :, 0]


@pytest.mark.parametrize("distance", [3e-4, 3e-3, 3e-2])
def test_few_merges_of_equal_terms_carry_a_variance(distance: float) -> None:
    rng = np.random.default_rng(0)
    apart = distance * (1 + rng.random((1000, 1)))
    rows = np.repeat(2 + rng.random((1000, 1)) + apart * [1, -1], 96, axis=1).astype(np.float32)
    b = GraphBuilder()
    b.output(b.call("welford", [b.input("x", F32, rows.shape)], {"dims": [1]})[1])
    fusion, found = b.finish(), merged_in_pairs(rows)
    assert judged(fusion, {"x": rows}, found).word != "differs"
    assert judged(fusion, {"x": rows}, found * np.float32(1.1)).word == "differs"


def test_no_number_of_which_nothing_is_known_stays_open_when_rounded() -> None:
    fusion = read_text(
        "fusion: t\ninputs: {x: 'bf16[4, 63]'}\n"
        "ops: ['m = mean(cast(x, f32), dims=[1], keepdim=true)', 'd = sub(x, m)',\n"
        "  'y = clamp(fmod(x, cast(d, bf16)), -0.9, 0.9)']\noutputs: [y]\n",
        "t.yaml",
    )
    x = np.full((4, 63), 2.125, ml_dtypes.bfloat16)
    found = np.full((4, 63), 1.5e-5, ml_dtypes.bfloat16)
    assert judged(fusion, {"x": x}, found).word == "inconclusive"


def test_a_jump_at_the_limit_is_within_it() -> None:
    fusion = read_text(
        "fusion: t\ninputs: {x: 'f32[5, 64]'}\n"
        "ops: ['s = sum(x, dims=[0])', 'm = div(s, 5)', 'b = broadcast(m, [true, false])',\n"
        "  'd = sub(x, b)', 'y = sign(d)']\noutputs: [y]\n",
        "t.yaml",
    )
    x = np.broadcast_to(np.linspace(0.1, 7.3, 64, dtype=np.float32), (5, 64))
    assert right_by(fusion, {"x": np.ascontiguousarray(x)}, SERIAL).word != "differs"


def test_what_is_certainly_no_number_is_decided() -> None:
    fusion = read_text(
        "fusion: t\ninputs: {x: 'f32[4, 64]'}\n"
        "ops: ['y = softmax(x, 1)', 'v = var(x, dims=[1])', 'w = var(y, dims=[1])']\n"
        "outputs: [y, v, w]\n",
        "t.yaml",
    )
    x = np.random.default_rng(0).normal(0, 2, (4, 64)).astype(np.float32)
    x[1], x[2, 9], x[3, 3] = -np.inf, np.nan, np.inf
    verdict = right_by(fusion, {"x": x}, SERIAL)
    assert [o.word for o in verdict.outputs] == ["verified"] * 3
    assert [o.open for o in verdict.outputs] == [0] * 3
    numbers = single_with(fusion, x, 1.0)
    assert compare(fusion, {}, {"x": x}, numbers).word == "differs"


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_products_with_infinite_factors_are_decided(axis: int, spread: float) -> None:
    """Infinite, or NaN by a NaN or a 0 beside an infinity: so in any order."""
    fusion = read_text(
        f"fusion: t\ninputs: {{x: 'f32[64, 64]'}}\nops: ['y = prod(x, {axis})']\noutputs: [y]\n"
    )
    x = np.random.default_rng(0).uniform(1 - spread, 1 + spread, (64, 64)).astype(np.float32)
    x[3, 5], x[10, 20], x[30, 40] = np.nan, np.inf, -np.inf
    x[50, 51], x[50, 52], x[53, 51] = np.inf, -np.inf, -np.inf
    x[60, 60], x[60, 61], x[61, 60], x[62, 62] = np.inf, 0, 0, 0
    with np.errstate(invalid="ignore"):
        right = np.prod(x, axis=axis)
    assert judged(fusion, {"x": x}, right).ok
    for kept in (np.isinf, np.isnan):
        for wrong in (np.where(kept(right), 1, right), np.where(kept(right), -right, right)):
            if not np.array_equal(wrong, right, equal_nan=True):
                assert judged(fusion, {"x": x}, wrong.astype(np.float32)).word == "differs"


def test_an_infinite_factor_decides_no_product_that_may_meet_a_zero() -> None:
    """Factors of which some order makes 0 first: inf * 0 is NaN; so is inf by a factor near 0."""
    fusion = read_text(
        "fusion: t\ninputs: {x: 'f32[2, 64]', d: 'f32[2, 64]'}\n"
        "ops: ['s = sum(d, -1, keepdim=True)', 'f = cat([x, s], 1)', 'y = prod(f, 1)']\n"
        "outputs: [y]\n"
    )
    draw = np.random.default_rng(0)
    x, d = draw.uniform(0.9, 1.1, (2, 2, 64)).astype(np.float32)
    x[:, 62] = np.inf
    assert judged(fusion, {"x": x, "d": d}, np.full(2, np.inf, np.float32)).ok
    x[0, :60] = 1e-30
    d[1, 32:] = -draw.permutation(d[1, :32])
    for found in (np.inf, np.nan):
        verdict = judged(fusion, {"x": x, "d": d}, np.full(2, found, np.float32))
        assert verdict.outputs[0].open == 2


def single_with(fusion: Fusion, x: np.ndarray, number: float) -> dict[str, np.ndarray]:
    """Return outputs that have a number where there is none."""
    found = stored(fusion, evaluate_single(fusion, {"x": x}, {}))
    return {name: np.nan_to_num(array, nan=number) for name, array in found.items()}
