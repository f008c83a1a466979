"""The reference on arrays like CuPy's: the same bits as NumPy's, and nothing falls back unseen."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_cupy
import numpy as np
import pytest
from cli_tools import fusec
from paths import ROOT
from test_examples_verify import EXAMPLES, example

from fusec import driver
from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.ir import arrays
from fusec.ir import dtype as dtypes
from fusec.ir.arrays import computed_by
from fusec.ir.evaluate import apply_reference, round_to
from fusec.ir.graph import Fusion
from fusec.ops import TABLE
from fusec.options import CompileOptions
from fusec.pages.operations import example_file
from fusec.parse import read_text
from fusec.reference import sweeps
from fusec.reference.errors.estimate import Estimate
from fusec.reference.errors.nodes import Model
from fusec.reference.stream import estimate, outputs_of
from fusec.reference.verdict import Verdict, compare
from fusec.run.arrays import StridedArray
from fusec.run.inputs import choose_sizes, random_inputs
from tools.draw import draw_fusion

DOCS = ROOT / "docs"
VARIANCES = ("independent", "common", "part", "most", "factor")
FEW_EXAMPLES = {"attention", "layernorm_backward", "paged_decode", "quantize_fp8_rows", "seed_2146"}


def dense(fusion: Fusion, sizes: dict[str, int], seed: int = 0) -> dict[str, Any]:
    """Return random inputs as arrays."""
    given = random_inputs(fusion, sizes, seed=seed)
    return {n: a.array if isinstance(a, StridedArray) else a for n, a in given.items()}


def same_bits(a: Any, b: Any) -> bool:
    """Return whether both are None, or arrays of NumPy's with the same bytes."""
    if a is None or b is None:
        return a is b
    assert type(a) in (np.ndarray, np.bool_) or isinstance(a, np.generic)
    assert type(b) is np.ndarray
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def same_estimates(a: Estimate, b: Estimate) -> bool:
    """Return whether two estimates hold the same bits."""
    return all(same_bits(getattr(a, n), getattr(b, n)) for n in ("value", *VARIANCES))


def on_stand_in(function: Callable[[], Any]) -> Any:
    """Return what a function makes of the stand-in's arrays."""
    with computed_by(fake_cupy):
        return function()


def no_clock(verdict: Verdict) -> Verdict:
    return replace(verdict, seconds=0.0)


@pytest.mark.parametrize("family", sorted({op.family for op in TABLE.values()}))
def test_every_operation(family: str) -> None:
    """The example of each operation, with its expected errors: no body takes arrays of the host.

    What is computed there all the same is listed.
    """
    page = (DOCS / "verification.md").read_text(encoding="utf-8")
    arrays.on_the_host.clear()
    for name, op in TABLE.items():
        if op.family != family:
            continue
        fusion = read_text(example_file(op))
        sizes = dict(fusion.hints)
        inputs = dense(fusion, sizes)
        expected = estimate(fusion, inputs, sizes)
        found = on_stand_in(lambda: estimate(fusion, inputs, sizes))  # noqa: B023
        for value, each in expected.items():
            assert same_estimates(each, found[value]), (name, value)
    for name in arrays.on_the_host:
        assert f"`{name}`" in page, name
    assert bool(arrays.on_the_host) or family not in ("scatter", "reduction")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
@pytest.mark.nightly
def test_every_example(path: Path) -> None:
    check_example(path)


@pytest.mark.parametrize("name", sorted(FEW_EXAMPLES))
def test_some_examples(name: str) -> None:
    check_example(next(p for p in EXAMPLES if p.stem == name))


def check_example(path: Path) -> None:
    """Compare verdicts on what is right, and on what has three elements changed."""
    fusion, sizes, inputs, outputs = example(path)
    changed = {name: array.copy() for name, array in outputs.items()}
    for array in changed.values():
        flat = array.reshape(-1)
        flat[:3] = flat[::-1][:3]
    for given in (outputs, changed):
        expected = compare(fusion, sizes, inputs, given)
        found = on_stand_in(lambda: compare(fusion, sizes, inputs, given))  # noqa: B023
        assert no_clock(found) == no_clock(expected)
    expected = compare(fusion, sizes, inputs, outputs, given=changed)
    found = on_stand_in(lambda: compare(fusion, sizes, inputs, outputs, given=changed))
    assert no_clock(found) == no_clock(expected)


def check_random(number: int) -> None:
    fusion = draw_fusion(11, number)
    sizes = choose_sizes(fusion)
    inputs = dense(fusion, sizes, number)
    outputs = outputs_of(fusion, inputs, sizes)
    again = on_stand_in(lambda: outputs_of(fusion, inputs, sizes))
    assert all(same_bits(array, again[name]) for name, array in outputs.items()), number
    model = Model(eager=number % 3 == 0)
    expected = compare(fusion, sizes, inputs, outputs, model=model)
    found = on_stand_in(lambda: compare(fusion, sizes, inputs, outputs, model=model))
    assert no_clock(found) == no_clock(expected), number


@pytest.mark.parametrize("number", range(6))
def test_random_fusions(number: int) -> None:
    check_random(number)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "WHOLE_ELEMENTS", 256)
    for name in ("BLOCK_ELEMENTS", "PRODUCT_ELEMENTS", "GPU_ELEMENTS"):
        monkeypatch.setattr(sweeps, name, 1024)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("number", [2, 8, 12, 33])
def test_random_fusions_in_blocks(number: int) -> None:
    check_random(number)


RANKS = """
fusion: ranks
inputs:
  x: bf16[6, 33]
  w: bf16[33, 6]
ops:
  - y = sum(x, [0])
  - z = prod(x, [0])
  - t = permute(w, [1, 0])
  - v = sum(t, [0])
outputs: [y, z, v]
"""


def test_sums_over_ranks() -> None:
    """Half types that round after every term, also of what does not lie along memory."""
    fusion = read_text(RANKS)
    inputs = dense(fusion, {})
    model = Model(hops=frozenset("yzv"), ranks=True)
    expected = estimate(fusion, inputs, {}, model=model)
    found = on_stand_in(lambda: estimate(fusion, inputs, {}, model=model))
    assert all(same_estimates(each, found[name]) for name, each in expected.items())
    assert expected["v"].independent is not None


@pytest.mark.parametrize("name", ["attention", "attention_softmax", "softmax"])
def test_models_of_plans(name: str) -> None:
    """Weights rounded early, cheaper forms and planned orders, as kernels have them."""
    fusion, sizes, inputs, outputs = example(next(p for p in EXAMPLES if p.stem == name))
    model = driver.model_of(driver.Compilation(fusion, CompileOptions()).host, sizes)
    assert model.orders
    assert name != "attention" or model.early
    expected = compare(fusion, sizes, inputs, outputs, model=model)
    found = on_stand_in(lambda: compare(fusion, sizes, inputs, outputs, model=model))
    assert no_clock(found) == no_clock(expected)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(6, 300))
def test_more_random_fusions(number: int, request: pytest.FixtureRequest) -> None:
    if number % 2:
        request.getfixturevalue("small_blocks")
    check_random(number)


def test_the_stand_in_refuses_what_cupy_refuses() -> None:
    x = fake_cupy.asarray(np.arange(6.0).reshape(2, 3))
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(x)
    with pytest.raises(TypeError, match="Unsupported type"):
        x + np.ones(3)
    with pytest.raises(TypeError, match="Unsupported type"):
        x[0] = np.ones(3)
    with pytest.raises(TypeError, match="no implementation"):
        np.choose(x, [x, x])
    with pytest.raises(TypeError, match="initial"):
        np.max(x, initial=0.0)
    with pytest.raises(TypeError, match="Wrong arguments"):
        np.divide(x, x, where=x > 0)
    with pytest.raises(NotImplementedError, match="an order of its own"):
        np.maximum.accumulate(x)
    with pytest.raises(NotImplementedError, match="an order of its own"):
        np.sum(x.astype(np.float32), axis=0)
    with pytest.raises(AttributeError, match="a condition is an array"):
        np.where(False, x, x)
    with pytest.raises(AttributeError, match="has no attribute"):
        fake_cupy.piecewise  # noqa: B018
    with pytest.raises(TypeError, match="bfloat16"):
        fake_cupy.asarray(np.ones(3).astype(dtypes.BF16.numpy))
    element = x[0, 1]
    assert isinstance(element, fake_cupy.ndarray)
    element += 5.0
    assert float(x[0, 1]) == 6.0
    assert same_bits(np.asarray(x.get()), np.asarray([[0.0, 6.0, 2.0], [3.0, 4.0, 5.0]]))


@pytest.mark.parametrize(
    "body",
    [lambda x: np.exp(np.asarray(x)), lambda x: x + np.ones(x.shape), lambda x: np.exp(list(x))],
)
def test_a_body_that_takes_arrays_to_the_host_is_found(body: Any) -> None:
    broken = replace(TABLE["exp"], reference=body)
    x = np.arange(3.0)
    apply_reference(broken, [x], {})
    with pytest.raises(TypeError):
        on_stand_in(lambda: apply_reference(broken, [fake_cupy.asarray(x)], {}))


def test_the_stand_in_is_like_cupy() -> None:
    """Where CuPy is installed, a GPU or none: it has these functions, with these parameters."""
    cupy = pytest.importorskip("cupy")
    for name, given in fake_cupy.PARAMETERS.items():
        function = getattr(cupy, name, None) or getattr(cupy.linalg, name)
        assert list(inspect.signature(function).parameters) == given.split(), name
    for name in fake_cupy.METHODS:
        assert hasattr(cupy.ndarray, name)
    assert not hasattr(cupy.ndarray, "__index__")
    ufuncs = [n for n in dir(np) if isinstance(getattr(np, n), np.ufunc)]
    missing = {n for n in ufuncs if not hasattr(cupy, n)}
    assert missing <= fake_cupy.MISSING


@pytest.mark.parametrize("dtype", [dtypes.F8E4M3, dtypes.F8E5M2, dtypes.F16, dtypes.BF16])
def test_narrow_types_are_rounded_by_arithmetic(dtype: dtypes.DType) -> None:
    """To the nearest of all numbers of the type, of two as near the one with an even last bit."""
    bits = np.arange(2 ** (dtype.bits - 1), dtype=np.uint16)
    held = bits.astype(np.uint8) if dtype.bits == 8 else bits
    with np.errstate(invalid="ignore"):
        numbers = held.view(dtype.numpy).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    between = (numbers[1:] + numbers[:-1]) / 2
    even = np.where(np.arange(between.size) % 2 == 0, numbers[:-1], numbers[1:])
    below, above = np.nextafter(between, 0), np.nextafter(between, np.inf)
    for given, expected in ((between, even), (below, numbers[:-1]), (above, numbers[1:])):
        for sign in (1.0, -1.0):
            found = round_to(sign * given, dtype)
            assert np.array_equal(found, sign * expected)
            assert np.array_equal(np.signbit(found), np.full(found.shape, sign < 0))
            assert same_bits(found, on_stand_in(lambda: arrays.host(_rounded(sign * given, dtype))))  # noqa: B023


def _rounded(values: np.ndarray, dtype: dtypes.DType) -> Any:
    return round_to(arrays.np.asarray(values), dtype)


def test_extrema_of_nothing_and_of_some() -> None:
    x = np.asarray([[3.0, np.nan, -1.0], [2.0, 5.0, 0.0]])
    for array in (x, x[:, :0], x[:0]):
        for axis in (None, 0, 1, (0, 1)):
            for keepdims in (False, True):
                given = {"axis": axis, "keepdims": keepdims, "initial": 1.0}
                expected = np.asarray(np.max(array, **given))
                found = on_stand_in(lambda: arrays.host(_largest(array, **given)))  # noqa: B023
                assert same_bits(expected, found)
    expected = np.asarray(np.max(x, where=np.isfinite(x), initial=-1.0))
    assert same_bits(expected, on_stand_in(lambda: arrays.host(_largest_finite(x))))


def _largest(array: np.ndarray, **given: Any) -> Any:
    return arrays.np.max(arrays.np.asarray(array), **given)


def _largest_finite(array: np.ndarray) -> Any:
    there = arrays.np.asarray(array)
    return arrays.np.max(there, where=np.isfinite(there), initial=-1.0)


@pytest.mark.parametrize(
    ("ufunc", "kind"),
    [(np.add, np.float32), (np.multiply, np.float64), (np.add, np.complex64)],
)
def test_sums_in_order_are_numpys(ufunc: Any, kind: Any) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(1, 0.5, (3, 70, 5)).astype(kind)
    for axis in range(3):
        for function in (arrays.running, arrays.in_a_row):
            expected = function(ufunc, x, axis)
            found = on_stand_in(lambda: _there(function, ufunc, x, axis))  # noqa: B023
            # NumPy takes pairs along memory.
            if axis < 2 or function is arrays.running:
                assert same_bits(np.asarray(expected), found)
    for extremum in (np.maximum, np.minimum):
        for axis in range(3):
            expected = arrays.running_extremum(extremum, x.real.copy(), axis)
            found = on_stand_in(
                lambda: _there(arrays.running_extremum, extremum, x.real.copy(), axis)  # noqa: B023
            )
            assert same_bits(expected, found)


def _there(function: Any, ufunc: Any, x: np.ndarray, axis: int) -> Any:
    return arrays.host(function(ufunc, arrays.np.asarray(x), axis))


def softmax() -> tuple[Fusion, dict[str, Any], dict[str, int]]:
    fusion, sizes, inputs, _ = example(next(p for p in EXAMPLES if p.stem == "softmax"))
    return fusion, inputs, sizes


def test_the_variable_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    case = softmax()
    expected = outputs_of(*case)
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    fake_cupy.waits.clear()
    outputs_of(*case)
    assert not fake_cupy.waits, "off by default"
    monkeypatch.setenv("FUSEC_REFERENCE", "cupy")
    found = outputs_of(*case)
    assert fake_cupy.waits["get"]
    assert all(same_bits(array, found[name]) for name, array in expected.items())


def test_the_variable_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEC_REFERENCE", "jax")
    with pytest.raises(FusecError, match="`jax`"):
        outputs_of(*softmax())
    monkeypatch.setenv("FUSEC_REFERENCE", "cupy")
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(EnvironmentProblem, match="CuPy"):
        outputs_of(*softmax())


def test_the_option_chooses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = next(p for p in EXAMPLES if p.stem == "softmax")
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy)
    command = ("run", path, "--set", "B=4", "--set", "H=64", "--device", "reference", "--print", 2)
    plain = fusec(capsys, *command)
    fake_cupy.waits.clear()
    there = fusec(capsys, *command, "--reference", "cupy")
    assert (there.code, there.out) == (0, plain.out)
    assert fake_cupy.waits["get"]
    monkeypatch.setenv("FUSEC_REFERENCE", "cupy")
    fake_cupy.waits.clear()
    assert fusec(capsys, *command, "--reference", "numpy").out == plain.out
    assert not fake_cupy.waits
