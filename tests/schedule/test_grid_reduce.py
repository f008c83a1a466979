"""Methods by which blocks combine what they share: right in every order of blocks, and as stable as
the registry says; refused where an instruction does not have the operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import build_all, run_plan
from families import GPU, assert_builds, plan_of, text_of
from fences import check
from test_planned_orders import dense
from test_races import ORDERS

from fusec import target
from fusec.codegen.dispatch import plan_sources
from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.ir.annotations import Setting
from fusec.ir.dtype import BF16, BOOL, F16, F32, F64, I32, I64, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.reference.errors.nodes import Model
from fusec.reference.verdict import compare
from fusec.run.binary.headers import device_headers
from fusec.run.inputs import random_inputs
from fusec.schedule.grid_methods import (
    PARTIALS,
    REDUCTION_METHODS,
)
from fusec.schedule.plan import KernelPlan
from fusec.schedule.registry import find_scheduler
from fusec.segment.protocol import Refusal
from fusec.segment.segmented import SegmentedFusion

ROWS, COLUMNS = 1, 0
REDUCTIONS = [
    *[(op, dtype) for op in ("sum", "max", "min") for dtype in (F32, F16, F64, I32, I64)],
    ("prod", F32), ("var_mean", F32), ("var_mean", BF16), ("exponentials", F32), ("any", BOOL),
    ("argmax", F32),
]  # fmt: skip


def reduction(op: str, dtype: DType, axis: int) -> Fusion:
    """Return a reduction of 5 long rows, or of 20 long columns, which no vectors divide."""
    builder = GraphBuilder(f"{op}_{dtype}_{axis}")
    x = builder.input("x", dtype, [5, 3003] if axis == ROWS else [1501, 20])
    if op == "exponentials":
        top = builder.apply("max", x, dims=[axis], keepdim=True)
        shifted = builder.apply("exp", builder.apply("sub", x, top))
        builder.output(builder.apply("sum", shifted, dims=[axis]))
    else:
        for value in builder.call(op, [x], {"dims": [axis]}):
            builder.output(value)
    return builder.finish()


def shape_of(axis: int) -> dict[str, Setting]:
    """Return small blocks, five for each result: of rows that one of them has two of."""
    return {"splits": 5, "threads_x": 32, "threads_y": 2} if axis == ROWS else {"splits": 5}


def plans_of(
    method: str, cases: list[tuple[str, DType]], **settings: Setting
) -> list[tuple[Fusion, KernelPlan]]:
    """Return the plans of reductions that a method combines, of rows and of columns."""
    found: list[tuple[Fusion, KernelPlan]] = []
    for op, dtype in cases:
        for axis in (ROWS, COLUMNS):
            fusion = reduction(op, dtype, axis)
            wanted = {**shape_of(axis), "grid_reduce": method, **settings}
            offer: Any = find_scheduler("reduction").offer(fusion, GPU, wanted)
            if isinstance(offer, Refusal):
                assert offer.rule == "grid_reduce", offer
                assert REDUCTION_METHODS[method].operations is not None, offer
            else:
                found.append((fusion, offer[0]))
    return found


def said(plan: KernelPlan) -> str:
    """Return a kernel's text without the breaks of its comments."""
    return " ".join(text_of(plan).replace("//", "").split())


def wrong_in_some_order(plans: list[tuple[Fusion, KernelPlan]], folder: Path) -> list[str]:
    """Run kernels of one source each in several orders; return what is wrong, or not stable."""
    built = build_all([(s.kernel, s.text) for _, p in plans for s in plan_sources(p)], folder)
    wrong: list[str] = []
    for (fusion, plan), function in zip(plans, built, strict=True):
        inputs = random_inputs(fusion, fusion.hints, 0)
        if fusion.name.startswith("prod"):  # else it overflows
            inputs |= dense((1 + inputs["x"].array / 64).astype(np.float32))
        runs = [run_plan(plan, inputs, folder, built=[function], **order) for order in ORDERS]
        model = Model({name: order.at(fusion.hints) for name, order in plan.orders.items()})
        for order, outputs in zip(ORDERS, runs, strict=True):
            verdict = compare(fusion, fusion.hints, inputs, outputs, model=model)
            if not verdict.ok:
                wrong.append(f"{fusion.name}, {order}: {verdict.text()}")
        varies = any(
            not np.array_equal(run[name], value, equal_nan=value.dtype.kind == "f")
            for run in runs
            for name, value in runs[0].items()
        )
        if varies and not any(order.arrives for order in plan.orders.values()):
            wrong.append(f"{fusion.name}: bits differ between orders")
    return wrong


QUICK = [("sum", F32), ("min", F16), ("max", I64), ("prod", F32), ("var_mean", F32)]


@pytest.mark.parametrize("method", REDUCTION_METHODS)
def test_a_method_is_right_in_every_order_of_blocks(method: str, tmp_path: Path) -> None:
    plans = plans_of(method, QUICK)
    assert len(plans) >= 6
    assert wrong_in_some_order(plans, tmp_path) == []


@pytest.mark.nightly
@pytest.mark.parametrize("method", REDUCTION_METHODS)
def test_a_method_is_right_for_all_that_it_combines(method: str, tmp_path: Path) -> None:
    plans = plans_of(method, [case for case in REDUCTIONS if case not in QUICK])
    assert wrong_in_some_order(plans, tmp_path) == []


SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, -1.5, 2.5)


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("method", ["serial_tma", "parallel"])
def test_extremes_in_memory_are_ordered_as_values(op: str, method: str, tmp_path: Path) -> None:
    """Columns of one value, and of pairs that meet in memory: NaN wins, the lowest value loses."""
    pairs = [(a, b) for a in SPECIAL for b in SPECIAL]
    plans = [
        (dtype, plan_of("reduction", fusion, **shape_of(COLUMNS), grid_reduce=method, threads_y=1))
        for dtype in (F32, F64, I32, I64)
        for builder in [GraphBuilder(f"{op}_{dtype}")]
        for x in [builder.input("x", dtype, [15, 64])]
        for fusion in [(builder.output(builder.apply(op, x, dims=[0])), builder.finish())[1]]
    ]
    built = build_all([(s.kernel, s.text) for _, p in plans for s in plan_sources(p)], tmp_path)
    for (dtype, plan), function in zip(plans, built, strict=True):
        x = np.array([[a if row % 5 < 3 else b for a, b in pairs] for row in range(15)])
        if dtype.is_integer:
            ends = np.array([dtype.integers.start, dtype.integers.stop - 1, 0, -1, 1, -7, 3, 5])
            x = ends[np.random.default_rng(0).integers(0, 8, (15, 64))]
            x[:, 0], x[:, 1] = ends[0], ends[1]
        x = x.astype(dtype.numpy)
        (found,) = run_plan(plan, dense(x), tmp_path, built=[function]).values()
        expected = x.max(0) if op == "max" else x.min(0)
        assert np.array_equal(found, expected, equal_nan=dtype.is_float), dtype


@pytest.mark.parametrize("method", ["serial_tma", "parallel"])
def test_half_partials_are_judged_by_their_roundings(method: str, tmp_path: Path) -> None:
    plans = plans_of(method, [("sum", F16)], workspace_dtype="half")
    assert [w.dtype for _, plan in plans for w in plan.workspaces[:1]] == [F16, F16]
    assert all(o.rounded_to == "f16" for _, plan in plans for o in plan.orders.values())
    assert all("in 16 bits" in said(plan) for _, plan in plans)
    for _, plan in plans:
        # The last turn adds in f32; who comes last by arrival has rounded its part, and the sum.
        *_, parts, last = plan.orders["sum_1"].stages
        kept = "f16" if REDUCTION_METHODS[method].on_request else ""
        assert (parts.kept, last.kept, last.rounded) == (kept, kept, "f16")
    assert wrong_in_some_order(plans, tmp_path) == []


@pytest.mark.parametrize(("dtype", "varies"), [(I64, False), (F32, True), (F64, True)])
def test_sums_of_integers_do_not_depend_on_arrival(dtype: DType, varies: bool) -> None:
    for _, plan in plans_of("parallel", [("sum", dtype)]):
        assert plan.orders["sum_1"].arrives == varies
        assert ("on which its bits do not depend" in said(plan)) == (not varies)


@pytest.mark.parametrize(
    ("op", "dtype", "settings", "rule", "words"),
    [
        ("prod", F32, {"grid_reduce": "serial_tma"}, "grid_reduce",
         "cp.reduce.async.bulk cannot combine the product of f32 (`prod_1`); `last_block`, `tree` "
         "and `serial` can"),
        ("var_mean", F32, {"grid_reduce": "parallel"}, "grid_reduce", "the moments of f32"),
        ("argmax", F32, {"grid_reduce": "serial_tma"}, "grid_reduce", "`tree` and `serial` can"),
        ("any", BOOL, {"grid_reduce": "serial_tma"}, "grid_reduce", "of bool"),
        ("sum", F32, {"grid_reduce": "serial", "splits": 1}, "grid_reduce",
         "with one block per result"),
        ("sum", F16, {"grid_reduce": "tree", "workspace_dtype": "half"}, "workspace_dtype",
         "`tree` has no 16-bit partial results; `serial_tma` and `parallel` have"),
        ("sum", F32, {"grid_reduce": "serial_tma", "workspace_dtype": "half"},
         "workspace_dtype", "is f32"),
        ("max", F16, {"grid_reduce": "serial_tma", "workspace_dtype": "half"},
         "workspace_dtype", "is not a sum"),
        ("sum", F16, {"splits": 1, "workspace_dtype": "half"},
         "workspace_dtype", "no partial results"),
    ],
)  # fmt: skip
def test_what_cannot_be_combined_is_refused(
    op: str, dtype: DType, settings: Mapping[str, Setting], rule: str, words: str
) -> None:
    wanted = {**shape_of(ROWS), **settings}
    found = find_scheduler("reduction").refusal(reduction(op, dtype, ROWS), GPU, wanted)
    assert found is not None
    assert found.rule == rule
    assert words in found.because


MOMENTS = """
fusion: f
schedules: {v: {grid_reduce: serial}}
inputs: {x: "f32[8, 65536]"}
ops:
  - v, m = var_mean(x, dims=[1], correction=0)
outputs: [v, m]
"""


def test_a_scheduler_of_the_same_segment_that_has_the_parameter_is_named() -> None:
    with pytest.raises(FusecError) as caught:
        _ = segmented(MOMENTS)
    error = caught.value.render()
    assert "`inner_persistent` (s0) has no parameter `grid_reduce`" in error
    line = "segments: {s0: {values: [v, m], scheduler: reduction}}"
    assert f"for this segment `reduction` has it: `{line}`" in error
    assert segmented(f"{MOMENTS}{line}\n").segments[0].scheduler == "reduction"


def segmented(text: str) -> SegmentedFusion:
    return Compilation(read_text(text, "f.yaml"), CompileOptions(jobs=1)).segmented


def test_older_gpus_have_no_bulk_copies() -> None:
    old = target.find("sm_80")
    for name, method in REDUCTION_METHODS.items():
        wanted = {**shape_of(ROWS), "grid_reduce": name}
        found = find_scheduler("reduction").refusal(reduction("sum", F32, ROWS), old, wanted)
        assert (found is None) == (method.capability <= 80)
        assert found is None or "sm_80 has no cp.reduce.async.bulk" in found.because


@pytest.mark.parametrize("axis", [ROWS, COLUMNS])
@pytest.mark.parametrize("name", ["serial_tma", "parallel", "serial"])
def test_kernels_keep_the_rules_of_memory_order(name: str, axis: int) -> None:
    plan = plan_of("reduction", reduction("sum", F16, axis), **shape_of(axis), grid_reduce=name)
    method, text = REDUCTION_METHODS[name], text_of(plan)
    assert check(text) == []
    assert ("wait_turn" in text) == method.is_serial
    assert ("bits may vary from run to run" in said(plan)) == method.on_request
    zeroed = [w.init == "zeroed once" for w in plan.workspaces]
    assert zeroed == [method.in_memory, True]
    assert_builds(plan)
    if method.in_memory:
        header = device_headers()["combine_in_bulk.cuh"]
        unfenced = header.replace("  fence_proxy_async_shared_cta();\n", "")
        found = check(text, {"combine_in_bulk.cuh": unfenced})
        assert any("proxy fence" in v.rule for v in found)


def test_what_varies_or_loses_bits_is_built_on_request_alone() -> None:
    fusion = reduction("sum", F16, COLUMNS)
    priced = find_scheduler("reduction").estimated_space(fusion, GPU)
    built = [p.settings for p, _ in priced]
    assert {s["grid_reduce"] for s in built} == {
        name for name, m in REDUCTION_METHODS.items() if not m.on_request
    }
    assert {s["workspace_dtype"] for s in built} == {PARTIALS[0]}
