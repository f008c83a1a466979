"""Elementwise kernels on the GPU: every operation, every dtype, ranks and sizes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from gpu_check import DRY, check_on_gpu

from fusec.diagnostics import FusecError
from fusec.ir import dtype as dtypes
from fusec.ir.dtype import (
    BF16,
    BOOL,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
)
from fusec.ir.graph import Fusion, Value
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.reference.evaluate import evaluate

pytestmark = pytest.mark.gpu

FLOATS = (F32, F64, BF16, F16)
INTEGERS = (I64, I32, I16, I8, U64, U32, U16, U8)
POINTWISE = [n for n, op in TABLE.items() if op.family == "pointwise" and n != "cast"]
SIZES = (0, 1, 7, 33, 1000, 4097, 8192, 131072)


def integer_range(op: str, position: int, dtype: DType) -> tuple[int, int]:
    """Return values for which integers are defined: small powers, no shift past the width."""
    if "shift" in op:
        return (0, dtype.bits - 1) if position else (-50 if dtype.kind == "int" else 0, 50)
    if op == "ceilDiv":
        return (1, 50)
    if op == "pow":
        return (0, 3) if position else (1 if dtype.kind == "uint" else -4, 4)
    return (0 if dtype.kind == "uint" else -50, 50)


def every_dtype(op: str, size: int) -> Fusion | None:
    """Return a fusion that applies an operation in every dtype that it takes."""
    builder = GraphBuilder(f"op_{op}")
    extent = builder.declare_dim("N", size)
    results: list[Value] = []
    for dtype in (*FLOATS, *INTEGERS, BOOL):
        probe = GraphBuilder()
        kinds = [BOOL if p.name == "condition" else dtype for p in TABLE[op].operands]
        try:
            probe.apply(op, *(probe.input(f"x{k}", d, [4]) for k, d in enumerate(kinds)))
        except FusecError:
            continue
        operands: list[Value] = []
        for k, kind in enumerate(kinds):
            limits = integer_range(op, k, kind) if kind.kind in ("int", "uint") else (None, None)
            name = f"{dtype.name}_{k}"
            operands.append(builder.input(name, kind, [extent], low=limits[0], high=limits[1]))
        (result,) = builder.call(op, operands, names=[f"y_{dtype.name}"])
        assert isinstance(result, Value)
        results.append(result)
    for result in results:
        builder.output(result)
    return builder.finish() if results else None


@pytest.mark.parametrize("op", POINTWISE)
def test_every_operation_in_every_dtype(op: str) -> None:
    fusion = every_dtype(op, 4099)
    assert fusion is not None
    check_on_gpu(fusion, scheduler="pointwise")


SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0)
# nextafter: the reference steps in doubles.
UNSPECIAL = {"nextafter"}


@pytest.mark.parametrize("op", [n for n in POINTWISE if n not in UNSPECIAL])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_nan_and_infinity(op: str, dtype: DType) -> None:
    """Results are NaN or infinite exactly where the reference's are."""
    operands = [p for p in TABLE[op].operands if p.name != "condition"]
    table = np.array(list(itertools.product(SPECIAL, repeat=min(len(operands), 3))))
    columns = [table[:, min(k, table.shape[1] - 1)] for k in range(len(operands))]
    builder = GraphBuilder(f"special_{op}")
    given: list[Any] = []
    inputs: dict[str, Any] = {}
    for k, param in enumerate(TABLE[op].operands):
        if param.name == "condition":
            value, kind = np.arange(len(table)) % 3 > 0, BOOL
        else:
            value, kind = columns.pop(0).astype(dtype.numpy), dtype
        inputs[f"x{k}"] = value
        given.append(builder.input(f"x{k}", kind, [len(table)]))
    try:
        result = builder.apply(op, *given)
    except FusecError:
        return  # integers only
    builder.output(result)
    fusion = builder.finish()
    found = next(iter(check_on_gpu(fusion, inputs=inputs).outputs.values()))
    expected = next(iter(evaluate(fusion, inputs, fusion.hints).values()))
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
        return
    rows = [dict(zip(inputs, row, strict=True)) for row in zip(*inputs.values(), strict=True)]
    for name, test in (("nan", np.isnan), ("+inf", np.isposinf), ("-inf", np.isneginf)):
        differ = [
            f"{row}: {f}, expected {e}"
            for row, f, e in zip(rows, found, expected, strict=True)
            if test(f) != test(e)
        ]
        assert not differ, f"{name} of {op}:\n" + "\n".join(differ[:10])


@pytest.mark.parametrize("source", [*FLOATS, F8E4M3, F8E5M2, *INTEGERS, BOOL], ids=str)
def test_casts_to_every_dtype(source: DType) -> None:
    builder = GraphBuilder("casts")
    low, high = (0, 100) if source.kind == "uint" else (-100, 100)
    limits = (None, None) if source == BOOL else (low, high)
    x = builder.input("x", source, [1025], low=limits[0], high=limits[1])
    for target in (*FLOATS, F8E4M3, F8E5M2, I64, I32, I16, I8, BOOL):
        if target != source:
            builder.output(builder.apply("cast", x, dtype=target))
    if source.kind == "uint" or source == BOOL:
        for target in (U64, U32, U16, U8):
            if target != source:
                builder.output(builder.apply("cast", x, dtype=target))
    check_on_gpu(builder.finish(), scheduler="pointwise")


@pytest.mark.skipif(bool(DRY), reason="NumPy's fp8 types do not saturate")
@pytest.mark.parametrize("target", [F8E4M3, F8E5M2, BF16, F16], ids=str)
def test_rounding_of_special_values(target: DType) -> None:
    """Ties to even, subnormals, saturation of fp8, infinities and NaN."""
    tiny = [2.0**-k for k in range(1, 30)]
    values = [*tiny, 0.0, -0.0, 448.0, 464.0, 480.0, 1e5, 65504.0, 65520.0, 57344.0, 61440.0]
    values += [1 + 2.0**-k for k in range(1, 12)] + [1 + 3 * 2.0**-k for k in range(2, 12)]
    values += [np.inf, -np.inf, np.nan, 3.3e38, -3.4e38]
    x = np.array([*values, *(-v for v in values)], np.float32)
    builder = GraphBuilder("rounding")
    rounded = builder.apply("cast", builder.input("x", F32, [x.size]), dtype=target)
    builder.output(rounded)
    builder.output(builder.apply("cast", rounded, dtype=F32))
    check_on_gpu(builder.finish(), inputs={"x": x})


@pytest.mark.parametrize("dtype", [BF16, F16, F32, F64, I32, I64, I8, BOOL], ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_flat_sizes(size: int, dtype: DType) -> None:
    builder = GraphBuilder("flat")
    extent = builder.declare_dim("N", size)
    x, y = builder.input("x", dtype, [extent]), builder.input("y", dtype, [extent])
    builder.output(builder.apply("mul", builder.apply("add", x, y), y))
    check_on_gpu(builder.finish(), scheduler="pointwise" if size else None)


RANKS = [
    (), (1,), (5,), (1, 1), (3, 1), (1, 3), (33, 7), (2, 8, 16), (3, 5, 7), (2, 3, 4, 8),
    (1, 5, 1, 9), (2, 3, 2, 3, 2), (3, 0, 4), (4, 4096), (4096, 4), (513, 130), (300000, 2),
]  # fmt: skip


@pytest.mark.parametrize("shape", RANKS, ids=lambda s: "x".join(map(str, s)) or "scalar")
def test_ranks_and_broadcasts(shape: tuple[int, ...]) -> None:
    """A tensor with a broadcast along each axis in turn, and mixed dtypes."""
    builder = GraphBuilder("ranks")
    dims = [builder.declare_dim(f"D{k}", e) for k, e in enumerate(shape)]
    x = builder.input("x", BF16, dims)
    total: Any = builder.apply("cast", x, dtype=F32)
    for axis in range(len(shape)):
        row = builder.input(f"w{axis}", F32, [dims[axis]])
        places = {"shape": dims, "broadcast_dims": [axis]}
        total = builder.apply("add", total, builder.apply("broadcast_in_dim", row, **places))
    builder.output(builder.apply("mul", total, 0.5))
    builder.output(builder.apply("cast", total, dtype=F16))
    check_on_gpu(builder.finish())


@pytest.mark.parametrize("shape", [(64, 4096), (63, 4096), (64, 4097), (64, 24), (5, 131072)])
def test_rows_and_columns(shape: tuple[int, int]) -> None:
    """A vector along the rows and one along the columns: the 2-D break point."""
    builder = GraphBuilder("bias")
    dims = [builder.declare_dim("B", shape[0]), builder.declare_dim("H", shape[1])]
    x, w = builder.input("x", BF16, dims), builder.input("w", F32, [dims[1]])
    c = builder.input("c", F32, [dims[0]])
    column = builder.apply("broadcast", c, is_broadcast_dim=[False, True])
    y = builder.apply("mul", builder.apply("add", x, w), column)
    builder.output(builder.apply("cast", y, dtype=BF16))
    check_on_gpu(builder.finish(), scheduler="pointwise")


def test_scalar_inputs_of_every_kind() -> None:
    builder = GraphBuilder("scalars")
    x = builder.input("x", F32, [1000])
    for name, dtype, default in (
        ("f", F32, 1e-5), ("d", F64, 2.5), ("i", I64, 3), ("j", I32, -2), ("b", BOOL, True),
    ):  # fmt: skip
        scalar = builder.input(name, dtype, None, default=default)
        value = builder.apply("cast", scalar, dtype=F32) if dtype == BOOL else scalar
        builder.output(builder.apply("add", x, value))
    builder.output(builder.apply("mul", x, builder.apply("add", builder.find_value("f"), 1.0)))
    checked = check_on_gpu(builder.finish(), inputs={"f": 0.25, "i": -7})
    first = np.asarray(checked.inputs["x"]) + np.float32(0.25)
    np.testing.assert_allclose(next(iter(checked.outputs.values())), first, rtol=1e-6)


def test_constants_and_factories() -> None:
    builder = GraphBuilder("factories")
    n = builder.declare_dim("N", 777)
    x = builder.input("x", F32, [4, n])
    step = builder.apply("iota", n, 5, -2)
    builder.output(builder.apply("add", x, builder.apply("cast", step, dtype=F32)))
    builder.output(builder.apply("full", [3, n], 0.5, dtype=BF16))
    builder.output(builder.apply("full", [5], True))
    builder.output(builder.apply("iota", 4096))
    builder.output(builder.apply("where", builder.apply("gt", x, 0.0), float("-inf"), x))
    check_on_gpu(builder.finish())


@pytest.mark.skipif(bool(DRY), reason="needs a GPU")
def test_addresses_beyond_32_bits() -> None:
    """More than 2**31 elements: 64-bit addresses, the last rows are checked against NumPy."""
    builder = GraphBuilder("huge")
    rows, columns = builder.declare_dim("B", 2**15 + 1), builder.declare_dim("H", 2**16)
    x = builder.input("x", I8, [rows, columns])
    builder.output(builder.apply("add", x, 1))
    fusion = builder.finish()
    from gpu_check import options, the_device

    from fusec import driver
    from fusec.run.execute import execute

    compiled = driver.compile_fusion(fusion, options())
    data = np.arange(2**16, dtype=np.int64).astype(np.int8)
    given = np.broadcast_to(data, (2**15 + 1, 2**16)).copy()
    given[-1] = 7
    cubins = {name: a.cubin for (name, _), a in compiled.artifacts.items()}
    outputs = execute(the_device(), compiled.program.host, cubins, {"x": given}, fusion.hints)
    (found,) = outputs.values()
    np.testing.assert_array_equal(found[-1], 8)
    np.testing.assert_array_equal(found[::4099][:-1], given[::4099][:-1] + np.int8(1))


def test_dtypes_are_all_here() -> None:
    """A dtype that is added must be added to these tests."""
    refused = {"f4e2m1", "f8e8m0"}
    covered = {d.name for d in (*FLOATS, *INTEGERS, BOOL, F8E4M3, F8E5M2)}
    pairs = {"c64", "c128"}  # tests/gpu/test_gpu_complex.py
    assert covered | refused | pairs == set(dtypes.DTYPES)
