"""A maximum and the sum of exponentials less it in one reading: which graphs, numbers, plans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from families import GPU, assert_builds, estimate, plan_of, refused_rule, text_of
from test_inner_persistent import softmax

from fusec import driver
from fusec.ir.dtype import BF16, F16, F32, F64, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.options import CompileOptions
from fusec.reference.verdict import compare
from fusec.run.arrays import StridedArray
from fusec.run.inputs import random_inputs
from fusec.schedule.plan import KernelPlan
from fusec.schedule.registry import find_scheduler


def log_sum_exp(dtype: DType, rows: int, columns: int, dim: int = 1) -> Fusion:
    """Return the logarithm of the sum of the exponentials along a dim, shifted by the maximum."""
    builder = GraphBuilder("log_sum_exp")
    shape = [builder.declare_dim(n, e) for n, e in zip("BH", (rows, columns), strict=True)]
    x = builder.input("x", dtype, shape)
    wide = builder.apply("cast", x, dtype=F32) if dtype.is_half else x
    top = builder.apply("max", wide, dims=[dim])
    spread = builder.apply("broadcast", top, is_broadcast_dim=[k == dim for k in range(2)])
    powers = builder.apply("exp", builder.apply("sub", wide, spread))
    total = builder.apply("sum", powers, dims=[dim])
    builder.output(builder.apply("add", builder.apply("log", total), top))
    builder.output(total)
    return builder.finish()


def online(fusion: Fusion, **settings: Any) -> KernelPlan:
    """Return the plan of a row kernel that reads rows from memory each time, or as is set."""
    family: Any = find_scheduler("inner_persistent")
    return family.build(fusion, GPU, {"storage": "none", "online": True, **settings})


PLANS: dict[str, tuple[Callable[[], Fusion], Callable[[Fusion], KernelPlan]]] = {
    "rows": (lambda: log_sum_exp(BF16, 5, 1000), lambda f: plan_of("reduction", f)),
    "odd rows": (lambda: log_sum_exp(F32, 3, 77), lambda f: plan_of("reduction", f)),
    "doubles": (lambda: log_sum_exp(F64, 3, 130), lambda f: plan_of("reduction", f)),
    "split": (lambda: log_sum_exp(F16, 2, 40_000), lambda f: plan_of("reduction", f)),
    "columns": (lambda: log_sum_exp(F32, 40, 24, dim=0), lambda f: plan_of("reduction", f)),
    "softmax": (lambda: softmax(BF16, 3, 520), online),
    "in registers": (lambda: softmax(F32, 3, 96), lambda f: online(f, storage="registers")),
    "log_softmax": (lambda: softmax(F32, 2, 77, "log_softmax"), online),
}


@pytest.mark.parametrize("name", PLANS)
def test_kernels_compute_the_fusion(name: str, tmp_path: Path) -> None:
    make, planned = PLANS[name]
    fusion = make()
    plan = planned(fusion)
    assert "ExpSum" in text_of(plan)
    inputs = random_inputs(fusion, fusion.hints)
    for backwards in (False, True):
        verdict = compare(
            fusion, fusion.hints, inputs, run_plan(plan, inputs, tmp_path, backwards=backwards)
        )
        assert verdict.ok, verdict.text()


SPECIAL = np.array([[-np.inf] * 77, [-np.inf, 1.0] * 38 + [-np.inf], [2.0, np.inf] + [0.0] * 75,
                    [np.nan] + [3.0] * 76, [np.inf] * 77, [-np.inf] * 76 + [np.nan],
                    [-np.inf] * 70 + [5.0] * 7, [-3e38, 3e38] + [0.0] * 75],
                   np.float32)  # fmt: skip


@pytest.mark.parametrize("dim", [0, 1])
def test_infinities_and_nan(dim: int, tmp_path: Path) -> None:
    values = np.ascontiguousarray(SPECIAL if dim else SPECIAL.T)
    fusion = log_sum_exp(F32, *values.shape, dim=dim)
    inputs = {"x": StridedArray(values.ravel().copy(), values.shape, (values.shape[1], 1))}
    outputs = run_plan(plan_of("reduction", fusion), inputs, tmp_path)
    with np.errstate(all="ignore"):
        top = SPECIAL.max(axis=1, keepdims=True)
        total = np.exp(SPECIAL.astype(np.float64) - top).sum(axis=1)
        expected = [np.log(total) + top[:, 0], total]
    for found, wanted in zip(outputs.values(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("total *= exponential(top - shift);", ""),
        (" * exponential(lower.top - top)", ""),
        ("if (lower.top == Limits<T>::lowest()) return upper;", ""),
        ("most == Limits<T>::lowest() ? T(0) : most", "most"),
    ],
)
def test_a_step_that_is_left_out_is_seen(old: str, new: str, tmp_path: Path) -> None:
    values = np.linspace(-20, 20, 7 * 200, dtype=np.float32).reshape(7, 200)
    values[:4, :17], values[4:, :-3] = -np.inf, -np.inf
    fusion = log_sum_exp(F32, 7, 200)
    inputs = {"x": StridedArray(values.ravel().copy(), values.shape, (200, 1))}
    plan, edited = plan_of("reduction", fusion), list[bool]()

    def edit(text: str) -> str:
        edited.append(old in text)
        return text.replace(old, new)

    outputs = run_plan(plan, inputs, tmp_path, edit=edit)
    assert any(edited)
    assert not compare(fusion, fusion.hints, inputs, outputs).ok


def test_a_row_that_no_chip_holds_is_read_once() -> None:
    fusion = log_sum_exp(BF16, 8192, 131072)
    assert estimate("reduction", fusion).bytes == 8192 * (131072 * 2 + 8)
    assert refused_rule("inner_persistent", fusion) == "persistence"
    assert_builds(plan_of("reduction", fusion))


def test_explain_lists_it() -> None:
    options = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)
    found = driver.plan(log_sum_exp(BF16, 64, 131072), options).segmented
    assert [s.scheduler for s in found.segments] == ["reduction"]
    (decision,) = (d for d in found.decisions if d.because.startswith("online"))
    assert "in one pass with the maximum" in decision.because


def other_maximum(b: GraphBuilder, x: Any) -> Any:
    top = b.apply("max", b.apply("neg", x), dims=[1], keepdim=True)
    return b.apply("sum", b.apply("exp", b.apply("sub", x, top)), dims=[1])


def other_dims(b: GraphBuilder, x: Any) -> Any:
    top = b.apply("max", x, dims=[1], keepdim=True)
    return b.apply("sum", b.apply("exp", b.apply("sub", x, top)), dims=[0])


def other_power(b: GraphBuilder, x: Any) -> Any:
    top = b.apply("max", x, dims=[1], keepdim=True)
    return b.apply("sum", b.apply("exp2", b.apply("sub", x, top)), dims=[1])


@pytest.mark.parametrize("make", [other_maximum, other_dims, other_power])
def test_what_only_looks_alike_stays(make: Callable[[GraphBuilder, Any], Any]) -> None:
    builder = GraphBuilder("alike")
    builder.output(make(builder, builder.input("x", F32, [16, 16])))
    fusion = builder.finish()
    family: Any = find_scheduler("reduction")
    assert family.propose(fusion, GPU).rule in ("depth", "reduction_axes")
