"""The verifier passes what kernels compute and catches small mistakes."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from simulated import simulate

from fusec.commands.running.verify import Judging, judge
from fusec.diagnostics import FusecError
from fusec.ir.dtype import BOOL, F32, I32
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.reference import sweeps
from fusec.reference import verdict as verdicts
from fusec.reference.errors.nodes import Model
from fusec.reference.verdict import Verdict, compare
from fusec.run.inputs import choose_sizes, random_inputs


def one_off(a: np.ndarray) -> np.ndarray:
    b = a.copy()
    where = tuple(n // 2 for n in b.shape)
    b[where] = b[where] * np.float32(1.02) + np.float32(0.02)
    return b


def wrong_index(a: np.ndarray) -> np.ndarray:
    b = a.copy()
    flat = b.reshape(-1)
    flat[[-1, -2]] = flat[[-2, -1]] if flat[-1] != flat[-2] else flat[[0, 1]]
    return b


def dropped_tail(a: np.ndarray) -> np.ndarray:
    b = a.copy()
    b.reshape(-1)[-1:] = 0
    return b


def unwritten_row(a: np.ndarray) -> np.ndarray:
    b = a.copy()
    b[-1:].view(np.uint8)[...] = 0xFF
    return b


def verdict(fusion: Fusion, change=None, which: int = 0, seed: int = 5, **options) -> Verdict:
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, seed)
    outputs = simulate(fusion, inputs, sizes)
    if change is not None:
        name = fusion.outputs[which].value.name
        outputs[name] = change(outputs[name])
    return compare(fusion, sizes, inputs, outputs, **options)


@pytest.mark.parametrize("name", graphs.KINDS)
def test_right_results_pass(name: str):
    result = verdict(graphs.KINDS[name]())
    assert result.ok, result.text()
    assert "checked: all" in result.text()


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("change", [one_off, wrong_index, dropped_tail, unwritten_row])
@pytest.mark.parametrize("name", graphs.KINDS)
def test_mutations_fail(name: str, change, blocks: bool, monkeypatch: pytest.MonkeyPatch):
    if blocks:
        monkeypatch.setattr(sweeps, "WHOLE_ELEMENTS", 16)
        monkeypatch.setattr(sweeps, "BLOCK_ELEMENTS", 200)
    fusion = graphs.KINDS[name]()
    for which in range(len(fusion.outputs)):
        result = verdict(fusion, change, which)
        assert not result.ok, result.text()
        assert [o.ok for o in result.outputs].count(False) == 1


def test_a_dropped_term_of_a_long_sum_fails():
    b = GraphBuilder()
    x = b.input("x", F32, [b.declare_dim("B", 3), b.declare_dim("H", 8192)])
    b.output(b.apply("sum", x, dims=[1]))
    fusion = b.finish()
    sizes = choose_sizes(fusion)
    x = np.asarray(random_inputs(fusion, sizes)["x"]).copy()
    x[:, -1] = 0.25  # an eighth of the largest value
    inputs = {"x": x}
    assert compare(fusion, sizes, inputs, {"sum_1": x.sum(axis=1)}).ok
    result = compare(fusion, sizes, inputs, {"sum_1": x[:, :-1].sum(axis=1)})
    assert result.outputs[0].wrong == 3


def test_the_worst_elements_are_named_with_their_indices():
    def change(a: np.ndarray) -> np.ndarray:
        b = a.copy()
        b[3, 17] = 7.0
        b[4, 2] = 1.0
        return b

    (output,) = verdict(graphs.softmax(), change).outputs
    assert [w.index for w in output.worst] == [(3, 17), (4, 2)]
    assert "[3, 17]: 7, expected 0." in output.text()


def test_poison_is_reported_as_never_written():
    (output,) = verdict(graphs.softmax(), unwritten_row).outputs
    assert output.unwritten == 129
    assert "129 never written" in output.text()
    (output,) = verdict(graphs.softmax(), unwritten_row, poison=False).outputs
    assert output.unwritten == 0
    assert output.wrong == 129


def nan_fusion() -> Fusion:
    b = GraphBuilder()
    x = b.input("x", F32, [b.declare_dim("N", 4)])
    b.output(b.apply("sqrt", x))
    return b.finish()


def test_nan_matches_nan_alone():
    x = np.array([-1, 4, -2, 9], np.float32)
    good = np.array([np.nan, 2, np.nan, 3], np.float32)
    assert compare(nan_fusion(), {"N": 4}, {"x": x}, {"sqrt_1": good}).ok
    for at, value in ((0, 0.0), (1, np.nan)):
        bad = good.copy()
        bad[at] = value
        assert compare(nan_fusion(), {"N": 4}, {"x": x}, {"sqrt_1": bad}).outputs[0].wrong == 1


def compare_fusion() -> Fusion:
    b = GraphBuilder()
    x = b.input("x", F32, [b.declare_dim("N", 4096)])
    b.output(b.apply("gt", b.apply("mul", x, x), 2.0))
    return b.finish()


def test_what_may_be_either_is_open_and_counted():
    x = np.linspace(1, 1.4, 4096).astype(np.float32)
    x[7] = np.sqrt(np.float32(2))
    expected = x.astype(np.float64) ** 2 > 2
    either = expected.copy()
    either[7] = not either[7]
    arrays = {"x": x}
    result = compare(compare_fusion(), {"N": 4096}, arrays, {"gt_1": either})
    assert result.ok
    assert result.outputs[0].open == 1
    clear = expected.copy()
    clear[100] = not clear[100]
    assert not compare(compare_fusion(), {"N": 4096}, arrays, {"gt_1": clear}).ok


def test_too_much_that_is_open_is_not_decided():
    x = np.full(4096, np.sqrt(np.float32(2)), np.float32)
    expected = x.astype(np.float64) ** 2 > 2
    for found in (expected, ~expected):
        result = compare(compare_fusion(), {"N": 4096}, {"x": x}, {"gt_1": found})
        assert (result.word, result.ok) == ("inconclusive", False)
        assert "4096 of 4096 elements are within their errors" in result.text()


@pytest.mark.parametrize("dtype", [I32, BOOL])
def test_integers_and_bools_are_exact(dtype):
    b = GraphBuilder()
    x = b.input("x", dtype, [b.declare_dim("N", 8)])
    b.output(b.apply("set", x))
    fusion = b.finish()
    x = np.arange(8).astype(dtype.numpy)
    assert compare(fusion, {"N": 8}, {"x": x}, {"set_1": x.copy()}).ok
    y = x.copy()
    y[5] = 0
    assert compare(fusion, {"N": 8}, {"x": x}, {"set_1": y}).outputs[0].wrong == 1


def test_beyond_the_limit_slices_are_sampled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweeps, "WHOLE_ELEMENTS", 16)
    monkeypatch.setattr(sweeps, "BLOCK_ELEMENTS", 129)
    result = verdict(graphs.softmax(), limit=1e-6)
    assert result.ok
    (sampled,) = result.coverage.sampled
    assert 3 <= sampled.checked < 37
    assert "sampled" in result.text()
    assert "along axis 0 of cast_2" in result.text()
    assert not verdict(
        graphs.softmax(), dropped_tail, limit=1e-6
    ).ok  # the last slice always counts


@pytest.mark.parametrize("everything", [False, True])
def test_verify_all_samples_no_slices(
    everything: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweeps, "WHOLE_ELEMENTS", 16)
    monkeypatch.setattr(sweeps, "BLOCK_ELEMENTS", 129)
    monkeypatch.setattr(verdicts, "LONGEST", 1e-6)
    fusion = graphs.softmax()
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 5)
    how = Judging(everything=everything)
    assert judge(fusion, Model, inputs, sizes, simulate(fusion, inputs, sizes), how).accepted
    assert ("(checked: all)" in capsys.readouterr().out) == everything


def test_results_of_another_shape_or_type_are_refused():
    x = np.ones(4, np.float32)
    with pytest.raises(FusecError, match=r"output `sqrt_1` has shape \[3\], expected \[4\]"):
        compare(nan_fusion(), {"N": 4}, {"x": x}, {"sqrt_1": x[:3]})
    with pytest.raises(FusecError, match="has dtype float64, expected float32"):
        compare(nan_fusion(), {"N": 4}, {"x": x}, {"sqrt_1": x.astype(np.float64)})
    with pytest.raises(FusecError, match="output `sqrt_1` is missing"):
        compare(nan_fusion(), {"N": 4}, {"x": x}, {})


def test_zero_size_outputs_pass():
    empty = np.zeros(0, np.float32)
    result = compare(nan_fusion(), {"N": 0}, {"x": empty}, {"sqrt_1": empty})
    assert result.ok
    assert result.outputs[0].checked == 0


@pytest.mark.parametrize("op", ["prod", "cumprod"])
def test_products_that_leave_the_range_on_their_way(op: str):
    """What a product loses as a denormal stays lost; one that keeps the range must be right."""
    builder = GraphBuilder("products")
    x = builder.input("x", F32, [builder.declare_dim("N", 400)])
    attributes = {"dims": [0]} if op == "prod" else {"dim": 0}
    (result,) = builder.call(op, [x], attributes)
    builder.output(result)
    fusion = builder.finish()
    sizes, name = choose_sizes(fusion), result.name
    rng = np.random.default_rng(3)
    shrinking = rng.uniform(0.1, 0.9, 400).astype(np.float32)
    spread = rng.permutation(np.repeat(np.float32([2.0**-40, 2.0**40]), 200))
    with np.errstate(all="ignore"):
        for factors in (shrinking, spread):
            serial = np.cumprod(factors, dtype=np.float32)
            assert serial[-1] == 0 or not np.isfinite(serial[-1])
            found = (serial[-1:] if op == "prod" else serial).reshape(result_shape(op))
            verdict = compare(fusion, sizes, {"x": factors}, {name: found})
            assert not any(o.wrong for o in verdict.outputs), verdict.text()
    near = {"x": np.linspace(0.9, 1.1, 400, dtype=np.float32)}
    serial = np.cumprod(near["x"], dtype=np.float32)
    for change, right in ((1.0, True), (1.001, False)):
        found = (serial[-1:] if op == "prod" else serial) * np.float32(change)
        assert compare(fusion, sizes, near, {name: found.reshape(result_shape(op))}).ok == right


def running_product(factors: np.ndarray) -> tuple[Fusion, dict]:
    builder = GraphBuilder("products")
    builder.output(builder.apply("cumprod", builder.input("x", F32, [factors.size]), dim=0))
    fusion = builder.finish()
    return fusion, {"x": factors}


def test_products_of_neighbours_that_overflow_leave_what_comes_after_them_open():
    """Halves first, then threes: no number where a scan multiplies 0 by an infinite product."""
    factors = np.repeat(np.float32([0.5, 3.0]), [300, 200])
    fusion, inputs = running_product(factors)
    found = np.cumprod(factors, dtype=np.float32)
    assert found[300] == 0
    for first, right in ((420, True), (370, False)):
        found[first:] = np.nan
        judged = compare(fusion, {}, inputs, {"cumprod_1": found}).outputs[0]
        assert (judged.wrong == 0) == right
        # No product of 80 threes is infinite.
        assert judged.open == 500 - 380


def test_products_that_meet_no_infinite_one_are_judged():
    fusion, inputs = running_product(np.tile(np.float32([0.5, 2.0]), 300))
    found = np.cumprod(inputs["x"], dtype=np.float32)
    assert compare(fusion, {}, inputs, {"cumprod_1": found}).ok
    found[-1] = np.nan
    assert compare(fusion, {}, inputs, {"cumprod_1": found}).outputs[0].wrong == 1


def product(factors: np.ndarray, axes: int = 1) -> tuple[Fusion, dict]:
    builder = GraphBuilder("products")
    x = builder.input("x", F32, factors.shape)
    builder.output(builder.apply("prod", x, dims=list(range(axes))))
    return builder.finish(), {"x": factors}


def judged_product(factors: np.ndarray, found: float) -> tuple[int, int]:
    """Return how many elements are wrong and open."""
    fusion, inputs = product(factors, factors.ndim)
    result = {fusion.outputs[0].value.name: np.array(found, np.float32)}
    verdict = compare(fusion, {}, inputs, result).outputs[0]
    return verdict.wrong, verdict.open


def test_a_product_is_open_only_where_all_factors_above_1_overflow():
    """Rows of equal factors: a thread that takes one of them meets no others."""
    rows = np.broadcast_to(np.float32([[0.25], [4.0]]), (2, 2048))
    assert judged_product(rows, np.nan) == (0, 1)
    assert judged_product(np.repeat(rows[:, :1], 64, 1), np.nan) == (0, 1)
    # At 63 fours the largest float is not reached in any order.
    for found, wrong in ((1.0, 0), (np.nan, 1), (np.inf, 1), (1.0001, 1)):
        assert judged_product(np.repeat(rows[:, :1], 63, 1), found) == (wrong, 0)


def test_a_product_that_is_infinite_in_any_order_is_judged():
    fours = np.full(100, 4.0, np.float32)
    for found, wrong in ((np.inf, 0), (np.nan, 1), (1e30, 1)):
        assert judged_product(fours, found)[0] == wrong
    small = np.concatenate([fours, fours, np.full(80, 0.25, np.float32)])
    assert judged_product(small, np.nan)[0] == 0


SUMMED = {
    "sum": lambda b, x, y: b.apply("sum", x, dims=[0], keepdim=True),
    "mean": lambda b, x, y: b.apply("mean", x, dims=[0], keepdim=True),
    "var": lambda b, x, y: b.apply("var", x, dims=[0], correction=0, keepdim=True),
    "cumsum": lambda b, x, y: b.apply("slice", b.apply("cumsum", x, dim=0), [3], [4], [1]),
    "matmul": lambda b, x, y: b.apply("matmul", x, y),
}


@pytest.mark.parametrize("op", SUMMED)
def test_sums_are_open_only_where_terms_of_one_sign_overflow(op: str):
    builder = GraphBuilder("sums")
    x, y = builder.input("x", F32, [4]), builder.input("y", F32, [4, 1])
    builder.output(SUMMED[op](builder, x, y))
    fusion = builder.finish()

    def judged(largest: float) -> int:
        x = np.float32(largest * np.array([0.5, -0.5, 0.5, -0.5]))
        inputs = {"x": x, "y": np.ones((4, 1), np.float32)}
        found = {o.value.name: np.full(1, np.nan, np.float32) for o in fusion.outputs}
        used = {i.value.name: inputs[i.value.name] for i in fusion.inputs}
        return compare(fusion, {}, used, found).outputs[0].wrong

    top = 2.0**64 if op == "var" else 2.0**128
    assert judged(1.001 * top) == 0
    assert judged(0.49 * top) == 1


EQUAL = {
    "sum": lambda b, x, y, i: b.apply("sum", x, dims=[0], keepdim=True),
    "matmul": lambda b, x, y, i: b.apply("matmul", x, y),
    "index_add": lambda b, x, y, i: b.apply(
        "index_add", b.apply("full", [1], 0.0, dtype=F32), i, x, dim=0
    ),
}


@pytest.mark.parametrize("op", EQUAL)
def test_sums_of_equal_terms_may_be_off_by_the_same_each_time(op: str):
    """One after the other, they are: roundings of terms that differ would be too small."""
    term = np.float32(1.0 + 2.0**-15 - 2.0**-23)
    arrays = {
        "x": np.full(1024, term),
        "y": np.ones((1024, 1), np.float32),
        "i": np.zeros(1024, np.int32),
    }
    builder = GraphBuilder("sums")
    kinds = ((F32, [1024]), (F32, [1024, 1]), (I32, [1024]))
    given = [builder.input(n, *kind) for n, kind in zip(arrays, kinds, strict=True)]
    result = EQUAL[op](builder, *given)
    builder.output(result)
    fusion = builder.finish()
    serial = np.cumsum(arrays["x"], dtype=np.float32)[-1:]
    assert abs(serial[0] - 1024 * float(term)) > 0.01
    name = fusion.outputs[0].value.name
    assert compare(fusion, {}, arrays, {name: serial}).ok
    assert not compare(fusion, {}, arrays, {name: serial * np.float32(1.001)}).ok


def result_shape(op: str) -> tuple[int, ...]:
    return () if op == "prod" else (400,)
