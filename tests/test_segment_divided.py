"""Segments of fusions that one rank runs: exchanges and placement stand between kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from divided import between, divided

from fusec import driver
from fusec.diagnostics import InternalError
from fusec.dumps.nvfuser import segmented_fusion_text
from fusec.ir.dim import dim
from fusec.ir.graph import Fusion
from fusec.ir.sharding import Mesh
from fusec.ops.communication import (
    ALL_GATHER,
    ALL_REDUCE,
    RANK_SLICE,
    REDUCE_SCATTER,
    STREAM_SLICE,
    STREAM_STACK,
)
from fusec.options import CompileOptions
from fusec.schedule.host import Exchanged, Placed
from fusec.segment.loops import loops
from fusec.segment.segmented import SegmentedFusion
from fusec.target import find

H200 = find("sm_90a")
MESH = Mesh((("tp", 4),), (0, 1, 2, 3))
OPTIONS = CompileOptions()

MLP = """
fusion: mlp
inputs:
  x: bf16[128, 1024]
  w1: bf16[512, 1024]
  w2: bf16[1024, 512]
  g: bf16[1024]
  full: bf16[512, 1024]
  part: bf16[128, 1024]
ops:
  - xf = cast(x, f32)
  - r = rsqrt(add(mean(mul(xf, xf), dims=[1], keepdim=true), 1e-5))
  - n = cast(mul(mul(xf, r), g), bf16)
  - h = silu(linear(full, w1))
  - o = linear(h, w2)
  - y = add(part, x)
outputs: [y]
"""
GATHER = between(ALL_GATHER, "n", axis="tp", ranks=4)
SCATTER = between(REDUCE_SCATTER, "o", axis="tp", ranks=4)


def mlp() -> Fusion:
    return divided(MLP, MESH, full=GATHER, part=SCATTER)


def segmented(fusion: Fusion) -> SegmentedFusion:
    return driver.segment(driver.optimise(fusion, OPTIONS), OPTIONS)


def kinds(found: SegmentedFusion) -> list[tuple[str, tuple[str, ...]]]:
    """Return each segment's scheduler and what it makes."""
    return [(s.scheduler, tuple(o.value.name for o in s.fusion.outputs)) for s in found.segments]


def test_exchanges_stand_between_kernels_that_stay_fused() -> None:
    assert kinds(segmented(mlp())) == [
        ("inner_persistent", ("n",)),
        ("communication", ("full",)),
        ("matmul", ("h",)),
        ("matmul", ("o",)),
        ("communication", ("part",)),
        ("pointwise", ("y",)),
    ]


def test_plans_of_exchanges_say_what_they_are_and_have_no_text() -> None:
    program = driver.Compilation(mlp(), OPTIONS)
    plans = [p for p in program.plans if p.scheduler == "communication"]
    expected = (Exchanged("all_gather", "tp", 4), Exchanged("reduce_scatter", "tp", 4, "sum"))
    assert tuple(p.parameters for p in plans) == expected
    texts = [len(s) for s in program.sources]
    assert texts == [1, 0, 1, 1, 0, 1]


STREAM = """
fusion: stream
inputs: {x: "bf16[64, 256]", w: "bf16[256, 256]", xs: "bf16[16, 256]"}
ops:
  - h = gelu(linear(xs, w))
outputs: [h]
"""
SLICE = between(STREAM_SLICE, "x", dim=0, parts=dim(4))
STACK = between(STREAM_STACK, "h", dim=0, parts=dim(4))


def test_a_loop_over_slices_is_placement_around_a_kernel_that_runs_once_for_each() -> None:
    found = segmented(divided(STREAM, xs=SLICE, y=STACK))
    assert kinds(found) == [("placement", ("xs",)), ("matmul", ("h",)), ("placement", ("y",))]
    assert [s.iterations for s in found.segments] == [4, 4, 4]
    estimate = found.segments[1].estimate
    assert estimate is not None
    assert found.seconds(H200) == 4 * estimate.seconds(H200)
    plans = driver.schedule(found, OPTIONS)
    assert plans[0].parameters == Placed("stream_slice", 0, dim(4))
    assert plans[2].parameters == Placed("stream_stack", 0, dim(4))


AROUND = """
fusion: around
inputs: {x: "f32[64, 256]", p: "f32[64, 256]", q: "f32[64, 256]"}
ops:
  - a = relu(x)
  - b = exp(x)
  - y = mul(sub(a, b), tanh(b))
  - z = mul(q, 2.0)
outputs: [y, z]
"""


def test_kernels_on_both_sides_of_an_exchange_are_one_where_no_path_runs_through_it() -> None:
    fusion = divided(AROUND, MESH, q=between(ALL_REDUCE, "p", axis="tp", ranks=4))
    found = segmented(fusion)
    assert sorted(k for k, _ in kinds(found)) == ["communication", "pointwise", "pointwise"]
    (whole,) = [s for s in found.segments if any(o.value.name == "y" for o in s.fusion.outputs)]
    assert {n.op.name for n in whole.nodes} >= {"relu", "exp", "sub", "mul"}


def test_equal_exchanges_are_one() -> None:
    text = AROUND.replace("tanh(b)", "q2").replace(
        'q: "f32[64, 256]"', 'q: "f32[64, 256]", q2: "f32[64, 256]"'
    )
    reduced = between(ALL_REDUCE, "p", axis="tp", ranks=4)
    found = segmented(divided(text, MESH, q=reduced, q2=reduced))
    assert [k for k, _ in kinds(found)].count("communication") == 1
    other = between(ALL_REDUCE, "p", axis="tp", ranks=4, reduction="max")
    found = segmented(divided(text, MESH, q=reduced, q2=other))
    assert [k for k, _ in kinds(found)].count("communication") == 2


def test_nvfuser_names_of_such_segments() -> None:
    text = segmented_fusion_text(segmented(mlp()), "head")
    assert text.count("g{(communication)") == 2
    text = segmented_fusion_text(segmented(divided(STREAM, xs=SLICE, y=STACK)), "2024")
    assert text.count("g{(expr_eval)") == 2


def test_loops_of_different_numbers_do_not_meet() -> None:
    text = STREAM.replace("ops:", "ops:\n  - o = add(xs, ys)").replace(
        "xs:", 'ys: "bf16[16, 256]", xs:'
    )
    other = divided(text, xs=SLICE, ys=between(RANK_SLICE, "x", dim=0, parts=dim(4), axis="tp"))
    assert {str(n) for n in loops(other).values()} == {"4"}
    (node,) = [n for n in other.nodes if n.op is RANK_SLICE]
    wrong = replace(node, op=STREAM_SLICE, attributes={"dim": 0, "parts": dim(2)})
    nodes = tuple(wrong if n is node else n for n in other.nodes)
    with pytest.raises(InternalError, match="slices of loops of 2 and 4"):
        loops(replace(other, nodes=nodes))
