"""Row-persistent kernels: where a row stays, refusals, and the kernels on the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families import assert_builds, estimate, plan_of, refused_rule, run_on_host, text_of

from fusec.ir.dtype import BF16, BOOL, F16, F32, F64, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import read_text
from fusec.schedule.rows.domain import PhasedPlan


def softmax(dtype: DType, rows: int, columns: int, op: str = "softmax") -> Fusion:
    builder = GraphBuilder(op)
    b, h = builder.declare_dim("B", rows), builder.declare_dim("H", columns)
    x = builder.input("x", dtype, [b, h])
    y = builder.apply(op, builder.apply("cast", x, dtype=F32) if dtype.is_half else x, 1)
    builder.output(builder.apply("cast", y, dtype=dtype) if dtype.is_half else y)
    return builder.finish()


def layer_norm(dtype: DType, rows: int, columns: int) -> Fusion:
    builder = GraphBuilder("layer_norm")
    b, h = builder.declare_dim("B", rows), builder.declare_dim("H", columns)
    x = builder.input("x", dtype, [b, h])
    w, bias = builder.input("w", F32, [h]), builder.input("b", F32, [h])
    xf = builder.apply("cast", x, dtype=F32)
    var, mean = builder.call("var_mean", [xf], {"dims": [1], "correction": 0, "keepdim": True})
    rstd = builder.apply("rsqrt", builder.apply("add", var, 1e-5))
    y = builder.apply("mul", builder.apply("sub", xf, mean), rstd)
    y = builder.apply("add", builder.apply("mul", y, w), bias)
    builder.output(builder.apply("cast", y, dtype=dtype))
    builder.output(builder.apply("squeeze", mean, dims=[1]))
    builder.output(builder.apply("squeeze", rstd, dims=[1]))
    return builder.finish()


def masked() -> Fusion:
    builder = GraphBuilder("masked")
    b, h, q, k = (builder.declare_dim(n, e) for n, e in zip("BHQK", (2, 2, 3, 40), strict=True))
    x, keep = builder.input("x", BF16, [b, h, q, k]), builder.input("keep", BOOL, [b, k])
    mask = builder.apply("broadcast", keep, is_broadcast_dim=[False, True, True, False])
    y = builder.apply(
        "softmax", builder.apply("where", mask, builder.apply("cast", x, dtype=F32), -1e9), -1
    )
    builder.output(builder.apply("cast", y, dtype=BF16))
    return builder.finish()


def channels() -> Fusion:
    """Batch norm in NCHW: each row is a channel, gathered over images."""
    builder = GraphBuilder("channels")
    shape = [builder.declare_dim(n, e) for n, e in zip("NCS", (4, 3, 50), strict=True)]
    x = builder.input("x", F16, shape)
    xf = builder.apply("cast", x, dtype=F32)
    var, mean = builder.call("var_mean", [xf], {"dims": [0, 2], "correction": 0, "keepdim": True})
    rstd = builder.apply("rsqrt", builder.apply("add", var, 1e-5))
    builder.output(builder.apply("mul", builder.apply("sub", xf, mean), rstd))
    return builder.finish()


def in_place() -> Fusion:
    builder = GraphBuilder("in_place")
    x = builder.input("x", F32, [builder.declare_dim("B", 6), builder.declare_dim("H", 72)])
    builder.output(builder.apply("softmax", x, 1), alias=x)
    return builder.finish()


def padded() -> Fusion:
    """A long row whose bounds are tested, by quotients and remainders, in each phase."""
    builder = GraphBuilder("padded")
    x = builder.input("x", F32, [4, 128, 128])
    y = builder.apply("pad", x, pad_widths=[0, 5, -1, 1, 0, 0], value=0)
    mean = builder.apply("mean", y, dims=[1, 2], keepdim=True)
    builder.output(builder.apply("tril", builder.apply("sub", y, mean), 2))
    return builder.finish()


@pytest.mark.parametrize("columns", [64, 1001, 4096, 8192, 32768, 65536])
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_softmax_builds_without_spills(columns: int, dtype: DType) -> None:
    assert_builds(plan_of("inner_persistent", softmax(dtype, 4096, columns)))


@pytest.mark.parametrize("columns", [768, 4097, 8192, 16384, 36_873, 300_000])
def test_layer_norm_builds_without_spills(columns: int) -> None:
    assert_builds(plan_of("inner_persistent", layer_norm(BF16, 256, columns)))


@pytest.mark.parametrize("make", [masked, channels, in_place, padded])
def test_others_build_without_spills(make: Callable[[], Fusion]) -> None:
    assert_builds(plan_of("inner_persistent", make()))


SMALL: dict[str, Callable[[], Fusion]] = {
    "softmax": lambda: softmax(BF16, 5, 136),
    "odd": lambda: softmax(F32, 3, 77, "log_softmax"),
    "short": lambda: softmax(F32, 33, 5),
    "two": lambda: softmax(F64, 3, 2),
    "norm": lambda: layer_norm(BF16, 3, 520),
    "masked": masked,
    "channels": channels,
    "in place": in_place,
    "many chunks": lambda: layer_norm(F16, 1, 4104),
}


@pytest.mark.parametrize("name", SMALL)
def test_kernels_compute_the_fusion(name: str, tmp_path: Path) -> None:
    run_on_host("inner_persistent", SMALL[name](), tmp_path)


GATED = """\
fusion: gated
inputs: {x: "bf16[3, 1032]", y: "bf16[3, 1032]"}
ops:
  - wide = cast(x, f32)
  - h = add(mul(sigmoid(wide), cast(y, f32)), cast(y, f32))
  - scale = rsqrt(sum(mul(h, h), dims=[1], keepdim=true))
  - z = mul(h, scale)
outputs: [z]
"""
PARTS = """\
fusion: parts
inputs: {x: "bf16[3, 1032]"}
ops:
  - power = exp(cast(x, f32))
  - left = mul(power, 0.5)
  - right = add(power, 1.0)
  - scale = rsqrt(sum(mul(left, right), dims=[1], keepdim=true))
  - y = mul(left, scale)
  - z = mul(right, scale)
outputs: [y, z]
"""


@pytest.mark.parametrize(("text", "kept"), [(GATED, "h"), (PARTS, "power")])
def test_what_is_made_of_dear_values_stays_where_it_is_less(
    text: str, kept: str, tmp_path: Path
) -> None:
    fusion = read_text(text)
    plan = plan_of("inner_persistent", fusion)
    assert isinstance(plan, PhasedPlan)
    assert [i.name for i, _ in plan.phases.kept] == [kept]
    assert not plan.phases.cached
    run_on_host("inner_persistent", fusion, tmp_path)


@pytest.mark.parametrize(
    ("columns", "dtype", "storage"),
    [(1024, BF16, "registers"), (8192, BF16, "registers"), (1 << 20, BF16, "none"),
     (50_001, F32, "shared"), (50_000, F32, "ring"), (32_768, BF16, "ring")],
)  # fmt: skip
def test_a_row_stays_as_near_as_it_fits(columns: int, dtype: DType, storage: str) -> None:
    plan = plan_of("inner_persistent", softmax(dtype, 64, columns))
    assert plan.parameters.storage == storage
    kernel = plan.kernels[0]
    assert (kernel.shared_bytes > 0) == (storage in ("shared", "ring"))


def test_a_row_that_does_not_fit_costs_another_reading() -> None:
    near, far = (estimate("inner_persistent", softmax(F32, 8, n)) for n in (4096, 1 << 20))
    assert near.bytes == 2 * 8 * 4096 * 4
    assert far.bytes > 2 * 8 * (1 << 20) * 4


def test_the_variance_takes_two_passes() -> None:
    """The row is on chip, so that the mean comes first and then the squared distances."""
    text = text_of(plan_of("inner_persistent", layer_norm(BF16, 64, 1024)))
    assert "Welford" not in text


def test_blocks_are_whole_warps_and_cover_a_row() -> None:
    for rows in (1, 3, 1000):
        for columns in (2, 7, 33, 256, 4097, 20_000, 200_001):
            plan = plan_of("inner_persistent", softmax(F32, rows, columns))
            p, block = plan.parameters, plan.kernels[0].block
            threads = int(np.prod(block))
            assert threads % 32 == 0
            assert threads <= 1024
            own = columns % p.vector_width if p.shifted else 0
            assert p.threads_x * p.chunks * p.vector_width * p.cluster >= columns - own


def refusal(make: Callable[[GraphBuilder, Any], Any], *, alias: bool = False) -> Fusion:
    builder = GraphBuilder("refused")
    x = builder.input("x", F32, [16, 16])
    for value in make(builder, x):
        builder.output(value, alias=x if alias else None)
    return builder.finish()


def two_sets(b: GraphBuilder, x: Any) -> Any:
    rows, columns = (b.apply("sum", x, dims=[d], keepdim=True) for d in (0, 1))
    return [b.apply("add", b.apply("add", x, rows), columns)]


def only_results(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("sum", x, dims=[1])]


def nothing(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("exp", x)]


def turned(b: GraphBuilder, x: Any) -> Any:
    total = b.apply("sum", x, dims=[1], keepdim=True)
    return [b.apply("add", b.apply("add", x, total), b.apply("permute", x, dims=[1, 0]))]


@pytest.mark.parametrize(
    ("fusion", "rule"),
    [
        (refusal(two_sets), "reduction_axes"),
        (refusal(only_results), "persistence"),
        (refusal(nothing), "no reduction"),
        (refusal(turned, alias=True), "in_place"),
        (softmax(F32, 0, 8), "empty"),
    ],
    ids=["two sets", "results", "nothing", "in place", "empty"],
)
def test_refusals(fusion: Fusion, rule: str) -> None:
    assert refused_rule("inner_persistent", fusion) == rule


def across_memory() -> Fusion:
    builder = GraphBuilder("across")
    x = builder.input("x", F32, [24, 40], stride_order=[0, 1])
    builder.output(builder.apply("softmax", x, dim=1))
    return builder.finish()


def test_rows_need_not_run_along_memory(tmp_path: Path) -> None:
    run_on_host("inner_persistent", across_memory(), tmp_path)
