"""Scatters: the kernels' results on the host, whichever way they are written, and their builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from graphs import scattered
from rows_on_cpu import OPTIONS, check_build, check_on_cpu, planned

from fusec import driver
from fusec.codegen.dispatch import plan_sources
from fusec.ir.dtype import BF16, BOOL, F16, F32, F64, I16, I32, I64, DType
from fusec.ops.builder.build import GraphBuilder
from fusec.parse import read_text
from fusec.reference.verdict import compare
from fusec.run.arrays import StridedArray, dense_strides
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.schedule.scatter import family as scatter

Shape = tuple[int, ...]


def places(shape: Shape, extent: int) -> dict[str, Any]:
    chosen = np.random.default_rng(2).integers(0, extent, shape)
    return {"places": StridedArray(chosen.ravel(), shape, dense_strides(shape))}


CASES = [
    ("lines", "scatter", F32, (9, 20), (6, 11), (7, 12), 1),
    ("lines", "scatter", BF16, (30, 8), (12, 8), (), 0),
    ("winners", "scatter", F32, (50,), (200,), (200,), 0),
    ("winners", "scatter", I64, (3, 40), (3, 90), (3, 90), 1),
    ("elements", "scatter_add", I32, (3, 40), (2, 90), (3, 90), 1),
    ("elements", "index_add", I64, (20, 6), (50,), (50, 6), 0),
    ("sorted", "scatter_add", F32, (40, 3), (90, 2), (90, 3), 0),
    ("sorted", "scatter_add", F16, (5, 300), (5, 90), (5, 90), 1),
    ("sorted", "index_add", BF16, (20, 6), (50,), (50, 6), 0),
    ("sorted", "index_add", F32, (6, 20), (50,), (6, 50), 1),
    ("lines", "scatter_add", F64, (12, 5), (9, 5), (9, 5), 0),
    ("lines", "scatter_add", I16, (12, 5), (90, 5), (90, 5), 0),
    ("lines", "scatter_add", BOOL, (40,), (60,), (60,), 0),
]


@pytest.mark.parametrize(("algorithm", "op", "dtype", "shape", "index", "source", "dim"), CASES)
def test_results(
    algorithm: str,
    op: str,
    dtype: DType,
    shape: Shape,
    index: Shape,
    source: Shape,
    dim: int,
    tmp_path: Path,
) -> None:
    fusion = scattered(op, dtype, shape, index, source, dim)
    assert planned(fusion, "scatter").plans[0].parameters.algorithm == algorithm
    given = places(index, shape[dim])
    check_on_cpu(fusion, "scatter", tmp_path, given)


VECTORS = [
    # algorithm, op, dtype, shape, length, in place, width
    ("compared", "scatter", BF16, (90, 2, 128), 70, True, 8),
    ("compared", "scatter", F32, (300, 24), 250, True, 4),
    ("compared", "index_add", F16, (20, 16), 50, True, 8),
    ("winners", "scatter", BF16, (400, 24), 300, True, 8),
    ("winners", "scatter", F32, (300, 24), 290, True, 4),
    ("sorted", "index_add", F32, (30, 24), 90, False, 4),
    ("sorted", "scatter_add", BF16, (30, 16), 300, True, 8),
    ("winners", "scatter", F32, (400, 24), 300, False, 1),
    ("compared", "scatter", F32, (90, 7), 70, True, 1),
]


@pytest.mark.parametrize(
    ("algorithm", "op", "dtype", "shape", "length", "in_place", "width"), VECTORS
)
def test_lines_that_go_to_one_place_are_written_by_vectors(
    algorithm: str,
    op: str,
    dtype: DType,
    shape: Shape,
    length: int,
    in_place: bool,
    width: int,
    tmp_path: Path,
) -> None:
    builder = GraphBuilder("vectors")
    x, at = builder.input("x", dtype, shape), builder.input("places", I64, (length,))
    lines = (length, *shape[1:])
    src: Any = builder.apply("neg", builder.input("src", dtype, lines))
    if op.startswith("scatter"):
        wide = builder.apply("broadcast", at, [False, *(True for _ in shape[1:])])
        at = builder.apply("expand", wide, lines)
    builder.output(builder.apply(op, x, at, src, 0), alias="x" if in_place else None)
    fusion = builder.finish()
    parameters = planned(fusion, "scatter").plans[0].parameters
    assert (parameters.algorithm, parameters.vector_width) == (algorithm, width)
    given = places((length,), shape[0])
    check_on_cpu(fusion, "scatter", tmp_path, given)


CACHES = """fusion: caches
dims: {{T: {tokens}, D: {columns}}}
inputs:
  a_cache: bf16[1200, D]
  b_cache: f32[1200, D]
  a: bf16[T, D]
  b: f32[T, D]
  places: {{type: "i64[T]", range: [0, 1199]}}
ops:
  - at = expand(broadcast(places, [false, true]), [T, D])
  - a_new = scatter(a_cache, at, {first}, 0)
  - b_new = scatter(b_cache, at, {second}, 0)
outputs:
  - a_new: {{alias: a_cache}}
  - b_new: {{alias: b_cache}}
"""


@pytest.mark.parametrize(
    ("tokens", "columns", "algorithm", "width"),
    [
        (200, 128, "compared", 4),
        (1100, 8, "winners", 4),
        (70, 7, "compared", 1),
        (3, 7, "lines", 1),
    ],
)
def test_scatters_of_one_index_are_written_together(
    tokens: int, columns: int, algorithm: str, width: int, tmp_path: Path
) -> None:
    fusion = read_text(CACHES.format(tokens=tokens, columns=columns, first="neg(a)", second="b"))
    parameters = planned(fusion, "scatter").plans[0].parameters
    assert (parameters.algorithm, parameters.vector_width) == (algorithm, width)
    check_on_cpu(fusion, "scatter", tmp_path, places((tokens,), 1200))


BESIDE = """fusion: beside
inputs:
  cache: f16[{slots}, 2, 32]
  k: f16[{tokens}, 2, 32]
  q: f16[{tokens}, {heads}, 32]
  w: f32[{tokens}, 32]
  places: {{type: "i64[{tokens}]", range: [0, {last}]}}
ops:
  - s = broadcast(w, [false, true, false])
  - y = cast(mul(cast(q, f32), s), f16)
  - z = cast({other}, f16)
  - at = expand(broadcast(places, [false, true, true]), [{tokens}, 2, 32])
  - kept = scatter(cache, at, cast(mul(cast(k, f32), s), f16), 0)
outputs:
  - y
  - z
  - kept: {{alias: cache}}
"""


@pytest.mark.parametrize(
    ("tokens", "heads", "slots", "algorithm"), [(40, 3, 50, "compared"), (1100, 1, 1200, "winners")]
)
def test_elementwise_outputs_are_made_beside_a_scatter(
    tokens: int, heads: int, slots: int, algorithm: str, tmp_path: Path
) -> None:
    text = BESIDE.format(
        tokens=tokens, heads=heads, slots=slots, last=slots - 1, other="neg(mul(q, 2.0))"
    )
    fusion = read_text(text)
    plan = planned(fusion, "scatter").plans[0]
    assert plan.parameters.algorithm == algorithm
    assert "blockIdx.x >= kBlocks" in plan_sources(plan)[-1].text
    check_on_cpu(fusion, "scatter", tmp_path, places((tokens,), slots))


def test_outputs_that_read_what_is_scattered_or_overwritten_are_made_apart() -> None:
    for other in ("sum(cache, dims=[1])", "slice(cache, [0, 0, 0], [40, 2, 32])"):
        text = BESIDE.format(tokens=40, heads=2, slots=50, last=49, other=other)
        found = driver.plan(read_text(text), OPTIONS)
        for segment in found.segmented.segments:
            if segment.scheduler == "scatter":
                names = {o.value.name for o in segment.fusion.outputs}
                assert "z" not in names


def test_scatters_that_read_what_another_overwrites_are_written_apart() -> None:
    read = "cast(slice(b_cache, [0, 0], [T, D]), bf16)"
    fusion = read_text(CACHES.format(tokens=70, columns=8, first=read, second="b"))
    found = driver.plan(fusion, OPTIONS)
    assert [s.scheduler for s in found.segmented.segments].count("scatter") == 2
    for segment in found.segmented.segments:
        if segment.scheduler == "scatter":
            assert len(segment.fusion.outputs) == 1


def test_long_runs_of_one_place_are_summed_whole(tmp_path: Path) -> None:
    lengths = [1, 2, 3, 5, 8, 40, 1, 140]
    chosen = np.random.default_rng(5).permutation(np.repeat(np.arange(8), lengths))
    given = {"places": StridedArray(chosen, (200,), (1,))}
    fusion = scattered("scatter_add", F32, (9,), (200,), (200,), 0)
    check_on_cpu(fusion, "scatter", tmp_path, given)


@pytest.mark.parametrize(("op", "length"), [("scatter", 60), ("scatter", 9), ("scatter_add", 60)])
def test_places_outside_are_left_alone(op: str, length: int, tmp_path: Path) -> None:
    wanted = np.arange(length) * 7 - 20
    x = np.arange(30, dtype=np.float32)
    plan = planned(scattered(op, F32, (30,), (length,), (), 0), "scatter").plans[0]
    inputs = {"x": StridedArray(x, (30,), (1,)), "places": StridedArray(wanted, (length,), (1,))}
    (found,) = run_plan(plan, inputs, tmp_path).values()
    inside = np.isin(np.arange(30), wanted)
    np.testing.assert_array_equal(found[~inside], x[~inside])
    np.testing.assert_array_equal(found[inside], 3 if op == "scatter" else x[inside] + 3)


CHOICES = """
fusion: choices
inputs:
  x: f32[{places}, 4]
  at: {{type: "i64[{length}]", range: [0, {last}]}}
  a: f32[{length}, 4]
  b: f32[{length}, 4]
ops:
  - v = where(gt(a, b), a, b)
  - y = index_add(x, at, v, dim=0)
outputs: [y]
"""


@pytest.mark.parametrize(("algorithm", "places", "length"), [("sorted", 30, 90), ("lines", 12, 9)])
def test_what_is_added_may_be_chosen(
    algorithm: str, places: int, length: int, tmp_path: Path
) -> None:
    fusion = read_text(CHOICES.format(places=places, last=places - 1, length=length))
    assert planned(fusion, "scatter").plans[0].parameters.algorithm == algorithm
    check_on_cpu(fusion, "scatter", tmp_path)


def test_what_comes_before_is_fused_and_what_follows_is_not(tmp_path: Path) -> None:
    builder = GraphBuilder("around")
    index = builder.input("places", I32, (9, 30))
    src = builder.input("src", F32, (9, 30))
    zeros = builder.apply("full", [9, 50], 0.0)
    filled = builder.apply("scatter", zeros, index, builder.apply("exp", src), 1)
    builder.output(filled)
    fusion = builder.finish()
    chosen = np.random.default_rng(3).integers(0, 50, (9, 30)).astype(np.int32)
    given = {"places": StridedArray(chosen.ravel(), (9, 30), (30, 1))}
    check_on_cpu(fusion, "scatter", tmp_path, given)
    builder = GraphBuilder("followed")
    x, index = builder.input("x", F32, (9, 50)), builder.input("places", I64, (9, 30))
    filled = builder.apply("scatter", x, index, 1.0, 1)
    builder.output(builder.apply("exp", filled))
    found = driver.plan(builder.finish(), OPTIONS)
    assert [s.scheduler for s in found.segmented.segments] == ["scatter", "pointwise"]


def test_many_lines_are_written_by_a_thread_each() -> None:
    fusion = scattered("scatter_add", F32, (8, 20000), (64, 20000), (64, 20000), 0)
    assert planned(fusion, "scatter").plans[0].parameters.algorithm == "lines"
    fusion = scattered("scatter_add", F32, (8, scatter.MANY_LINES - 1), (64, 16383), (64, 16383), 0)
    assert planned(fusion, "scatter").plans[0].parameters.algorithm == "sorted"


@pytest.mark.parametrize(
    ("op", "dtype"), [("scatter", F32), ("scatter_add", I64), ("scatter_add", BF16)]
)
def test_builds_without_spills(op: str, dtype: DType) -> None:
    check_build(scattered(op, dtype, (4, 16000), (4, 2000), (4, 2000), 1), "scatter")


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("op", ["scatter_add", "index_add"])
def test_floats_are_added_as_they_arrive_where_asked_for(
    op: str, dtype: DType, tmp_path: Path
) -> None:
    index = "90, 7" if op == "scatter_add" else "90"
    text = (
        f"fusion: arrival\ninputs:\n  x: {dtype}[30, 7]\n  i: i64[{index}]\n  s: {dtype}[90, 7]\n"
        f"ops:\n  - y = {op}(x, i, s, dim=0, deterministic=false)\n"
        "outputs: [y]\n"
    )
    fusion = read_text(text, "arrival.yaml")
    plan = planned(fusion, "scatter").plans[0]
    assert plan.parameters.algorithm == "elements"
    assert any("atomic_add" in s.text for s in plan_sources(plan))
    sizes = choose_sizes(fusion, None)
    inputs = random_inputs(fusion, sizes, 3)
    for backwards in (False, True):
        found = run_plan(plan, inputs, tmp_path, backwards=backwards)
        verdict = compare(fusion, sizes, inputs, found)
        assert verdict.ok, verdict.text()
    check_build(fusion, "scatter")


def test_half_types_are_summed_in_order_whatever_is_asked_for() -> None:
    text = (
        "fusion: arrival\ninputs:\n  x: bf16[30, 7]\n  i: i64[90]\n  s: bf16[90, 7]\nops:\n"
        "  - y = index_put_accumulate(x, i, s, deterministic=false)\noutputs: [y]\n"
    )
    plan = planned(read_text(text, "arrival.yaml"), "scatter").plans[0]
    assert plan.parameters.algorithm == "sorted"


def test_any_order_of_arrival_is_within_the_bound() -> None:
    text = (
        "fusion: arrival\ninputs:\n  x: f32[1]\n  i: i64[4000]\n  s: f32[4000]\nops:\n"
        "  - y = scatter_add(x, i, s, dim=0, deterministic=false)\noutputs: [y]\n"
    )
    fusion = read_text(text, "arrival.yaml")
    source = np.where(np.arange(4000) % 2, 1.0 / 3, -1.0 / 7).astype(np.float32)
    inputs = {"x": np.zeros(1, np.float32), "i": np.zeros(4000, np.int64), "s": source}
    for order in (source, source[::-1], np.sort(source), np.sort(source)[::-1]):
        total = np.float32(0)
        for value in order:
            total = np.float32(total + value)
        assert compare(fusion, {}, inputs, {"y": np.array([total])}).ok
    assert not compare(fusion, {}, inputs, {"y": np.array([total + np.float32(1)])}).ok
