"""The pointwise scheduler: break points, vector widths, refusals, and its kernels on the host."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families import assert_builds, estimate, plan_of, refused_rule, run_on_host, text_of
from paths import TESTS

from fusec.ir.dtype import BF16, BOOL, F32, F64, I8, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import read_text
from fusec.run.arrays import StridedArray


def bias(rows: int, columns: int, dtype: DType = BF16) -> Fusion:
    builder = GraphBuilder("bias")
    b, h = builder.declare_dim("B", rows), builder.declare_dim("H", columns)
    x, w = builder.input("x", dtype, [b, h]), builder.input("w", F32, [h])
    y = builder.apply("silu", builder.apply("add", x, w))
    builder.output(builder.apply("cast", y, dtype=dtype))
    return builder.finish()


def flat(size: int, *dtypes: DType) -> Fusion:
    builder = GraphBuilder("flat")
    n = builder.declare_dim("N", size)
    for k, dtype in enumerate(dtypes):
        builder.output(builder.apply("add", builder.input(f"x{k}", dtype, [n]), 1))
    return builder.finish()


def tangent(size: int) -> Fusion:
    builder = GraphBuilder("tangent")
    x = builder.input("x", F64, [builder.declare_dim("N", size)])
    builder.output(builder.apply("atan", x))
    builder.output(builder.apply("cast", x, dtype=BOOL))
    return builder.finish()


def rope(rows: int = 4, half: int = 32) -> Fusion:
    builder = GraphBuilder("rope")
    x = builder.input("x", BF16, [rows, 2 * half])
    parts = [
        builder.apply("slice", x, start_indices=[0, k], end_indices=[rows, k + half])
        for k in (half, 0)
    ]
    turned = builder.apply("cat", [builder.apply("neg", parts[0]), parts[1]], dim=1)
    builder.output(builder.apply("add", x, turned))
    return builder.finish()


def windows() -> Fusion:
    builder = GraphBuilder("windows")
    x = builder.input("x", F32, [5, 12])
    y = builder.apply("pad", builder.apply("log", x), [1, 2, 0, 1], 0.5)
    builder.output(builder.apply("reshape", y, new_shape=[10, 9]))
    return builder.finish()


def increment(size: int = 1000) -> Fusion:
    builder = GraphBuilder("increment")
    x = builder.input("x", F32, [builder.declare_dim("N", size)])
    builder.output(builder.apply("add", x, 1.0), alias=x)
    return builder.finish()


def scale_per_channel() -> Fusion:
    """Elements, and beside them a value for each channel."""
    builder = GraphBuilder("channels")
    n = builder.declare_dim("N", 4)
    x, v = builder.input("x", BF16, [n, 6, 5, 16]), builder.input("v", F32, [6])
    scale = builder.apply("rsqrt", v)
    wide = builder.apply("broadcast", scale, is_broadcast_dim=[True, False, True, True])
    builder.output(scale)
    builder.output(builder.apply("cast", builder.apply("mul", x, wide), dtype=BF16))
    return builder.finish()


def names_of_the_template() -> Fusion:
    """Names that the template gives to variables of its own."""
    builder = GraphBuilder("column")
    row, column = builder.input("row", F32, [8, 16]), builder.input("column", F32, [16])
    (v,) = builder.call("add", [row, column], names=["v"])
    (chunk,) = builder.call("mul", [v, 2.0], names=["kVec"])
    builder.output(v)
    builder.output(chunk)
    return builder.finish()


def strides_as_names() -> Fusion:
    """An input called as another one's stride is in C."""
    builder = GraphBuilder("clash")
    x = builder.input("x", F32, [6, 8], contiguity=[False, True])
    other = builder.input("x_stride0", F32, [6, 8])
    builder.output(builder.apply("mul", x, other))
    return builder.finish()


REPRESENTATIVE: dict[str, Callable[[], Fusion]] = {
    "bias": lambda: bias(512, 1024),
    "odd": lambda: bias(33, 1001),
    "flat": lambda: flat(4097, F32, BF16),
    "f64": lambda: flat(1024, F64),
    "i8": lambda: flat(8192, I8),
    "rope": rope,
    "windows": windows,
    "increment": increment,
    "names": names_of_the_template,
    "strides": strides_as_names,
    "channels": scale_per_channel,
}


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_kernels_build_without_spills(name: str) -> None:
    assert_builds(plan_of("pointwise", REPRESENTATIVE[name]()))


@pytest.mark.parametrize(
    "make",
    [lambda: bias(3, 16), lambda: bias(3, 15), lambda: flat(300, F32), rope, windows, increment,
     names_of_the_template, strides_as_names, scale_per_channel],
)  # fmt: skip
def test_kernels_compute_the_fusion(make: Callable[[], Fusion], tmp_path: Path) -> None:
    run_on_host("pointwise", make(), tmp_path)


@pytest.mark.parametrize(
    ("fusion", "width", "break_point"),
    [
        (bias(512, 1024), 8, 0),
        (bias(512, 1020), 4, 1),
        (bias(512, 1001), 8, 1),  # vectors are shifted
        (flat(4096, F32), 4, 0),
        (flat(4096, BF16), 8, 0),
        (flat(4096, I8), 16, 0),
        (flat(4096, BOOL), 16, 0),
        (flat(4096, F64), 2, 0),
        (flat(4096, F64, I8), 8, 0),
        (tangent(4096), 4, 0),
    ],
)
def test_sixteen_bytes_where_rows_allow(fusion: Fusion, width: int, break_point: int) -> None:
    parameters = plan_of("pointwise", fusion).parameters
    assert (parameters.vector_width, parameters.break_point) == (width, break_point)


def turned(times: int) -> Fusion:
    builder = GraphBuilder("turned")
    x = builder.input("x", BF16, [builder.declare_dim("N", 4096)])
    y = builder.apply("cast", x, dtype=F32)
    for _ in range(times):
        y = builder.apply("sin", y)
    builder.output(builder.apply("cast", y, dtype=BF16))
    return builder.finish()


def test_much_work_per_element_is_not_repeated_for_many() -> None:
    widths = [plan_of("pointwise", turned(times)).parameters.vector_width for times in (5, 40, 120)]
    assert widths == [8, 2, 1]


def test_sizes_that_are_built_in_are_kept() -> None:
    assert plan_of("pointwise", bias(512, 1024)).specialised == {"H": 1024}
    assert plan_of("pointwise", flat(4096, F32)).specialised == {}


def test_the_row_count_stays_a_parameter() -> None:
    text = text_of(plan_of("pointwise", bias(512, 1024)))
    assert "fusec::i64 B" in text
    assert "i64 H" not in text


def test_a_large_tensor_gets_64_bit_addresses() -> None:
    assert plan_of("pointwise", bias(1 << 16, 1 << 16)).parameters.wide_index
    small = plan_of("pointwise", bias(1 << 10, 1 << 10))
    assert not small.parameters.wide_index
    assert any(g.relation == "<=" for g in small.guards)


def test_the_price_is_every_input_and_output_once() -> None:
    assert estimate("pointwise", bias(512, 1024)).bytes == 2 * 512 * 1024 * 2 + 1024 * 4


def refused(make: Callable[[GraphBuilder], Any]) -> Fusion:
    builder = GraphBuilder("refused")
    for value in make(builder):
        builder.output(value)
    return builder.finish()


def reduction(b: GraphBuilder) -> Any:
    return [b.apply("sum", b.input("x", F32, [4, 4]), dims=[0])]


def product(b: GraphBuilder) -> Any:
    return [b.apply("matmul", b.input("x", F32, [4, 4]), b.input("y", F32, [4, 4]))]


def domains(b: GraphBuilder) -> Any:
    return [b.apply("exp", b.input("x", F32, [4, 5])), b.apply("exp", b.input("y", F32, [7]))]


@pytest.mark.parametrize(
    ("make", "rule"), [(reduction, "operation"), (product, "operation"), (domains, "domain")]
)
def test_refusals(make: Callable[[GraphBuilder], Any], rule: str) -> None:
    assert refused_rule("pointwise", refused(make)) == rule


def test_what_is_the_same_along_axes_is_stored_once() -> None:
    plan = plan_of("pointwise", scale_per_channel())
    name = plan.fusion.outputs[0].value.name
    (where,) = re.findall(rf"if \((.*)\)\n *{name}\[", text_of(plan))
    assert where.count("< 1") >= 2


@pytest.mark.parametrize("row", [0, 1])
def test_a_position_is_loaded_for_every_element_that_asks_for_it(row: int, tmp_path: Path) -> None:
    case = TESTS / "regressions" / "rows_turned_and_chosen.yaml"
    inputs = {"i0": StridedArray(np.asarray([row], np.int64), (), ())}
    run_on_host("pointwise", read_text(case.read_text()), tmp_path, inputs)
