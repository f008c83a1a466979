"""Integer literals at the edges of their types: kernels (on the host) and reference wrap alike.

The expected values need no rule for literals: each call is evaluated with a tensor in the place of
the literal, which holds the number that PyTorch converts the literal to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import build_all, run_plan
from families import plan_of

from fusec.codegen.dispatch import plan_sources
from fusec.diagnostics import FusecError, InternalError
from fusec.ir import dtype as dtypes
from fusec.ir.dtype import DType
from fusec.ir.graph import Fusion
from fusec.kernel.ctext import literal as c_literal
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import read_text
from fusec.passes import run_pipeline
from fusec.reference.evaluate import evaluate
from fusec.run.arrays import StridedArray

INTEGERS = [d for d in dtypes.ALL if d.is_integer]
COUNT = 6
TENSORS = ("x", "y", "z")
POINTWISE = [o for o in TABLE.values() if o.family == "pointwise" and not o.is_form]


def edges(dtype: DType) -> list[int]:
    """Return the lowest and the highest integer of a type, those beyond them, and powers of two."""
    low, high = dtype.integers.start, dtype.integers.stop - 1
    beyond = [low - 1, high + 1, 2**31, 2**32, 2**63, -(2**31), -(2**63), 2**64 - 1]
    return [v for v in dict.fromkeys([low, high, *beyond]) if -(2**63) <= v < 2**64]


def modulo(value: int, dtype: DType) -> int:
    """Return what C's unsigned arithmetic leaves of an integer, read in a type."""
    rest = value & (2**dtype.bits - 1)
    return rest - 2**dtype.bits if dtype.kind == "int" and rest >> (dtype.bits - 1) else rest


def data(dtype: DType) -> dict[str, np.ndarray]:
    """Return tensors with the edges of a type, small numbers, and a mask."""
    low, high = dtype.integers.start, dtype.integers.stop - 1
    x = np.array([low, high, 0, 1, 5, high - 1], dtype.numpy)
    return {
        "x": x,
        "y": x[::-1].copy(),
        "m": np.array([True, False] * 3),
        "z": x[[3, 4, 2, 0, 1, 5]],
    }


def calls() -> Iterator[tuple[str, list[Any], int]]:
    """Yield operations, operands (names, or None for the literal) and the place of the literal."""
    for op in POINTWISE:
        for place in range(len(op.operands)):
            names = iter(TENSORS)
            given: list[Any] = [
                None if k == place else next(names) for k in range(len(op.operands))
            ]
            if op.operands[0].name == "condition":
                if place == 0:
                    continue
                given[0] = "m"
            if len(given) > 1:
                yield op.name, given, place


def added(
    builder: GraphBuilder, values: Mapping[str, Any], op: str, given: Sequence[Any], at: Any
) -> Any:
    """Return the result of a call, None where the operation refuses its types."""
    try:
        return builder.apply(op, *(at if g is None else values[g] for g in given))
    except FusecError:
        return None


def chosen(dtype: DType, whole: bool) -> Iterator[tuple[int, str, list[Any], int]]:
    """Yield literals with calls: all pairs, or a literal for each call, in turn.

    Narrow types, whose C text wraps by a cast, have a sixth of the calls.
    """
    values = edges(dtype)
    for k, call in enumerate(calls()):
        if not whole and dtype.bits < 32 and k % 6:
            continue
        for value in values if whole else [values[(k + dtype.bits) % len(values)]]:
            yield value, *call


def fusions(dtype: DType, whole: bool) -> tuple[Fusion, Fusion, dict[str, np.ndarray]]:
    """Return calls with literals, the same with tensors in their places, and the inputs."""
    inputs = data(dtype)
    builders = [GraphBuilder(f"literals_{dtype.name}"), GraphBuilder("tensors")]
    tensors = [
        {n: b.input(n, dtypes.of_numpy(a.dtype), [COUNT]) for n, a in inputs.items()}
        for b in builders
    ]
    for value, op, given, place in chosen(dtype, whole):
        label = f"{op}_{place}_of_{value}".replace("-", "minus_")
        name = f"held_in_{label}"
        held = builders[1].input(name, dtype, [COUNT])
        result = added(builders[0], tensors[0], op, given, value)
        twin = added(builders[1], tensors[1], op, given, held)
        assert (result is None) == (twin is None), (op, given)
        inputs[name] = np.full(COUNT, modulo(value, dtype), dtype.numpy)
        if result is None or result.type.dtype.is_float:
            continue  # a literal beside floats is a float
        builders[0].output(builders[0].call("set", [result], names=[label])[0])
        builders[1].output(builders[1].call("set", [twin], names=[label])[0])
    return builders[0].finish(), builders[1].finish(), inputs


def by_name(arrays: Mapping[Any, Any]) -> dict[str, Any]:
    return {getattr(k, "name", k): v for k, v in arrays.items()}


def differing(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Return what differs, with both values."""
    return [
        f"{name} is {found[name]}, not {array}"
        for name, array in expected.items()
        if not np.array_equal(found[name], array)
    ]


def on_host(
    runs: Sequence[tuple[Fusion, Mapping[str, np.ndarray]]], folder: Path
) -> list[dict[str, np.ndarray]]:
    """Return the outputs of one pointwise kernel for each fusion, all compiled together."""
    plans = [plan_of("pointwise", run_pipeline(f)) for f, _ in runs]
    built = build_all([(s.kernel, s.text) for p in plans for s in plan_sources(p)], folder)
    results: list[dict[str, np.ndarray]] = []
    for plan, (_, inputs), kernel in zip(plans, runs, built, strict=True):
        given = {k: StridedArray(a, a.shape, (1,) * a.ndim) for k, a in inputs.items()}
        results.append(run_plan(plan, given, folder, built=[kernel]))
    return results


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_operands_wrap(whole: bool, tmp_path: Path) -> None:
    made = [fusions(d, whole) for d in INTEGERS]
    assert sum(len(f.outputs) for f, *_ in made) > 250
    given = [{n: inputs[n] for n in (*TENSORS, "m")} for *_, inputs in made]
    kernels = on_host([(f, g) for (f, *_), g in zip(made, given, strict=True)], tmp_path)
    for (literals, tensors, inputs), few, outputs in zip(made, given, kernels, strict=True):
        expected = by_name(evaluate(tensors, inputs, {}))
        assert differing(by_name(evaluate(literals, few, {})), expected) == []
        assert differing(outputs, expected) == []


LOW64, HIGH64 = -(2**63), 2**63 - 1
FILLS = [
    # call on x: i32[3] = [7, -8, 9], and what it is, written by hand
    ("full([3], 255, dtype=u8)", [255] * 3),
    ("full([3], -128, dtype=i8)", [-128] * 3),
    (f"full([3], {-(2**31)}, dtype=i32)", [-(2**31)] * 3),
    (f"full([3], {2**32 - 1}, dtype=u32)", [2**32 - 1] * 3),
    (f"full([3], {LOW64}, dtype=i64)", [LOW64] * 3),
    (f"full([3], {2**64 - 1}, dtype=u64)", [2**64 - 1] * 3),
    (f"full([3], {2**64 - 1})", [2**64 - 1] * 3),
    ("full([3], 3.0, dtype=i16)", [3] * 3),
    ("logical_right_shift(cast(full([3], 7.5, dtype=f32), i32), 1)", [3] * 3),
    ("add(cast(full([3], -7.5, dtype=bf16), i16), cast(x, i16))", [0, -15, 2]),
    (
        "add(cast(full([3], 1e30, dtype=f64), i64), cast(x, i64))",
        [7 - 2**63 - 1, 2**63 - 9, 9 - 2**63 - 1],
    ),
    ("add(cast(full([3], 300, dtype=i32), u8), cast(x, u8))", [51, 36, 53]),
    (f"pad(x, [0, 1], value={-(2**31)})", [7, -8, 9, -(2**31)]),
    (f"pad(cast(x, i64), [1, 0], value={LOW64})", [LOW64, 7, -8, 9]),
    (f"pad(cast(x, u64), [1, 0], value={2**64 - 1})", [2**64 - 1, 7, 2**64 - 8, 9]),
    (f"iota(3, start={LOW64})", [LOW64, LOW64 + 1, LOW64 + 2]),
    (f"iota(3, start={HIGH64 - 2})", [HIGH64 - 2, HIGH64 - 1, HIGH64]),
    (f"iota(3, start=0, step={2**62})", [0, 2**62, LOW64]),
    (f"iota(3, start=1, step={LOW64})", [1, LOW64 + 1, 1]),
    (f"iota(3, start={2**31 - 1}, dtype=i64)", [2**31 - 1, 2**31, 2**31 + 1]),
    (f"iota(3, start={2**31 - 1}, dtype=i32)", [2**31 - 1, -(2**31), 1 - 2**31]),
    (f"iota(3, step={2**32}, dtype=i64)", [0, 2**32, 2**33]),
    (f"iota(3, start={2**64 - 2}, dtype=u64)", [2**64 - 2, 2**64 - 1, 0]),
    ("iota(3, start=254, dtype=u8)", [254, 255, 0]),
    (f"mul(x, cast({2**31}, i32))", [-(2**31), 0, -(2**31)]),
    ("add(cast(x, u8), cast(300, u8))", [51, 36, 53]),
    ("add(cast(x, u8), cast(-1.5, u8))", [6, 247, 8]),
    ("add(x, cast(1e30, i32))", [6 - 2**31, 2**31 - 9, 8 - 2**31]),
    ("add(x, cast(nan, i32))", [7, -8, 9]),
    (f"add(x, add(i32({2**31 - 1}), 1))", [7 - 2**31, 2**31 - 8, 9 - 2**31]),
    (f"add(x, mul({2**32 - 1}, {2**32 - 1}))", [8, -7, 10]),
    (f"add(x, bitwise_and({2**32 + 1}, {2**33 - 1}))", [8, -7, 10]),
    (f"where(eq(x, {2**32 + 7}), {2**32 - 1}, {2**31})", [2**32 - 1, 2**31, 2**31]),
    (f"add(cast(x, i8), mul(size(x, 0), {2**40 + 100}))", [51, 36, 53]),
    (f"truediv(x, {2**63})", [7 / 2**63, -8 / 2**63, 9 / 2**63]),
    ("full([3], bitwise_or(256, 1), dtype=u8)", [1] * 3),
    ("full([3], mul(0.5, 3.0), dtype=i32)", [1] * 3),
    ("full([3], log(-1.0), dtype=i32)", [0] * 3),
    ("pad(x, [0, 1], value=exp(100.0))", [7, -8, 9, 2**31 - 1]),
    ("select(x, -1, dim=0)", 9),
    ("select(pad(x, [0, 297]), i8(-1), dim=0)", 0),
]


def read(ops: Mapping[str, str], inputs: Mapping[str, str]) -> Fusion:
    """Return a fusion of calls, by the names of their results, which all are outputs."""
    lines = [f"  {n}: '{t}'" for n, t in inputs.items()]
    calls = [f"- {name} = {call}" for name, call in ops.items()]
    outputs = ", ".join(ops)
    text = ["fusion: f", "inputs:", *lines, "ops:", *calls, f"outputs: [{outputs}]"]
    return read_text("\n".join(text) + "\n", "f.yaml")


@pytest.mark.nightly
def test_filled_numbered_and_folded_values(tmp_path: Path) -> None:
    x = np.array([7, -8, 9], np.int32)
    made = [read({f"y{k}": call}, {"x": "i32[3]"}) for k, (call, _) in enumerate(FILLS)]
    outputs = on_host([(f, {"x": x}) for f in made], tmp_path)
    for k, (call, expected) in enumerate(FILLS):
        found = by_name(evaluate(made[k], {"x": x}, {}))[f"y{k}"]
        dtype = made[k].outputs[0].value.dtype
        array = np.asarray(expected, dtype.numpy)
        for result in (np.asarray(found, dtype.numpy), outputs[k][f"y{k}"]):
            assert np.array_equal(result, array), f"{call} is {result}, not {array}"


REJECTED = [
    ("u8", "full([3], 300, dtype=u8)", "`fill_value` of `full` is 300, out of range for u8"),
    ("u8", "full([3], -1, dtype=u8)", "`fill_value` of `full` is -1, out of range for u8"),
    ("i32", "full([3], 1.5, dtype=i32)", "`fill_value` of `full` is 1.5, and must be an integer"),
    ("i32", "full([3], nan, dtype=i32)", "is nan, and must be an integer"),
    ("i64", "full([3], 1e300, dtype=i64)", "is 1e+300, out of range for i64"),
    ("i64", f"full([3], {2**63}, dtype=i64)", "out of range for i64"),
    ("i32", "full([3], c64(1, 2), dtype=i32)", "is 1+2j, and must be an integer"),
    ("u8", "pad(x, [1, 1], value=-1)", "`value` of `pad` is -1, out of range for u8"),
    ("i32", "pad(x, [1, 1], value=1.5)", "`value` of `pad` is 1.5, and must be an integer"),
    ("i16", "pad(x, [1, 1], value=inf)", "`value` of `pad` is inf, and must be an integer"),
    ("u8", "scatter(x, iota(3), 256, dim=0)", "`src` of `scatter` is 256, out of range for u8"),
    ("i32", "iota(3, start=nan, dtype=i32)", "`start` of `iota` is nan, and must be an integer"),
    ("i32", "iota(3, step=0.5, dtype=i32)", "`step` of `iota` is 0.5, and must be an integer"),
    ("i32", f"add(x, {2**64})", f"the integer {2**64} does not fit in 64 bits"),
]


@pytest.mark.parametrize(("dtype", "call", "message"), REJECTED)
def test_what_no_integer_stands_for_is_rejected(dtype: str, call: str, message: str) -> None:
    with pytest.raises(FusecError) as caught:
        read({"y": call}, {"x": f"{dtype}[3]"})
    assert message in caught.value.diagnostic.message
    assert caught.value.diagnostic.span is not None


@pytest.mark.parametrize("diagonal", [2**31 - 1, 2**31, 2**63, 2**64 - 1, -(2**31), -(2**63)])
@pytest.mark.parametrize("op", ["triu", "tril"])
def test_a_diagonal_beyond_the_matrix(op: str, diagonal: int) -> None:
    x = np.ones((3, 3), np.float32)
    fusion = read({"y": f"{op}(x, diagonal={diagonal})"}, {"x": "f32[3, 3]"})
    expected = x * ((op == "tril") == (diagonal > 0))
    assert np.array_equal(by_name(evaluate(fusion, {"x": x}, {}))["y"], expected)


@pytest.mark.parametrize("op", ["cross_entropy", "nll_loss"])
def test_an_ignored_number_is_no_class_of_a_narrow_target(op: str) -> None:
    x = np.eye(3, 200, dtype=np.float32)
    target = np.array([156, 2, 0], np.uint8)
    losses = [
        by_name(evaluate(read({"y": call}, {"x": "f32[3, 200]", "t": kind}), given, {}))["y"]
        for call, kind, given in (
            (f"{op}(x, t)", "u8[3]", {"x": x, "t": target}),
            (f"{op}(x, t)", "i64[3]", {"x": x, "t": target.astype(np.int64)}),
        )
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 1.0, math.nan])
def test_no_text_is_written_of_what_a_type_does_not_hold(value: float) -> None:
    with pytest.raises(InternalError, match="is not a i32 value"):
        c_literal(value, dtypes.I32)


@pytest.mark.parametrize("dtype", [d for d in INTEGERS if d.kind == "int"], ids=str)
def test_the_lowest_integer_has_a_literal(dtype: DType) -> None:
    text = c_literal(dtype.integers.start, dtype).text
    assert f"{-dtype.integers.start}" not in text or dtype.bits < 32
