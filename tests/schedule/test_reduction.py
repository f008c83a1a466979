"""The reduction scheduler: orientation, splits, refusals, and its kernels on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families import GPU, assert_builds, estimate, plan_of, refused_rule, run_on_host, text_of
from graphs import reduce

from fusec.codegen.dispatch import plan_sources
from fusec.ir.dtype import BF16, BOOL, F16, F32, F64, I32, I64, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.run.build import Source, build
from fusec.schedule.pressure import resident_blocks
from fusec.schedule.registry import find_scheduler
from fusec.schedule.rows.reduction.grid import GridReduction


def of_nothing() -> Fusion:
    """A sum that reads, if anything, what lies behind a tensor without elements."""
    builder = GraphBuilder("nothing")
    x = builder.input("x", F32, [70, 8, 0], contiguity=[True, True, None])
    builder.output(builder.apply("sum", builder.apply("exp", x), dims=[1, 2]))
    return builder.finish()


def around() -> Fusion:
    """Two reductions with work before and after them, and an element-wise output."""
    builder = GraphBuilder("around")
    b, h = builder.declare_dim("B", 12), builder.declare_dim("H", 264)
    x, w = builder.input("x", BF16, [b, h]), builder.input("w", F32, [h])
    y = builder.apply("mul", x, w)
    total = builder.apply("sum", y, dims=[1])
    top = builder.apply("max", builder.apply("abs", y), dims=[1])
    builder.output(builder.apply("div", total, builder.apply("add", top, 1.0)))
    builder.output(builder.apply("cast", y, dtype=BF16))
    return builder.finish()


REPRESENTATIVE: dict[str, Callable[[], Fusion]] = {
    "rows": lambda: reduce("sum", BF16, (4096, 8192), (1,)),
    "odd rows": lambda: reduce("max", F32, (100, 1001), (1,)),
    "columns": lambda: reduce("sum", F32, (4096, 2048), (0,)),
    "odd columns": lambda: reduce("min", BF16, (1001, 37), (0,)),
    "all": lambda: reduce("sum", F32, (1 << 12, 1 << 10), (0, 1)),
    "split rows": lambda: reduce("var_mean", F32, (4, 1 << 20), (1,)),
    "split columns": lambda: reduce("sum", F64, (1 << 16, 32), (0,)),
    "mixed": lambda: reduce("sum", F32, (8, 64, 28, 28), (0, 2, 3)),
    "any": lambda: reduce("any", BOOL, (64, 4096), (1,)),
    "prod": lambda: reduce("prod", I32, (64, 256), (1,)),
    "welford": lambda: reduce("welford", F32, (64, 4096), (1,)),
    "around": around,
}


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_kernels_build_without_spills(name: str) -> None:
    assert_builds(plan_of("reduction", REPRESENTATIVE[name]()))


SMALL: dict[str, Callable[[], Fusion]] = {
    "rows": lambda: reduce("sum", BF16, (5, 264), (1,)),
    "shifted rows at once": lambda: reduce("sum", F32, (9, 1803), (1,)),
    "short shifted columns": lambda: reduce("sum", F16, (130, 61), (0,)),
    "short rows": lambda: reduce("max", F32, (70, 3), (1,)),
    "columns": lambda: reduce("var_mean", F32, (37, 40), (0,)),
    "odd columns": lambda: reduce("sum", F64, (65, 7), (0,)),
    "middle": lambda: reduce("sum", F32, (3, 17, 9), (1,)),
    "outer and inner": lambda: reduce("sum", F32, (6, 5, 8), (0, 2)),
    "all": lambda: reduce("var", F32, (7, 33), (0, 1)),
    "split rows": lambda: reduce("sum", F32, (1, 16384), (1,)),
    "split columns": lambda: reduce("max", F32, (4096, 5), (0,)),
    "around": around,
    "nothing": of_nothing,
}


@pytest.mark.parametrize("name", SMALL)
def test_kernels_compute_the_fusion(name: str, tmp_path: Path) -> None:
    run_on_host("reduction", SMALL[name](), tmp_path)


def test_an_element_that_is_not_there_is_not_read() -> None:
    assert "x[" not in text_of(plan_of("reduction", of_nothing()))


def test_rows_and_columns_are_told_by_memory() -> None:
    assert plan_of("reduction", reduce("sum", F32, (64, 512), (1,))).parameters.inner
    assert not plan_of("reduction", reduce("sum", F32, (64, 512), (0,))).parameters.inner
    builder = GraphBuilder("turned")
    x = builder.input("x", F32, [64, 512], stride_order=[0, 1])
    builder.output(builder.apply("sum", x, dims=[0]))
    assert plan_of("reduction", builder.finish()).parameters.inner


@pytest.mark.parametrize(
    ("shape", "dims", "split"),
    [((4096, 8192), (1,), False), ((2, 1 << 20), (1,), True), ((1 << 20, 8), (0,), True),
     ((32, 32), (1,), False), ((1 << 20,), (0,), True), ((30, 30), (0, 1), False)],
)  # fmt: skip
def test_few_results_are_shared_by_blocks(
    shape: tuple[int, ...], dims: tuple[int, ...], split: bool
) -> None:
    plan = plan_of("reduction", reduce("sum", F32, shape, dims))
    assert (plan.parameters.splits > 1) == split
    assert bool(plan.workspaces) == split
    text = text_of(plan)
    assert ("last_block" in text) == split
    assert "atomicAdd(" not in text


@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((16384, 8192), (0,)),
        ((262144, 512), (0,)),
        ((64, 2097152), (1,)),
        ((1 << 28,), (0,)),
        ((1 << 20, 24), (0,)),
        ((100, 1 << 20), (1,)),
    ],
)
def test_splits_fill_the_processors(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    """All blocks are resident at once, and none has an SM to itself that draws too little."""
    fusion = reduce("sum", BF16, shape, dims)
    plan = plan_of("reduction", fusion)
    kernel = plan.kernels[0]
    blocks = int(np.prod([g.evaluate(fusion.hints) for g in kernel.grid]))
    assert -(-blocks // GPU.sms) <= GPU.draw * blocks / GPU.sms
    threads = int(np.prod(kernel.block))
    assert blocks * threads > 1000 * GPU.sms
    sources = [Source(s.name, s.text) for s in plan_sources(plan)]
    ((_, artifact),) = build(sources, [GPU.arch]).items()
    held = resident_blocks(threads, artifact.registers, artifact.shared_bytes, GPU)
    assert held >= max(kernel.least_blocks, blocks / GPU.sms)


def test_many_parts_are_combined_in_a_tree() -> None:
    few = plan_of("reduction", reduce("sum", BF16, (16384, 8192), (0,))).parameters
    assert (few.splits, few.grid_reduce) == (17, "last_block")
    fusion = reduce("var_mean", BF16, (200704, 256), (0,))
    many, found = plan_of("reduction", fusion).parameters, estimate("reduction", fusion)
    assert many.grid_reduce == "tree"
    assert many.fan**2 >= many.splits > 256
    alone = {"grid_reduce": "last_block"}
    slow: Any = find_scheduler("reduction").offer(fusion, GPU, alone)
    assert slow[1].waits > 2 * found.waits


def test_a_last_wave_of_few_blocks_costs_a_wave() -> None:
    cost = GPU.cost.grid_reduce
    sharing = GridReduction(
        395, 8, 8, GPU.sms, GPU.draw, 5e-5, vain=0.0, threads=8, step=cost.part_seconds, cost=cost
    )
    wave = 8 * GPU.sms / 395
    assert sharing.splits(1000) == 8  # of 7.98 blocks for each place
    assert sharing.seconds(math.ceil(wave)) > 1.2 * sharing.seconds(8)
    assert sharing.splits(1) == 1


def test_blocks_of_many_threads_leave_fewer_parts() -> None:
    large = plan_of("reduction", reduce("sum", BF16, (262144, 512), (0,))).parameters
    assert (large.threads_y, large.splits) == (32, 66)
    wide = plan_of("reduction", reduce("sum", BF16, (16384, 8192), (0,))).parameters
    assert wide.threads_y == 8


@pytest.mark.parametrize(
    ("shape", "dtype", "rows"),
    [((811500, 45), BF16, 16), ((811500, 46), BF16, 8), ((8192, 12616), BF16, 4)],
)
def test_narrow_accesses_are_of_more_rows(shape: tuple[int, int], dtype: DType, rows: int) -> None:
    fusion = reduce("sum", dtype, shape, (0,))
    plan = plan_of("reduction", fusion)
    assert plan.parameters.unrolled == rows
    assert f"#pragma unroll {rows}\n" in text_of(plan)
    sources = [Source(s.name, s.text) for s in plan_sources(plan)]
    ((_, artifact),) = build(sources, [GPU.arch]).items()
    assert artifact.spill_bytes == 0
    threads = resident_blocks(256, artifact.registers, artifact.shared_bytes, GPU) * 256
    row = plan.parameters.vector_width * dtype.size
    assert threads * rows * row >= 32 << 10  # bytes on their way that keep the memory busy


@pytest.mark.parametrize(
    ("shape", "threads"), [((2, 52074702), 256), ((9, 6206303), 256), ((20, 1 << 20), 128)]
)
def test_few_rows_of_many_columns_have_no_threads_side_by_side(
    shape: tuple[int, int], threads: int
) -> None:
    plan = plan_of("reduction", reduce("sum", F32, shape, (0,)))
    assert (plan.parameters.threads_x, plan.parameters.threads_y) == (threads, 256 // threads)
    assert ("int row = 0;" in text_of(plan)) == (threads == 256)
    few = plan_of("reduction", reduce("sum", F32, (shape[0], 64), (0,))).parameters
    assert few.threads_y > 1


@pytest.mark.parametrize("dtype", [BF16, F32, F64, I64], ids=str)
@pytest.mark.parametrize("shape", [(50_000, 64), (40_003, 31), (4099, 1024)], ids=str)
def test_sums_of_columns_take_one_launch(shape: tuple[int, int], dtype: DType) -> None:
    fusion = reduce("sum", dtype, shape, (0,))
    both = estimate("reduction", fusion), estimate("inner_outer_persistent", fusion)
    assert both[0].seconds(GPU) < both[1].seconds(GPU)


@pytest.mark.parametrize("shape", [(1, 1 << 20), (5, 300_000)], ids=str)
def test_few_rows_are_shared_by_more_blocks_than_a_cluster(shape: tuple[int, int]) -> None:
    for dtype in (BF16, F16, F64):
        fusion = reduce("var_mean", dtype, shape, (1,))
        both = estimate("reduction", fusion), estimate("inner_persistent", fusion)
        assert both[0].seconds(GPU) < both[1].seconds(GPU)


@pytest.mark.parametrize(
    ("shape", "streaming"),
    [((4096, 2048), False), ((16384, 1536), True), ((65536, 2048), False)],
)
@pytest.mark.parametrize("axis", [0, 1])
def test_what_l2_does_not_hold_is_read_by_streaming_loads(
    shape: tuple[int, int], axis: int, streaming: bool
) -> None:
    """Unless there is so much of it that what waits in L2 to be written back is little beside."""
    plan: Any = plan_of("reduction", reduce("sum", F32, shape, (axis,)))
    assert plan.parameters.streaming is streaming
    assert ("load_streaming" in text_of(plan)) is streaming


def test_what_comes_by_tiles_is_not_loaded() -> None:
    """From shared memory, where a streaming load would fault."""
    fusion = reduce("sum", F32, (16384, 96), (1,))
    for settings, rule in (
        ({"tile_rows": 64}, None),
        ({"tile_rows": 64, "streaming": True}, "streaming"),
    ):
        offer: Any = find_scheduler("reduction").offer(fusion, GPU, settings)
        assert getattr(offer, "rule", None) == rule


@pytest.mark.parametrize(
    ("operation", "width"), [("sum", 8), ("var_mean", 2)], ids=["sums", "moments"]
)
def test_columns_with_states_have_few_of_them_in_a_thread(operation: str, width: int) -> None:
    plan: Any = plan_of("reduction", reduce(operation, BF16, (4096, 8192), (0,)))
    assert plan.parameters.vector_width == width


def test_a_tree_needs_blocks() -> None:
    fusion = reduce("sum", F32, (64, 512), (1,))
    found = find_scheduler("reduction").refusal(fusion, GPU, {"splits": 2, "grid_reduce": "tree"})
    assert found is not None
    assert found.rule == "grid_reduce"


def test_a_vector_takes_one_division_of_a_welford_state() -> None:
    text = text_of(plan_of("reduction", reduce("var", BF16, (64, 4096), (1,))))
    (push,) = [line for line in text.splitlines() if ".push(" in line]
    assert "_values)" in push
    one_by_one = text_of(plan_of("reduction", reduce("var", BF16, (64, 257), (1,))))
    assert "_values" not in one_by_one


@pytest.mark.parametrize(
    ("length", "dtype", "width"),
    [
        (4096, F32, 4),
        (4096, BF16, 8),
        (4098, F32, 2),
        (4097, F32, 4),  # vectors are shifted
        (767, F32, 1),
        (513, BF16, 8),  # vectors are shifted
        (511, BF16, 1),
    ],
)
def test_vectors_along_rows(length: int, dtype: DType, width: int) -> None:
    assert (
        plan_of("reduction", reduce("sum", dtype, (64, length), (1,))).parameters.vector_width
        == width
    )


def test_blocks_are_whole_warps() -> None:
    for rows in (1, 2, 3, 31, 1000):
        for columns in (1, 3, 9, 100, 1000, 50_000):
            for dims in ((0,), (1,)):
                kernel = plan_of("reduction", reduce("sum", F32, (rows, columns), dims)).kernels[0]
                threads = int(np.prod(kernel.block))
                assert threads % 32 == 0, (rows, columns, dims)
                assert threads <= 1024


def test_the_price_is_one_reading() -> None:
    found = estimate("reduction", reduce("sum", F32, (4096, 1024), (1,)))
    assert found.bytes == 4096 * 1024 * 4 + 4096 * 4
    assert found.workspace_bytes == 0
    assert estimate("reduction", reduce("sum", F32, (2, 1 << 20), (1,))).workspace_bytes > 0


def refusal(make: Callable[[GraphBuilder, Any], Any]) -> Fusion:
    builder = GraphBuilder("refused")
    x = builder.input("x", F32, [16, 32])
    for value in make(builder, x):
        builder.output(value)
    return builder.finish()


def two_sets(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("sum", x, dims=[0]), b.apply("sum", x, dims=[1])]


def depth(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("sum", b.apply("exp", b.apply("sum", x, dims=[1])), dims=[0])]


def persistence(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("sub", x, b.apply("max", x, dims=[1], keepdim=True))]


def chain(b: GraphBuilder, x: Any) -> Any:
    shifted = b.apply("sub", x, b.apply("max", x, dims=[1], keepdim=True))
    return [b.apply("sum", shifted, dims=[1])]


def nothing(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("exp", x)]


def product(b: GraphBuilder, x: Any) -> Any:
    return [b.apply("matmul", x, b.input("y", F32, [32, 8]))]


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (two_sets, "reduction_axes"),
        (depth, "reduction_axes"),
        (persistence, "persistence"),
        (chain, "depth"),
        (nothing, "no reduction"),
        (product, "operation"),
    ],
)
def test_refusals(make: Callable[[GraphBuilder, Any], Any], rule: str) -> None:
    assert refused_rule("reduction", refusal(make)) == rule
