"""Segments of fusions that one rank runs: exchanges and placement stand between kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from divided import between, divided

from fusec import driver, lowering
from fusec.diagnostics import FusecError, InternalError, Unsupported
from fusec.dumps.nvfuser import segmented_fusion_text
from fusec.exact.bound import bound
from fusec.explain.query import describe
from fusec.explain.text import explanation
from fusec.hostir.instructions import Copy, For, Instruction
from fusec.hostir.program import HostProgram
from fusec.ir.dim import dim
from fusec.ir.graph import Fusion
from fusec.ir.sharding import Mesh
from fusec.ir.verify import verify
from fusec.ops.communication import (
    ALL_GATHER,
    ALL_REDUCE,
    RANK_SLICE,
    REDUCE_SCATTER,
    STREAM_SLICE,
    STREAM_STACK,
)
from fusec.options import CompileOptions
from fusec.passes.copy_unaligned import copy_unaligned
from fusec.schedule.host.communication import Exchanged, Placed, bytes_sent
from fusec.schedule.registry import schedulers
from fusec.segment.loops import loops
from fusec.segment.segmented import SegmentedFusion
from fusec.target import find
from fusec.target.table import FOLDER, Link

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
    return lowering.segment(lowering.optimise(fusion, OPTIONS), OPTIONS)


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
    plans = lowering.schedule(found, OPTIONS)
    assert plans[0].parameters == Placed("stream_slice", 0, "4")
    assert plans[2].parameters == Placed("stream_stack", 0, "4")


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
    largest = between(ALL_REDUCE, "p", axis="tp", ranks=4, reduction="max")
    found = segmented(divided(AROUND, MESH, q=largest))
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


# -- prices


def test_an_exchange_costs_what_a_rank_sends_and_its_latency() -> None:
    block = 1 << 20
    assert bytes_sent("all_gather", 4, block) == 3 * block
    assert bytes_sent("reduce_scatter", 4, 4 * block) == 3 * block
    assert bytes_sent("all_reduce", 4, 4 * block) == 6 * block
    assert bytes_sent("all_to_all", 4, 4 * block) == 3 * block
    assert bytes_sent("receive_slice", 4, 4 * block) == 3 * block
    (first, _) = (s.estimate for s in segmented(mlp()).segments if s.scheduler == "communication")
    assert first is not None
    assert (first.exchange, first.sent) == ("all_gather", 3 * 128 * 1024 * 2)
    link = H200.links["all_gather"]
    alone = link.least(3) + link.slowdown(3) * first.sent / (H200.link * link.reach)
    assert alone <= first.seconds(H200) <= 1.01 * alone + first.moved / H200.bandwidth
    assert first.bound_by(H200) == "latency"
    assert replace(first, sent=1 << 30).bound_by(H200) == "links"


def test_large_messages_are_sent_by_the_faster_protocol() -> None:
    link = Link(reach=0.5, latency=1e-5, bulk_reach=0.8, bulk_latency=1e-4)
    plain = replace(link, bulk_reach=0.0)
    assert link.moving(1e-5, 1) == plain.moving(1e-5, 1)
    whole = link.latency + link.moving(1e-2, 1)
    assert whole == pytest.approx(1e-4 + 1e-2 / 0.8)
    assert whole < plain.moving(1e-2, 1)


def test_explain_tells_of_exchanges() -> None:
    record = describe(segmented(mlp()), H200, peak_bytes=0)
    found = [s.exchange for s in record.segments if s.exchange is not None]
    sent = 3 * 128 * 1024 * 2
    assert [(e.kind, e.axis, e.ranks, e.reduction, e.sent_bytes) for e in found] == [
        ("all_gather", "tp", 4, "", sent),
        ("reduce_scatter", "tp", 4, "sum", sent),
    ]
    text = explanation(record)
    assert record.mesh == {"tp": 4}
    assert text.splitlines()[1].split(maxsplit=1)[1].startswith("4 (tp: 4); figures are per rank")
    assert "reduce_scatter (sum) over tp: each of 4 ranks sends 786 kB" in text
    assert "bound by latency (latency 25.2 us, links 3.78 us" in text
    assert sum(s.seconds for s in record.segments) == pytest.approx(record.seconds)
    loop = describe(segmented(divided(STREAM, xs=SLICE, y=STACK)), H200, peak_bytes=0)
    assert [s.iterations for s in loop.segments] == [4, 4, 4]
    assert "4 times, once per slice" in explanation(loop)
    assert loop.bytes == 4 * (16 * 256 + 256 * 256 + 16 * 256) * 2


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("links = 3", "`links` must have a table per kind"),
        ("[links.all_gather]\nreach = 0.8", "`links.all_gather` has `reach` and `latency`"),
        ("[links.all_gather]\nreach = 0.8\nlatency = -1", "`links.all_gather` has"),
    ],
)
def test_target_files_say_what_links_do(tmp_path: Path, table: str, message: str) -> None:
    given = (FOLDER / "sm_90a.toml").read_text().partition("# What exchanges")[0]
    path = tmp_path / "sm_90a.toml"
    path.write_text(f"{table}\n{given}" if table.startswith("links") else f"{given}\n{table}\n")
    with pytest.raises(FusecError, match=re.escape(message)):
        find("sm_90a", tmp_path)
    path.write_text(given + "\n[links.all_gather]\nreach = 0.5\nlatency = 1e-6\n")
    found = find("sm_90a", tmp_path / ".")
    assert found.links["all_gather"] == Link(0.5, 1e-6)
    assert found.links["all_reduce"] == H200.links["all_reduce"]


# -- layouts


def test_what_does_not_lie_as_exchanges_need_it_is_copied() -> None:
    text = """
fusion: f
inputs: {x: {type: "f32[8, 64]", strides: [1, 8]}, w: "f32[8, 64]", g: "f32[32, 64]"}
ops:
  - y = mul(g, 2.0)
outputs: [y]
"""
    fusion = divided(text, MESH, g=between(ALL_GATHER, "x", axis="tp", ranks=4))
    changed, copies = copy_unaligned(fusion)
    assert [(c.copy, c.value, c.because) for c in copies] == [("x_copy", "x", "`x` is not dense")]
    found = segmented(fusion)
    assert [k for k, _ in kinds(found)][1:] == ["communication", "pointwise"]
    assert any(d.action == "copy" and d.subject == ("x", "x_copy") for d in found.decisions)
    dense = divided(text, MESH, g=between(ALL_GATHER, "w", axis="tp", ranks=4))
    assert copy_unaligned(dense) == (dense, [])
    verify(changed)


PARTS = """
fusion: parts
inputs: {x: "f32[16, 28]", xs: "f32[SLICE]"}
ops:
  - h = relu(xs)
outputs: [h]
"""


@pytest.mark.parametrize(("axis", "parts"), [(0, 4), (0, 16), (1, 4), (1, 7)])
def test_parts_are_computed_in_their_place(axis: int, parts: int) -> None:
    """Also those of 7 elements that are not dense: no vector fits into such rows."""
    found = segmented(sliced(PARTS, (16, 28), axis, parts))
    kernel = next(s for s in found.segments if s.scheduler == "pointwise")
    (entry,), (output,) = kernel.fusion.inputs, kernel.fusion.outputs
    assert entry.strides == output.strides == (dim(28), dim(1))
    plans = lowering.schedule(found, OPTIONS)
    assert [p.parameters.copied for p in plans if isinstance(p.parameters, Placed)] == [False] * 2


def sliced(text: str, shape: tuple[int, ...], axis: int, parts: int) -> Fusion:
    extents = [e // parts if k == axis else e for k, e in enumerate(shape)]
    text = text.replace("SLICE", ", ".join(map(str, extents)))
    how = {"dim": axis, "parts": dim(parts)}
    return divided(text, xs=between(STREAM_SLICE, "x", **how), y=between(STREAM_STACK, "h", **how))


def test_dense_parts_of_odd_sizes_have_memory_of_their_own() -> None:
    text = PARTS.replace("16, 28", "16, 7")
    program = driver.Compilation(sliced(text, (16, 7), 0, 16), OPTIONS)
    (kernel,) = [s for s in program.segmented.segments if s.scheduler == "pointwise"]
    assert [o.strides for o in kernel.fusion.outputs] == [None]
    plans = [p.parameters for p in program.plans if isinstance(p.parameters, Placed)]
    assert [p.copied for p in plans] == [True, True]
    copies = [i for i in instructions_of(program.host) if isinstance(i, Copy)]
    assert [(c.target, c.source) for c in copies] == [("xs", "xs.part"), ("h.part", "h")]
    slices = program.host.buffer["h.slices"]
    assert slices.strides[0].value * slices.dtype.size % 16 == 0


def instructions_of(host: HostProgram) -> Iterator[Instruction]:
    for instruction in host.instructions:
        yield from instruction.body if isinstance(instruction, For) else (instruction,)


def test_no_exact_bound_for_exchanges() -> None:
    with pytest.raises(Unsupported, match="divided over ranks or streams"):
        bound(mlp(), schedulers(), H200)


def test_a_pin_holds_nothing_of_two_loops() -> None:
    text = STREAM.replace("gelu(linear(xs, w))", "gelu(linear(xs, v))")
    text = text.replace("ops:", "ops:\n  - v = relu(w)") + "segments: {s: [v, h]}\n"
    with pytest.raises(FusecError, match="contains `v` and `linear_1`, which run 4 times and once"):
        segmented(divided(text, xs=SLICE, y=STACK))


def test_what_runs_more_often_is_no_part_of_what_runs_once() -> None:
    text = STREAM.replace("gelu(linear(xs, w))", "add(xs, v)").replace("256, 256", "16, 256")
    found = segmented(divided(text.replace("ops:", "ops:\n  - v = sin(w)"), xs=SLICE, y=STACK))
    assert [(s.scheduler, s.iterations) for s in found.segments] == [
        *(("pointwise", 1), ("placement", 4), ("pointwise", 4), ("placement", 4)),
    ]
    assert any(d.because == "they run 4 times and once" for d in found.decisions)
