"""Special operands: kernels (on the host) and reference against NumPy's and PyTorch's values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from complex_on_cpu import run_on_cpu
from contracts import CASTS, FLOATS, INTS, LOWEST, MAX, SOME, STEP, UNSIGNED, Row
from contracts_of_rows import NONE, REASONS, ROWS
from paths import ROOT
from test_literals import by_name, on_host, read

from fusec.commands.lint import lint
from fusec.diagnostics import FusecError
from fusec.ir import dtype as dtypes
from fusec.ir.dtype import BOOL, DType
from fusec.ir.graph import Fusion
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.run.inputs import bind_sizes, choose_sizes

Table = Mapping[str, tuple[str, tuple[Row, ...]]]
FLOAT_TYPES = ("f16", "bf16", "f32", "f64")
USUAL = ("f32", "i32", "u8", "bool")
"""Types whose kernels run every time; all do nightly."""
WHOLE = pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.nightly)])


def number(given: object, dtype: DType) -> Any:
    """Return an operand or a result of a row as a number of a type."""
    if given not in (MAX, LOWEST, STEP):
        return given
    if dtype.is_integer:
        return dtype.integers.stop - 1 if given == MAX else dtype.integers.start
    import ml_dtypes

    facts = ml_dtypes.finfo(dtype.numpy)
    sizes = {MAX: facts.max, LOWEST: -facts.max, STEP: facts.smallest_subnormal}
    return float(sizes[str(given)])


def rows() -> Iterator[tuple[str, str, Row]]:
    """Yield (operation, type, row) of all tables but that of casts."""
    signed = [d.name for d in dtypes.ALL if d.kind == "int"]
    unsigned = [d.name for d in dtypes.ALL if d.kind == "uint"]
    tables: list[tuple[Table, list[str]]] = [(INTS, signed), (UNSIGNED, unsigned)]
    for table, kinds in [(FLOATS, list(FLOAT_TYPES)), *tables]:
        for op, (_, given) in table.items():
            for kind in kinds:
                yield from ((op, kind, row) for row in given)
    for op, (_, some) in SOME.items():
        yield from ((op, kind, row) for kind, row in some)


@cache
def groups() -> dict[tuple[str, bool], dict[tuple[str, str], list[Row]]]:
    """Return rows by (type, whether complex numbers are made of it), then by call."""
    found: dict[tuple[str, bool], dict[tuple[str, str], list[Row]]] = {}
    for op, kind, row in rows():
        calls = found.setdefault((kind, op == "complex" or kind[0] == "c"), {})
        calls.setdefault((op, ""), []).append(row)
    for kind, to, _, row in CASTS:
        found.setdefault((kind, kind[0] == "c"), {}).setdefault(("cast", to), []).append(row)
    return found


def fusion_of(kind: str, calls: Mapping[tuple[str, str], list[Row]]) -> Special:
    """Return a fusion of calls on operands of a type."""
    builder, dtype = GraphBuilder(f"contracts_{kind}"), dtypes.find(kind)
    length = max(len(given) for given in calls.values())
    inputs: dict[str, np.ndarray] = {}
    right: dict[str, tuple[list[Row], list[Any]]] = {}
    for (op, to), given in calls.items():
        operands: list[Any] = []
        filled = given + given[-1:] * (length - len(given))
        for place in range(len(given[0]) - 1):
            column = [number(row[place], dtype) for row in filled]
            name = f"{op}{to}_{place}"
            held = BOOL if isinstance(column[0], bool) else dtype
            inputs[name] = array_of(column, held)
            operands.append(builder.input(name, held, [length]))
        result = builder.apply(op, *operands, **({"dtype": dtypes.find(to)} if to else {}))
        label = f"{op}{to}_result"
        builder.output(builder.call("set", [result], names=[label])[0])
        right[label] = (given, [number(row[-1], result.type.dtype) for row in given])
    return Special(builder.finish(), inputs, right)


def array_of(numbers: list[Any], dtype: DType) -> np.ndarray:
    """Return operands as an array; small ones stand for what an integer type does not hold."""
    if dtype.is_integer:
        return np.array([n if n in dtype.integers else 0 for n in numbers], dtype.numpy)
    return np.array(numbers).astype(dtype.numpy)


@dataclass(frozen=True)
class Special:
    """A fusion of calls on special operands; right: by output the rows and the results."""

    fusion: Fusion
    inputs: dict[str, np.ndarray]
    right: dict[str, tuple[list[Row], list[Any]]]


def wrong(found: Mapping[str, Any], special: Special) -> list[str]:
    """Return the rows whose results differ in value, or in the sign of 0."""
    kinds = {o.value.name: o.value.dtype for o in special.fusion.outputs}
    return [
        f"{name[: -len('_result')]}{row[:-1]} is {got}, not {want}"
        for name, (given, expected) in special.right.items()
        for row, got, want in zip(given, np.asarray(found[name]).tolist(), expected, strict=False)
        if not agrees(got, want, kinds[name])
    ]


def agrees(got: Any, want: Any, dtype: DType) -> bool:
    """Return whether a number is right: finite ones to a few units in the last place."""
    if isinstance(want, complex):
        got = complex(got)
        return agrees(got.real, want.real, dtype.part) and agrees(got.imag, want.imag, dtype.part)
    if not isinstance(want, float):
        return got == want
    if math.isnan(want) or math.isinf(want) or want == 0:
        same = math.isnan(got) if math.isnan(want) else got == want
        return same and (want != 0 or math.copysign(1, got) == math.copysign(1, want))
    places = {8: 0, 16: 2}.get(dtype.bits, 8)
    return math.isclose(got, want, rel_tol=places * dtype.epsilon)


@WHOLE
def test_elementwise_operations(whole: bool, tmp_path: Path) -> None:
    found: list[str] = []
    reals = {k: fusion_of(k, calls) for (k, pairs), calls in groups().items() if not pairs}
    for kind, special in reals.items():
        expected = by_name(evaluate(special.fusion, special.inputs, {}))
        found += [f"reference in {kind}: {w}" for w in wrong(expected, special)]
    tried = [kind for kind in reals if whole or kind in USUAL]
    kernels = on_host([(reals[k].fusion, reals[k].inputs) for k in tried], tmp_path)
    for kind, outputs in zip(tried, kernels, strict=True):
        found += [f"kernel in {kind}: {w}" for w in wrong(outputs, reals[kind])]
    assert not found, "\n".join(found)


def test_complex_operations() -> None:
    found: list[str] = []
    for (kind, pairs), calls in groups().items():
        if pairs:
            special = fusion_of(kind, calls)
            outputs, *_ = run_on_cpu(special.fusion, special.inputs)
            found += [f"kernel in {kind}: {w}" for w in wrong(outputs, special)]
            expected = by_name(evaluate(special.fusion, special.inputs, {}))
            found += [f"reference in {kind}: {w}" for w in wrong(expected, special)]
    assert not found, "\n".join(found)


def shape_of(kind: str, numbers: object) -> tuple[DType, tuple[int, ...]]:
    """Return the type and the shape of an input; a list without a shape is one row."""
    name, _, extents = kind.rstrip("]").partition("[")
    count = len(numbers) if isinstance(numbers, list) else 0
    return dtypes.find(name), tuple(map(int, extents.split(","))) if extents else (count,)


def row_fusion(cases: Sequence[tuple[int, Any]]) -> tuple[Fusion, dict[str, np.ndarray]]:
    """Return one fusion of numbered rows: results are called `case_result`."""
    declared: list[str] = []
    calls: list[str] = []
    outputs: list[str] = []
    inputs: dict[str, np.ndarray] = {}
    for case, (_, call, given, results) in cases:
        for name, (kind, numbers) in given.items():
            dtype, shape = shape_of(kind, numbers)
            inputs[f"{name}_{case}"] = np.array(numbers).astype(dtype.numpy).reshape(shape)
            declared.append(f"  {name}_{case}: '{dtype}{list(shape)}'")
            call = re.sub(rf"\b{name}\b(?=[,)])", f"{name}_{case}", call)
        names = [f"case_{case}_{k}" for k in range(len(results))]
        calls.append(f"  - {', '.join(names)} = {call}")
        outputs += names
    last = f"outputs: [{', '.join(outputs)}]"
    lines = ["fusion: rows", "inputs:", *declared, "ops:", *calls, last, ""]
    return read_text("\n".join(lines), "rows.yaml"), inputs


def wrong_rows(found: Mapping[str, Any], cases: Sequence[tuple[int, Any]]) -> list[str]:
    """Return the results that differ."""
    different: list[str] = []
    for case, (_, call, given, results) in cases:
        for k, want in enumerate(results):
            got = np.asarray(found[f"case_{case}_{k}"])
            flat, expected = got.ravel().tolist(), np.ravel(np.array(want, object)).tolist()
            pairs = zip(flat, expected, strict=True)
            kind = dtypes.F32 if got.dtype == np.float64 else dtypes.of_numpy(got.dtype)
            if got.shape != np.shape(want) or not all(agrees(a, b, kind) for a, b in pairs):
                different.append(f"{call} of {given} is {got.tolist()}, not {want}")
    return different


@WHOLE
def test_rows(whole: bool) -> None:
    cases = [(k, c) for k, c in enumerate(ROWS) if NONE not in c[-1]]
    fusion, inputs = row_fusion(cases)
    expected = by_name(evaluate(fusion, inputs, {}))
    found = [f"reference: {w}" for w in wrong_rows(expected, cases)]
    # Kernels run for every third row, and for all nightly.
    tried = cases if whole else cases[::3]
    outputs, *_ = run_on_cpu(*row_fusion(tried))
    found += [f"kernel: {w}" for w in wrong_rows(outputs, tried)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("case", [c for c in ROWS if NONE in c[-1]], ids=lambda c: c[1])
def test_nothing_has_no_extremum(case: Any) -> None:
    with pytest.raises(FusecError, match="of no elements are undefined") as caught:
        row_fusion([(0, case)])
    assert caught.value.diagnostic.span is not None


def test_every_operation_has_rows_or_a_reason() -> None:
    tables = {*FLOATS, *INTS, *UNSIGNED, *SOME, "cast", "iota"}
    written = {call.partition("(")[0] for _, call, *_ in ROWS}
    assert set(TABLE) - tables - written == set(REASONS)


BOUNDS = [(0.0, 1.0), (1.0, 2.0), (-1.0, 0.0), (-3.0, -2.0), (0.0, 0.3), (-1e-7, 1e-7), (2.0, 2.0)]
DRAWN, SEED = 8001, "rng_seed=7, rng_offset=0"


@WHOLE
def test_random_numbers_stay_below_their_limit(whole: bool) -> None:
    """In [0, 1) and other intervals, as torch.rand and torch.Tensor.uniform_ document."""
    kinds = ("f8e4m3", "bf16", "f32", *("f8e5m2", "f16", "f64") * whole)
    calls = [
        (
            f"u_{kind}_{k}",
            f"uniform({low}, {high}, [{DRAWN}], rng_seed=7, rng_offset=0, dtype={kind})",
        )
        for kind in kinds
        for k, (low, high) in enumerate(BOUNDS)
    ]
    calls += [(f"r_{kind}", f"rand_like(x_{kind}, {SEED})") for kind in kinds]
    calls += [(f"n_{kind}", f"randn_like(x_{kind}, {SEED})") for kind in kinds]
    inputs = {f"x_{kind}": np.zeros(DRAWN, dtypes.find(kind).numpy) for kind in kinds}
    fusion = read(dict(calls), {name: f"{name[2:]}[{DRAWN}]" for name in inputs})
    outputs, *_ = run_on_cpu(fusion, inputs)
    for found in (outputs, by_name(evaluate(fusion, inputs, {}))):
        for name, _ in calls:
            letter, kind, *number = name.split("_")
            values = np.asarray(found[name]).astype(np.float64)
            if letter == "n":
                assert np.isfinite(values).all(), name
                continue
            low, high = BOUNDS[int(number[0])] if number else (0.0, 1.0)
            rounded = [float(np.asarray(v).astype(dtypes.find(kind).numpy)) for v in (low, high)]
            assert values.min() >= rounded[0], name
            assert values.max() < high or low == high, name
            assert values.max() > values.min() or rounded[0] == rounded[1], name


def test_each_row_is_compared() -> None:
    """Another number in the place of a result is noticed, row by row, as is another sign of 0."""
    special = fusion_of("f32", groups()["f32", False])
    found = by_name(evaluate(special.fusion, special.inputs, {}))
    kinds = {o.value.name: o.value.dtype for o in special.fusion.outputs}
    changed = {name: other(array, kinds[name]) for name, array in found.items()}
    assert len(wrong(changed, special)) == sum(len(given) for given, _ in special.right.values())


def other(array: Any, dtype: DType) -> Any:
    """Return other numbers: NaN for numbers, -0 for 0, numbers a little off, truth turned."""
    if not dtype.is_float:
        return ~array if dtype.kind == "bool" else array + 1
    zero = np.where(np.signbit(array), 0.0, -0.0)
    near = array * (1 + 20 * dtype.epsilon)
    return np.where(array == 0, zero, np.where(np.isfinite(array), near, 1.0))


def test_an_extent_of_0_at_run_time_has_no_extremum() -> None:
    text = "fusion: f\ndims: {N: 4}\ninputs: {x: 'f32[3, N]'}\nops: ['y = %s']\noutputs: [y]\n"
    for call in ("max(x, [1])", "argmin(x)"):
        fusion = read_text(text % call, "f.yaml")
        assert choose_sizes(fusion, {"N": 1})["N"] == 1
        with pytest.raises(FusecError, match="extent 0, which is N at these sizes"):
            choose_sizes(fusion, {"N": 0})
        with pytest.raises(FusecError, match="extent 0, which is N at these sizes"):
            bind_sizes(fusion, {"x": np.zeros((3, 0), np.float32)})
    assert choose_sizes(read_text(text % "softmax(x, 1)", "f.yaml"), {"N": 0})["N"] == 0


REPORTS = ROOT.parent / "shared" / "reports"


@pytest.mark.skipif(not REPORTS.is_dir(), reason="the shared reports are not here")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("argmax_of_nothing", "maximum and minimum of no elements are undefined"),
        ("full_of_a_value_that_does_not_fit", "is 300, out of range for u8"),
        ("pad_inf_in_ints", "is inf, and must be an integer"),
        ("where_of_two_literals", None),
    ],
)
def test_reports(name: str, message: str | None) -> None:
    text = (REPORTS / f"{name}.yaml").read_text()
    if message is None:
        (found,) = lint(read_text(text, f"{name}.yaml"))
        assert found.message == "`where` of two float literals is a tensor of f64"
        return
    with pytest.raises(FusecError) as caught:
        read_text(text, f"{name}.yaml")
    assert message in caught.value.diagnostic.message


def test_attention_without_keys_adds_up_nothing() -> None:
    """The logarithm of no sum is -inf, as in torch.logsumexp, though no key has a largest score."""
    heads = {"q": "f32[1, 1, 2, 8]", "k": "f32[1, 1, 0, 8]", "v": "f32[1, 1, 0, 8]"}
    fusion = read({"o, sums, seed, offset": "sdpfa_fwd(q, k, v)"}, heads)
    shapes = {"q": (1, 1, 2, 8), "k": (1, 1, 0, 8), "v": (1, 1, 0, 8)}
    found = by_name(evaluate(fusion, {n: np.ones(s, np.float32) for n, s in shapes.items()}, {}))
    assert found["sums"].tolist() == [[[-math.inf] * 2]]
    assert not found["o"].any()
