"""Products of scaled operands: rows, columns, blocks and groups, from the definition to kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from gpu_check import check_on_gpu

from fusec import driver
from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dtype import BF16, F8E4M3, F8E5M2, F32, I32, DType
from fusec.ir.graph import Fusion
from fusec.ops import TABLE
from fusec.ops.builder.build import GraphBuilder
from fusec.options import CompileOptions
from fusec.reference.evaluate import evaluate
from fusec.reference.verdict import compare
from fusec.run.arrays import StridedArray
from fusec.run.inputs import choose_sizes, random_inputs

SM80 = CompileOptions(targets=("sm_80",), targets_given=True, jobs=1)
M, N, K, G = 24, 40, 64, 3


def scaled(scale1: tuple[int, ...], scale2: tuple[int, ...], *more: str, **options: Any) -> Fusion:
    """Return a scaled product of f8 matrices; `more` of alpha, bias and beta."""
    builder = GraphBuilder("scaled")
    operands = [
        builder.input("a", F8E4M3, [M, K]),
        builder.input("b", F8E5M2, [K, N]),
        builder.input("scale1", F32, scale1),
        builder.input("scale2", F32, scale2),
    ]
    shapes = {"alpha": [1], "bias": [N], "beta": []}
    given = {name: builder.input(name, F32, shapes[name]) for name in more}
    builder.output(builder.apply("scaled_mm", *operands, **given, **options))
    return builder.finish()


SCALES = {
    "tensor": ((), (1,)),
    "rows": ((M, 1), (1, N)),
    "column of a": ((1, K), (1, 1)),
    "blocks of k": ((M, K // 16), (K // 16, N)),
    "squares": ((M // 8, K // 32), (K // 32, N // 20)),
    "row blocks": ((M // 8, 1), (1, N)),
}


def schedulers(fusion: Fusion) -> list[str]:
    return [s.scheduler for s in driver.plan(fusion, SM80).segmented.segments]


@pytest.mark.parametrize("name", SCALES)
def test_values(name: str) -> None:
    fusion = scaled(*SCALES[name], "alpha", "bias", "beta", dtype=F32)
    arrays = {k: np.asarray(v) for k, v in random_inputs(fusion, {}, 0).items()}
    (found,) = evaluate(fusion, arrays, {}).values()
    wide = {k: v.astype(np.float64) for k, v in arrays.items()}
    wanted = TABLE["scaled_mm"].reference(
        *(wide[k] for k in ("a", "b", "scale1", "scale2", "alpha", "bias", "beta"))
    )
    assert np.allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["tensor", "rows"])
def test_scales_of_rows_are_one_kernel_with_the_product(name: str, tmp_path: Path) -> None:
    fusion = scaled(*SCALES[name], "alpha", "bias")
    assert fusion.outputs[0].value.dtype == BF16
    (plan,) = driver.plan(fusion, SM80).plans
    assert plan.scheduler == "matmul"
    given = random_inputs(fusion, choose_sizes(fusion, None), 0)
    verdict = compare(fusion, {}, given, run_plan(plan, given, tmp_path))
    assert verdict.ok, verdict.text()


def test_scales_of_blocks_come_before_the_product() -> None:
    for name in ("blocks of k", "squares"):
        assert schedulers(scaled(*SCALES[name])) == ["pointwise", "pointwise", "matmul"]


def grouped(form: str, scale1: tuple[int, ...], scale2: tuple[int, ...], dtype: DType) -> Fusion:
    builder = GraphBuilder("grouped")
    left, right = (M, K), (K, N)
    left, right = (
        ((G, *left) if form == "columns" else left),
        ((G, *right) if form == "rows" else right),
    )
    operands = [builder.input("a", dtype, left), builder.input("b", dtype, right)]
    operands.append(builder.input("ends", I32, [G]))
    scales = [
        builder.input("scale1", F32, scale1),
        builder.input("scale2", F32, scale2),
    ]
    builder.output(builder.apply("grouped_mm", *operands, *scales, dtype=F32))
    return builder.finish()


GROUPED = {
    "rows": ((M, 1), (G, 1, N), [5, 5, 20]),
    "columns": ((G, M, 1), (1, N), [0, 30, 40]),
    "depth": ((G, M, 1), (G, 1, N), [16, 16, 60]),
}


@pytest.mark.parametrize("form", GROUPED)
def test_scaled_groups(form: str) -> None:
    scale1, scale2, ends = GROUPED[form]
    fusion = grouped(form, scale1, scale2, F8E4M3)
    arrays = {k: np.asarray(v) for k, v in random_inputs(fusion, {}, 0).items()}
    arrays["ends"] = np.asarray(ends, np.int32)
    (found,) = evaluate(fusion, arrays, {}).values()
    a, b, s1, s2 = (arrays[k].astype(np.float64) for k in ("a", "b", "scale1", "scale2"))
    if form == "depth":
        wanted = TABLE["grouped_mm"].reference(a, b, ends) * s1 * s2
    else:
        wanted = TABLE["grouped_mm"].reference(a * s1, b * s2, ends)
    assert np.allclose(found, wanted, rtol=1e-5, atol=1e-5)


MISTAKES = [
    (((M, 3), (1, N)), FusecError, "a scale has a divisor of every extent"),
    (((M,), (1, N)), FusecError, "scale1 with one element, or with 2 dims"),
]


@pytest.mark.parametrize(("shapes", "kind", "message"), MISTAKES)
def test_mistakes(shapes: Any, kind: type[FusecError], message: str) -> None:
    with pytest.raises(kind, match=message):
        scaled(*shapes)


def test_groups_with_scales_along_the_sum_are_refused() -> None:
    with pytest.raises(Unsupported, match="vary along the summed dim"):
        grouped("rows", (M, 4), (G, 1, N), F8E4M3)
    with pytest.raises(FusecError, match=r"scale2 of one element or of shape \[3, 1, 40\]"):
        grouped("rows", (M, 1), (1, N), F8E4M3)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SCALES)
def test_scaled_on_a_gpu(name: str) -> None:
    check_on_gpu(scaled(*SCALES[name], "alpha", "bias", "beta"))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [F8E4M3, BF16], ids=str)
@pytest.mark.parametrize("form", GROUPED)
def test_scaled_groups_on_a_gpu(form: str, dtype: DType) -> None:
    scale1, scale2, ends = GROUPED[form]
    held = StridedArray(np.asarray(ends, np.int32), (G,), (1,))
    check_on_gpu(grouped(form, scale1, scale2, dtype), inputs={"ends": held})
