"""Integer inputs: sums, products, max, scatters and movement give the same in any order."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from any_order import ORDERS, evaluate_in
from any_order import SUMS as ORDERED
from cli_tools import EXAMPLES, fusec, small
from emulated import emulated
from nightly import mostly_nightly

from fusec import driver
from fusec.ir import dtype as dtypes
from fusec.ir.graph import Fusion, Value
from fusec.ir.roles import Combine
from fusec.ops import TABLE
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.reference.verdict import compare
from fusec.run.contents import Numbers
from fusec.run.exact_range import ROLES, ExactRange, filled, held, of_number
from fusec.run.execute import Executable
from fusec.run.inputs import choose_sizes, random_input, random_inputs
from fusec.run.integers import INPUT_RANGES, InputRange, choose, exact_outputs, places, points_of
from tools.draw import draw_fusion

Capture = pytest.CaptureFixture[str]
LARGEST = 20_000


@cache
def random_fusions(count: int) -> tuple[Fusion, ...]:
    """Return random fusions whose values are small at the default sizes."""
    found, number = list[Fusion](), 0
    while len(found) < count:
        fusion = draw_fusion(5, number)
        sizes = choose_sizes(fusion)
        number += 1
        if all(np.prod([d.evaluate(sizes) for d in v.shape]) <= LARGEST for v in fusion.values):
            found.append(fusion)
    return tuple(found)


def differing(fusion: Fusion, kind: str, among: Any) -> list[str]:
    """Return the values that come out differently in some order."""
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 3, kind)
    first, *others = (evaluate_in(order, fusion, inputs, sizes) for order in ORDERS)
    return [
        v.name
        for v in fusion.values
        if v in among and not all(np.array_equal(first[v], o[v], equal_nan=True) for o in others)
    ]


@pytest.mark.nightly
def test_exact_values_of_random_fusions_are_the_same_in_any_order() -> None:
    checked: Counter[str] = Counter()
    for fusion in random_fusions(150):
        exact = choose(fusion, choose_sizes(fusion)).exact
        assert differing(fusion, "integers", exact) == []
        checked.update(n.op.name for n in fusion.nodes if n.output in exact)
    assert set(ORDERED) <= set(checked)
    assert {"max", "mul", "scatter", "permute", "reshape", "cat"} <= set(checked)


def test_real_inputs_would_differ() -> None:
    found = sum(len(differing(f, "reals", set(f.values))) for f in random_fusions(150))
    assert found > 50


def test_values_lie_where_they_are_said_to() -> None:
    """Whatever the way, also those that are rarely chosen: multiples, bounds, zeros."""
    sparse = 0
    for number, fusion in enumerate(random_fusions(150)):
        sizes, input_range = choose_sizes(fusion), INPUT_RANGES[number % len(INPUT_RANGES)]
        known = places(fusion, sizes, input_range)
        inputs = {
            i.value.name: random_input(fusion, i, sizes, 1, input_range) for i in fusion.inputs
        }
        arrays = evaluate(fusion, inputs, sizes, [v.name for v in known])
        for value, exact_range in known.items():
            array = np.asarray(arrays[value.name], np.float64)
            finite = array[np.isfinite(array)]
            assert np.all(np.abs(finite) <= exact_range.most), f"{value} beyond {exact_range}"
            if finite.any():
                assert not np.any(np.fmod(finite, exact_range.step)), f"{value} off {exact_range}"
            if value.shape:
                assert np.count_nonzero(finite) <= filled(finite.size, exact_range.share)
                sparse += exact_range.share < 1
    assert sparse > 50


def test_every_sum_is_ordered_and_every_rule_is_of_an_operation() -> None:
    sums = {op.name for op in TABLE.values() if op.combine is Combine.SUM}
    assert sums - set(ORDERED) == {"grouped_mm"}, "groups add what a product adds"
    assert {family for family, _ in ROLES} <= {op.family for op in TABLE.values()}


def chain(products: int, extent: int, dtype: str = "f32") -> Fusion:
    ops = "".join(
        f"  - c{k + 1} = matmul({f'c{k}' if k else 'a'}, w{k})\n" for k in range(products)
    )
    weights = "".join(f"  w{k}: {dtype}[N, N]\n" for k in range(products))
    text = f"fusion: f\ndims: {{M: 4, N: {extent}}}\ninputs:\n  a: {dtype}[M, N]\n{weights}ops:\n"
    return read_text(text + ops + f"outputs: [c{products}]\n", "f.yaml")


@pytest.mark.parametrize(
    ("products", "extent", "input_range"),
    [
        (1, 512, INPUT_RANGES[0]),  # 512 * 8 * 8
        (2, 512, InputRange(4)),  # 512^2 * 4^3 is 2^24, which still is exact
        (2, 4096, InputRange(1)),
        (3, 512, InputRange(1, 2.0**-3)),
    ],
)
def test_the_range_shrinks_with_what_is_added_up(
    products: int, extent: int, input_range: InputRange
) -> None:
    fusion = chain(products, extent)
    found = choose(fusion, choose_sizes(fusion))
    assert found.input_range == input_range
    assert fusion.outputs[0].value in found.exact


@pytest.mark.parametrize("products", [2, 3])
def test_chained_products_are_the_same_in_any_order(products: int) -> None:
    fusion = chain(products, 512)
    assert differing(fusion, "reals", {fusion.outputs[0].value})
    assert differing(fusion, "integers", choose(fusion, choose_sizes(fusion)).exact) == []
    sizes = choose_sizes(fusion)
    (result,) = evaluate(fusion, random_inputs(fusion, sizes, 0, "integers"), sizes).values()
    assert np.count_nonzero(result) > 0.9 * result.size


@pytest.mark.nightly
def test_a_long_column_of_half_numbers() -> None:
    text = "fusion: f\ndims: {N: 300000}\ninputs: {x: 'bf16[N, 2]'}\nops:\n"
    fusion = read_text(
        text + "  - s = sum(cast(mul(x, x), f32), dims=[0])\noutputs: [s]\n", "f.yaml"
    )
    sizes = choose_sizes(fusion)
    assert choose(fusion, sizes).input_range == InputRange(4), "300000 * 64 is more than 2^24"
    assert differing(fusion, "reals", set(fusion.values))
    assert differing(fusion, "integers", set(fusion.values)) == []


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2", "bf16", "f16", "f32", "f64"])
def test_drawn_numbers_are_held_by_every_type(dtype: str) -> None:
    kind = dtypes.find(dtype)
    points = points_of(Numbers(-2, 2, explicit=False), 8, kind)
    drawn = points.draw(np.random.default_rng(0), 1000, kind).astype(np.float64)
    assert set(drawn) == {-2, -1, 1, 2}
    for contents in (Numbers(-8, 8, explicit=True), Numbers(0.25, 4, explicit=False)):
        points = points_of(contents, 8, kind)
        for value in np.arange(points.low, points.high + 1) * points.step:
            assert float(np.asarray(value).astype(kind.numpy)) == value


@pytest.mark.parametrize(
    ("low", "high", "explicit", "dtype", "numbers"),
    [
        (-2, 2, False, "f32", {-1, 1}),
        (-2, 2, True, "f32", {-1, 0, 1}),
        (0, 1, True, "f32", {0, 1}),
        (0.25, 4, False, "f32", {1, 2}),
        (1e-3, 1e3, False, "f32", {1, 2}),
        (100, 200, True, "f32", {100, 101}),
        (-9.5, -3.5, True, "f32", {-5, -4}),
        (0.3, 0.9, True, "f32", {0.5, 0.75}),
        (0.7, 0.7, True, "f32", {np.float64(np.float32(0.7))}),
        (3, 3, True, "bf16", {3}),
        (-2, 2, False, "u8", {1}),
        (-2, 2, True, "i8", {-1, 0, 1}),
        (0.2, 0.8, True, "i64", {1}),
        (-1000, 300, True, "i8", {-1, 0, 1}),
    ],
)
def test_intervals_are_kept(
    low: float, high: float, explicit: bool, dtype: str, numbers: set[float]
) -> None:
    kind = dtypes.find(dtype)
    points = points_of(Numbers(low, high, explicit), 1, kind)
    drawn = points.draw(np.random.default_rng(0), 1000, kind)
    assert drawn.dtype == kind.numpy
    assert set(drawn.astype(np.float64)) == numbers


INPUTS = """\
fusion: f
dims: {B: 16, H: 32}
inputs:
  x: f32[B, H]
  i: i64[B]
  m: bool[B, H]
  r: {type: 'f32[H]', range: [0, 1]}
  e: {type: 'f32[B, H]', strides: [0, 1]}
  s: f32 = 0.5
ops:
  - y = where(m, mul(mul(index_select(x, i, dim=0), r), e), s)
  - z, kept = dropout(y, 0.5)
  - t = sum(z, dims=[1])
outputs: [t, kept]
"""


def test_everything_else_is_drawn_as_ever() -> None:
    fusion = read_text(INPUTS, "f.yaml")
    sizes = choose_sizes(fusion)
    plain, whole = (random_inputs(fusion, sizes, 4, kind) for kind in ("reals", "integers"))
    for name in ("i", "m", "s", "rng_seed", "rng_offset"):
        np.testing.assert_array_equal(np.asarray(plain[name]), np.asarray(whole[name]))
    for name in ("x", "r", "e"):
        assert whole[name].strides == plain[name].strides
        drawn = np.asarray(whole[name])
        assert np.array_equal(drawn, np.rint(drawn))
    assert set(np.asarray(whole["r"])) == {0, 1}
    assert set(np.unique(np.asarray(whole["x"]))) == {*range(-8, 9)} - {0}
    again = random_inputs(fusion, sizes, 4, "integers")
    assert all(np.array_equal(np.asarray(again[n]), np.asarray(whole[n])) for n in whole)
    other = random_inputs(fusion, sizes, 5, "integers")
    assert not np.array_equal(np.asarray(other["x"]), np.asarray(whole["x"]))


def lattice_of(text: str, name: str, input_range: InputRange) -> ExactRange | None:
    inputs = "{x: 'f32[B, H]', c: 'f32[B, 1]', h: 'f16[B, H]', n: 'i32[B]'}"
    head = f"fusion: f\ndims: {{B: 8, H: 64}}\ninputs: {inputs}\n"
    fusion = read_text(f"{head}ops:\n{text}outputs: [{name}]\n", "f.yaml")
    value = fusion.find(name)
    assert isinstance(value, Value)
    return places(fusion, choose_sizes(fusion), input_range).get(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  - y = mul(add(x, x), 0.5)\n", ExactRange(0.5, 2)),
        ("  - y = mul(x, 0.1)\n", None),  # 0.1 has 24 digits
        ("  - y = exp(x)\n", None),
        ("  - y = relu(exp(x))\n", None),
        ("  - y = cast(gt(exp(x), 1.0), f32)\n", None),  # the test itself may go either way
        ("  - y = where(gt(x, 0.0), x, -inf)\n", ExactRange(1, 2)),
        ("  - y = sum(x, dims=[0, 1])\n", ExactRange(1, 1024)),
        ("  - y = sum(mul(h, h), dims=[1])\n", ExactRange(1, 256)),
        ("  - y = max(sum(x, dims=[1]), dims=[0])\n", ExactRange(1, 128)),
        ("  - y = mean(x, dims=[1])\n", None),  # a quotient
        ("  - y = cast(sum(h, dims=[0, 1]), f8e4m3)\n", None),  # 1024 is more than it holds
        ("  - y = argmax(x, dims=[1])\n", ExactRange(1, 512)),
        ("  - y = mul(n, n)\n", ExactRange(1, 4)),
        ("  - y = bitwise_left_shift(n, n)\n", ExactRange(1, 2.0**32)),
        ("  - y = mul(bitwise_left_shift(n, n), 0.5)\n", None),  # more than 2^24 steps
        ("  - y = cast(exp(x), i32)\n", None),
        ("  - y = cast(mul(x, 0.75), i32)\n", ExactRange(1, 2)),
    ],
)
def test_rules(text: str, expected: ExactRange | None) -> None:
    assert lattice_of(text, "y", InputRange(2)) == expected


def test_shares_of_zeros() -> None:
    input_range = INPUT_RANGES[-1]
    part = lattice_of("  - y = mul(x, x)\n", "y", input_range)
    assert part == ExactRange(1, 1, input_range.share)
    both = lattice_of("  - y = add(x, permute(permute(x, [1, 0]), [1, 0]))\n", "y", input_range)
    assert both == ExactRange(1, 2, 2 * input_range.share)
    repeated = lattice_of("  - y = broadcast_in_dim(x, [4, B, H], [1, 2])\n", "y", input_range)
    assert repeated == ExactRange(1, 1)
    rows = "  - y = mul(x, broadcast(max(x, dims=[1]), is_broadcast_dim=[false, true]))\n"
    assert lattice_of(rows, "y", input_range) == ExactRange(1, 1, input_range.share)
    column = lattice_of("  - y = add(x, c)\n", "y", input_range)
    assert column == ExactRange(1, 2), "an element of the column stands for a row"
    assert filled(10**6, 1e-3) == pytest.approx(1000 + 8 * 1000**0.5 + 32)
    assert filled(5, 0.5) == 5
    draws = np.random.default_rng(0).random((2000, 4096)) < input_range.share
    assert draws.sum(1).max() <= filled(4096, input_range.share)


def test_what_types_hold() -> None:
    assert held(ExactRange(1, 2.0**24), dtypes.F32) == ExactRange(1, 2.0**24)
    assert held(ExactRange(1, 2.0**24 + 2), dtypes.F32) is None
    assert held(ExactRange(1, 2.0**53), dtypes.F64) is not None
    assert held(ExactRange(1, 300), dtypes.BF16) == ExactRange(1, 300 * (1 + 2.0**-7))
    assert held(ExactRange(1, 70_000), dtypes.F16) is None
    assert held(ExactRange(1, np.inf), dtypes.I8) == ExactRange(1, 256)
    assert of_number(0.375, dtypes.F32) == ExactRange(0.125, 0.375)
    assert of_number(-6, dtypes.I64) == ExactRange(2, 6)


def test_the_command(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path, INPUTS)
    done = fusec(capsys, "run", path, "--inputs-kind", "integers", "--device", "reference",
                 "--print", 4)  # fmt: skip
    assert (done.code, done.err) == (0, "")
    sums = done.out.split("t: f32[16]\n    ")[1].splitlines()[0].split(", ")[:4]
    assert all(float(n) == round(2 * float(n)) / 2 for n in sums), sums
    np.savez(tmp_path / "in.npz", x=np.ones(1))
    given = fusec(capsys, "run", path, "--inputs-kind", "integers", "--inputs", tmp_path / "in.npz")
    given.says(2, "--inputs-kind has no effect")


@pytest.mark.parametrize(
    ("example", "sizes"),
    mostly_nightly(
        [
            ("rope", {"S": 16}),
            ("column_mean", {"B": 64}),
            ("layernorm_backward", {"B": 48, "H": 256}),
        ],
        3,
    ),
)
def test_kernels_agree_bitwise(example: str, sizes: dict[str, int], tmp_path: Path) -> None:
    fusion = driver.load(str(EXAMPLES / f"{example}.yaml"), sizes)
    compiled = driver.compile_fusion(fusion, CompileOptions(targets=("sm_90a",)))
    at = choose_sizes(fusion)
    exact = [o.value.name for o in fusion.outputs if o.value in choose(fusion, at).exact]
    assert exact
    inputs = random_inputs(fusion, at, 2, "integers")
    device: Any = emulated(compiled.program, tmp_path)
    executable = Executable(device, compiled.program.host, compiled.cubins("sm_90a"))
    with executable.bind(inputs, at) as bound:
        bound.reset()
        bound.run()
        found = bound.outputs()
    expected = driver.reference(fusion, inputs, at)
    for name in exact:
        np.testing.assert_array_equal(found[name], expected[name])


def test_outputs_that_integers_fix() -> None:
    fusion = read_text(
        "fusion: t\ninputs: {x: 'f32[64, 512]', n: 'i32[64]'}\n"
        "ops: ['s = sum(x, dims=[1])', 'e = exp(s)', 'm = neg(n)']\n"
        "outputs: [s, e, m]\n",
        "t.yaml",
    )
    assert exact_outputs(fusion, choose_sizes(fusion)) == {"s"}
    pointwise = read_text(
        "fusion: t\ninputs: {x: 'f32[8]'}\nops: ['y = neg(x)']\noutputs: [y]\n", "t.yaml"
    )
    assert exact_outputs(pointwise, {}) == frozenset()


def test_one_lost_term_of_many_integers_differs() -> None:
    fusion = read_text(
        "fusion: t\ninputs: {x: 'bf16[4, 65536]'}\n"
        "ops: ['s = sum(cast(x, f32), dims=[1])']\noutputs: [s]\n",
        "t.yaml",
    )
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes, 5, "integers")
    right = {"s": np.asarray(evaluate(fusion, inputs, sizes)["s"]).astype(np.float32)}
    (verdict,) = compare(fusion, sizes, inputs, right).outputs
    assert (verdict.word, verdict.error) == ("verified", 0.0)
    lost = {"s": right["s"] + np.array([0, 0, 1, 0], np.float32)}
    assert compare(fusion, sizes, inputs, lost).word == "differs"
