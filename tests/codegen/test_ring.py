"""Rows that come through a ring in shared memory, over clusters: numbers, races, choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cuda_on_cpu import build_all, run_plan
from families import GPU, assert_builds, plan_of
from test_inner_persistent import across_memory, in_place, layer_norm, softmax
from test_races import wrong

from fusec import target
from fusec.codegen.dispatch import plan_sources
from fusec.codegen.rows.ring import view as plan_view
from fusec.ir.dtype import BF16, F16, F32, F64, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs
from fusec.schedule.plan import KernelPlan
from fusec.schedule.registry import find_scheduler

SMALL = replace(GPU, clusters={1: 2, 2: 2, 4: 2, 8: 1, 16: 1})
"""With places for few clusters, so that each takes several rows."""


def ring(fusion: Fusion, **settings: Any) -> KernelPlan:
    """Return a plan with a ring, of which some fields are set."""
    family: Any = find_scheduler("inner_persistent")
    return family.build(fusion, SMALL, {"storage": "ring", **settings})


def softmax_backward() -> Fusion:
    """Two rows come from memory, and a third that one phase reads."""
    builder = GraphBuilder("softmax_backward")
    shape = [builder.declare_dim("B", 7), builder.declare_dim("H", 512)]
    y, dy, more = (builder.input(name, BF16, shape) for name in ("y", "dy", "more"))
    wide = [builder.apply("cast", value, dtype=F32) for value in (y, dy)]
    product = builder.apply("mul", *wide)
    total = builder.apply("sum", product, dims=[1], keepdim=True)
    result = builder.apply("sub", product, builder.apply("mul", wide[0], total))
    builder.output(builder.apply("cast", builder.apply("add", result, more), dtype=BF16))
    builder.output(builder.apply("squeeze", total, dims=[1]))
    return builder.finish()


def several() -> Fusion:
    """Reductions of several kinds in one phase, and of several phases."""
    builder = GraphBuilder("several")
    x = builder.input("x", F32, [builder.declare_dim("B", 5), builder.declare_dim("H", 384)])
    low, high = (builder.apply(op, x, dims=[1], keepdim=True) for op in ("min", "max"))
    moved = builder.apply("div", builder.apply("sub", x, low), builder.apply("sub", high, low))
    place = builder.apply("argmax", moved, dims=[1], keepdim=True)
    wrong = builder.apply("any", builder.apply("gt", moved, 2.0), dims=[1], keepdim=True)
    y = builder.apply("where", wrong, 0.0, builder.apply("add", moved, place))
    builder.output(y)
    return builder.finish()


def heads() -> Fusion:
    """Rows of three axes, of which one is sliced: they do not follow one another in memory."""
    builder = GraphBuilder("heads")
    x = builder.input("x", F16, [3, 4, 256])
    part = builder.apply("slice", x, start_indices=[0, 1, 0], end_indices=[3, 3, 256])
    builder.output(builder.apply("softmax", part, 2))
    return builder.finish()


def batch_norm(dtype: DType, images: int, channels: int, pixels: int, **names: str) -> Fusion:
    """Rows that are channels, made of a piece for each image; written in place."""
    builder = GraphBuilder("batch_norm")
    sizes = zip("NCS", (images, channels, pixels), strict=True)
    shape = [builder.declare_dim(n, e) for n, e in sizes]
    x = builder.input(names.get("x", "x"), dtype, shape)
    weight = builder.input(names.get("w", "w"), dtype, shape[1:2])
    xf = builder.apply("cast", x, dtype=F32)
    var, mean = builder.call("var_mean", [xf], {"dims": [0, 2], "correction": 0, "keepdim": True})
    rstd = builder.apply("rsqrt", builder.apply("add", var, 1e-5))
    y = builder.apply("mul", builder.apply("sub", xf, mean), rstd)
    wide = builder.apply("broadcast", weight, is_broadcast_dim=[True, False, True])
    builder.output(builder.apply("cast", builder.apply("mul", y, wide), dtype=dtype), alias=x)
    return builder.finish()


def batch_norm_backward() -> Fusion:
    """Two rows made of pieces, of two lengths: a slice of one lies in more pieces."""
    builder = GraphBuilder("batch_norm_backward")
    shape = [6, 5, 4, 64]
    more, dy = builder.input("more", F16, [6, 5, 8, 64]), builder.input("dy", BF16, shape)
    part = builder.apply("slice", more, start_indices=[0, 0, 2, 0], end_indices=[6, 5, 6, 64])
    x, g = (builder.apply("cast", value, dtype=F32) for value in (part, dy))
    along = builder.apply("mean", builder.apply("mul", x, g), dims=[0, 2, 3], keepdim=True)
    builder.output(builder.apply("sub", g, builder.apply("mul", x, along)))
    return builder.finish()


def halves() -> Fusion:
    """Pieces of two outer axes that do not follow one another, in which images are halved."""
    builder = GraphBuilder("halves")
    x = builder.input("x", BF16, [3, 5, 4, 3, 32])
    part = builder.apply("slice", x, start_indices=[0, 1, 0, 0, 0], end_indices=[3, 3, 4, 3, 32])
    total = builder.apply(
        "sum", builder.apply("cast", part, dtype=F32), dims=[0, 1, 3, 4], keepdim=True
    )
    builder.output(builder.apply("sub", part, total))
    return builder.finish()


def group_norm_backward(
    images: int = 6, groups: int = 2, parts: int = 4, pixels: int = 256
) -> Fusion:
    """Weights that both phases load from memory, each for a part of a row."""
    builder = GraphBuilder("group_norm_backward")
    dy = builder.input("dy", BF16, [images, groups, parts, pixels])
    weight = builder.input("w", F32, [groups, parts])
    wide = builder.apply("broadcast", weight, is_broadcast_dim=[True, False, False, True])
    scaled = builder.apply("mul", builder.apply("cast", dy, dtype=F32), wide)
    mean = builder.apply("mean", scaled, dims=[2, 3], keepdim=True)
    builder.output(builder.apply("cast", builder.apply("sub", scaled, mean), dtype=BF16))
    return builder.finish()


CASES: dict[str, tuple[Callable[[], Fusion], dict[str, Any]]] = {
    "softmax": (lambda: softmax(BF16, 17, 512), {"groups": 2, "slots": 2, "threads_x": 32}),
    "one group": (lambda: softmax(F32, 13, 256), {"groups": 1, "slots": 3, "threads_x": 64}),
    "plain": (lambda: softmax(BF16, 7, 512), {"online": False, "groups": 3, "slots": 3,
                                              "threads_x": 64}),
    "cluster": (lambda: softmax(BF16, 9, 512), {"cluster": 2, "groups": 2, "slots": 4,
                                                "threads_x": 32}),
    "cluster of 4": (lambda: layer_norm(BF16, 5, 1024), {"cluster": 4, "groups": 1, "slots": 2,
                                                         "threads_x": 32}),
    "cluster of 16": (lambda: softmax(F16, 3, 4096), {"cluster": 16, "groups": 2, "slots": 2,
                                                      "threads_x": 96}),
    "norm": (lambda: layer_norm(F16, 5, 520), {"groups": 2, "slots": 6, "threads_x": 96}),
    "doubles": (lambda: softmax(F64, 3, 64), {"groups": 2, "slots": 2, "threads_x": 32}),
    "three rows": (softmax_backward, {"groups": 2, "slots": 2, "threads_x": 32}),
    "three rows, cluster": (softmax_backward, {"groups": 2, "slots": 4, "threads_x": 32,
                                               "cluster": 2}),
    "several": (several, {"groups": 2, "slots": 2, "threads_x": 32}),
    "several, cluster": (several, {"groups": 2, "slots": 2, "threads_x": 32, "cluster": 4}),
    "heads": (heads, {"groups": 2, "slots": 2, "threads_x": 32}),
    "kept columns": (lambda: layer_norm(BF16, 7, 512), {"groups": 2, "slots": 2, "threads_x": 32,
                                                        "keep_columns": True}),
    "kept columns, cluster": (lambda: layer_norm(F16, 5, 512), {
        "groups": 1, "slots": 2, "threads_x": 32, "cluster": 2, "keep_columns": True}),
    "in place": (in_place, {"groups": 2, "slots": 2, "threads_x": 32}),
    "pieces": (lambda: batch_norm(BF16, 6, 7, 40), {"groups": 2, "slots": 4, "threads_x": 32}),
    "pieces, cluster": (lambda: batch_norm(F16, 8, 5, 64, x="piece", w="at"), {
        "groups": 2, "slots": 2, "threads_x": 32, "cluster": 4}),
    "two rows of pieces": (batch_norm_backward, {"groups": 2, "slots": 2, "threads_x": 32,
                                                 "cluster": 2}),
    "pieces along two axes": (halves, {"groups": 1, "slots": 2, "threads_x": 32, "cluster": 4}),
    "weights of parts": (group_norm_backward, {"groups": 2, "slots": 2, "threads_x": 32,
                                               "cluster": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_the_fusion(name: str, tmp_path: Path) -> None:
    make, settings = CASES[name]
    fusion = make()
    plan = ring(fusion, **settings)
    (function,) = build_all([(s.kernel, s.text) for s in plan_sources(plan)], tmp_path)
    inputs, found = random_inputs(fusion, fusion.hints), list[dict[str, bytes]]()
    for seed in range(3):
        order: dict[str, Any] = {"seed": seed, "backwards": seed == 1, "at_once": seed == 2}
        outputs = run_plan(plan, inputs, tmp_path, built=[function], **order)
        verdict = compare(fusion, fusion.hints, inputs, outputs)
        assert verdict.ok, f"{plan.parameters}\n{verdict.text()}"
        found.append({n: o.tobytes() for n, o in outputs.items()})
    assert found[0] == found[1] == found[2]


MUTANTS = {
    "the producer does not wait": ("softmax", "        empty[slot].wait(parity);\n", ""),
    "nobody waits for a row": ("softmax", "      full[slot].wait(parity);\n", ""),
    "fewer bytes": ("three rows", "kOwn * 2 + kOwn * 2 + kOwn * 2);", "kOwn * 2 + kOwn * 2);"),
    "the lanes of a warp do not meet": ("softmax", "      __syncwarp();\n      if", "      if"),
    "the barrier of a group": ("norm", "named_barrier_sync<kWarps * 32>(place / 2 + 1);", ""),
    "groups share a barrier": ("norm", "<kWarps * 32>(place / 2 + 1)", "<kWarps * 32>(1)"),
    "no turns": ("one group", "2 * group + turn", "2 * group"),
    "groups share a place": ("norm", "2 * group + turn", "turn"),
    "the wait for parts": ("cluster", "arrived[place].wait_cluster(parity);", ""),
    "one barrier for both turns": ("cluster", "arrived[place]", "arrived[place / 2 * 2]"),
    "the turn's parity": ("cluster", "turn_parity ^= turn == 0;", ""),
    "pieces in one place": ("pieces", "(slot * kOwn + piece * kPiece)", "(slot * kOwn)"),
    "fewer pieces": ("pieces, cluster", "piece < kOwn / kPiece", "piece < kOwn / kPiece - 1"),
    "columns are not waited for": ("kept columns", "columns[0].wait(0);", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_step_that_is_left_out_is_seen(name: str, tmp_path: Path) -> None:
    case, old, new = MUTANTS[name]
    make, settings = CASES[case]
    fusion, edited = make(), list[bool]()

    def edit(text: str) -> str:
        edited.append(old in text)
        return text.replace(old, new)

    assert "seed" in wrong(ring(fusion, **settings), fusion, tmp_path, edit)
    assert any(edited)


@pytest.mark.parametrize(
    ("columns", "cluster"), [(24_576, 1), (32_768, 1), (65_536, 2), (131_072, 4), (262_144, 8)]
)
def test_a_row_is_shared_by_as_few_blocks_as_hold_three(columns: int, cluster: int) -> None:
    plan = plan_of("inner_persistent", softmax(BF16, 4096, columns))
    p: Any = plan.parameters
    assert (p.storage, p.cluster, p.slots % p.groups, p.online) == ("ring", cluster, 0, True)
    kernel = plan.kernels[0]
    assert kernel.shared_bytes <= GPU.shared
    assert kernel.grid[0].evaluate(plan.fusion.hints) == cluster * GPU.resident_clusters(cluster)
    assert_builds(plan)


def test_columns_stay_where_blocks_hold_them_beside_the_rows() -> None:
    for columns, cluster in ((32_768, 2), (131_072, 8)):
        plan = plan_of("inner_persistent", layer_norm(BF16, 4096, columns))
        p: Any = plan.parameters
        assert (p.cluster, p.keep_columns, p.slots) == (cluster, True, 3)
        assert_builds(plan)


def test_a_few_long_rows_are_shared_by_more_blocks() -> None:
    p: Any = plan_of("inner_persistent", softmax(BF16, 8, 65_536)).parameters
    assert (p.cluster, p.groups, p.slots) == (8, 1, 1)


@pytest.mark.parametrize(
    ("images", "channels", "pixels", "cluster", "copies"),
    [
        (64, 256, 3136, 8, 8),
        (64, 256, 784, 2, 32),
        (30, 256, 3136, 4, 15),
        (15, 256, 3136, 2, 15),
        # 64 channels: 5 turns of 15 clusters rather than 3 of 30, whose last has few.
        (32, 64, 3136, 8, 4),
    ],
)
def test_rows_made_of_pieces_are_shared_like_others(
    images: int, channels: int, pixels: int, cluster: int, copies: int
) -> None:
    plan: Any = plan_of("inner_persistent", batch_norm(BF16, images, channels, pixels))
    p = plan.parameters
    assert (p.storage, p.cluster) == ("ring", cluster)
    assert plan_view(plan, plan.kernels[0]).pieces == copies
    assert_builds(plan)


def test_rows_of_short_pieces_go_elsewhere() -> None:
    p: Any
    for pixels in (196, 256, 3132):
        p = plan_of("inner_persistent", batch_norm(BF16, 256, 64, pixels)).parameters
        assert p.storage != "ring"
    forced = plan_of("inner_persistent", batch_norm(BF16, 256, 64, 256), storage="ring")
    p = forced.parameters
    assert p.storage == "ring"


def test_only_few_weights_of_a_row_are_loaded_by_each_phase() -> None:
    for parts, storage in ((16, "ring"), (512, "ring"), (1024, "shared")):
        fusion = group_norm_backward(64, 2, parts, 32_768 // parts)
        p: Any = plan_of("inner_persistent", fusion).parameters
        assert p.storage == storage, parts


def test_other_rows_go_elsewhere() -> None:
    for fusion in (softmax(BF16, 4096, 16_384), softmax(BF16, 4096, 32_764), across_memory()):
        assert plan_of("inner_persistent", fusion).parameters.storage != "ring"
    family: Any = find_scheduler("inner_persistent")
    older = target.find("sm_80")
    problem = family.built(softmax(BF16, 4096, 32_768))
    assert family.default_parameters(problem, older).storage != "ring"
    refused = family.refusal(softmax(BF16, 4096, 32_768), older, {"storage": "ring"})
    assert refused.rule == "ring"


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"slots": 4, "groups": 3}, "groups"),
        ({"threads_x": 416, "groups": 3, "slots": 3}, "block"),
        ({"slots": 12, "groups": 3, "threads_x": 256}, "shared memory"),
        ({"keep_columns": True}, "keep_columns"),
        ({"keep_values": True}, "keep_values"),
    ],
)
def test_parameters_that_no_kernel_has(settings: dict[str, Any], rule: str) -> None:
    family: Any = find_scheduler("inner_persistent")
    fusion = softmax(BF16, 4096, 32_768)
    problem = family.built(fusion)
    first = family.default_parameters(problem, GPU)
    record = family.with_derived(problem, replace(first, **settings))
    assert family.legal(problem, record, GPU).rule == rule
