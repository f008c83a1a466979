"""Grouped products: each form and kernel on the host, with empty groups and rows behind them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from gpu_check import check_on_gpu
from nightly import mostly_nightly

from fusec import driver
from fusec.ir.dim import Dim
from fusec.ir.dtype import BF16, F16, F32, F64, I32, I64, DType
from fusec.ir.evaluate import extents
from fusec.ir.graph import Fusion, Operand
from fusec.ops.builder.build import GraphBuilder
from fusec.options import CompileOptions
from fusec.reference.verdict import compare
from fusec.run.arrays import StridedArray
from fusec.run.build import Source, build
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.registry import find_scheduler
from fusec.target import find

FORMS = ["rows", "columns", "depth"]
TRANSPOSED = [(False, False), (True, False), (False, True), (True, True)]


def product(
    form: str,
    dtype: DType,
    m: int,
    n: int,
    k: int,
    groups: int,
    *,
    ends: DType = I32,
    transposed: tuple[bool, bool] = (False, False),
) -> Fusion:
    """Return a grouped product and its negative; `transposed`: the last two dims as stored."""
    builder = GraphBuilder(f"grouped_{form}")
    sizes = zip("MNKG", (m, n, k, groups), strict=True)
    rows, columns, depth, count = (builder.declare_dim(d, s) for d, s in sizes)
    left, right = (rows, depth), (depth, columns)
    if form == "rows":
        right = (count, *right)
    elif form == "columns":
        left = (count, *left)
    operands = [
        _operand(builder, name, dtype, shape, turned)
        for name, shape, turned in zip("ab", (left, right), transposed, strict=True)
    ]
    c = builder.apply("grouped_mm", *operands, builder.input("ends", ends, [count]))
    builder.output(c)
    builder.output(builder.apply("neg", c))
    return builder.finish()


def _operand(
    builder: GraphBuilder, name: str, dtype: DType, shape: tuple[Dim, ...], turned: bool
) -> Operand:
    if not turned:
        return builder.input(name, dtype, shape)
    stored = (*shape[:-2], shape[-1], shape[-2])
    dims = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    return builder.apply("permute", builder.input(name, dtype, stored), dims=dims)


def held(fusion: Fusion, ends: list[int]) -> StridedArray:
    """Return the ends in the type of their input."""
    kind = next(i.value.dtype for i in fusion.inputs if i.value.name == "ends")
    return StridedArray(np.asarray(ends, kind.numpy), (len(ends),), (1,))


def check(fusion: Fusion, kernel: str, ends: list[int], folder: Path) -> None:
    """Run a grouped product's kernel for sm_80 on the host, and compare."""
    options = CompileOptions(targets=("sm_80",), targets_given=True, jobs=1)
    planned = driver.plan(fusion, options)
    (plan,) = planned.plans
    if plan.kernels:
        assert isinstance(plan.parameters, MatmulParameters)
        assert plan.parameters.kernel == kernel
    sizes = choose_sizes(fusion, None)
    given = {**random_inputs(fusion, sizes, 0), "ends": held(fusion, ends)}
    assert plan.kernels or 0 in extents(fusion.outputs[0].value.type, sizes)
    verdict = compare(fusion, sizes, given, run_plan(plan, given, folder))
    assert verdict.ok, f"{plan.parameters}\n{verdict.text()}"


# Extents m, n, k and the ends: empty groups first, last and in between, ragged edges, no groups.
CASES = [
    ((70, 40, 24), [0, 3, 3, 68, 70]),
    ((70, 40, 24), [13, 20, 20]),
    ((5, 70, 3), [0, 0]),
    ((1, 1, 1), [1]),
    ((9, 66, 7), []),
    ((0, 8, 8), [0, 0]),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("shape", "ends"), CASES, ids=str)
def test_multiply_adds(
    form: str, shape: tuple[int, int, int], ends: list[int], tmp_path: Path
) -> None:
    m, n, k = _cut(form, shape)
    fusion = product(form, F32, m, n, k, len(ends), ends=I64 if len(ends) == 3 else I32)
    check(fusion, "simt", ends, tmp_path)


def _cut(form: str, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return m, n and k, the first of `shape` being what groups cut."""
    cut, second, third = shape
    return {
        "rows": (cut, second, third),
        "columns": (second, cut, third),
        "depth": (second, third, cut),
    }[form]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", mostly_nightly([F64, F16], 2), ids=str)
def test_other_types_and_many_groups(form: str, dtype: DType, tmp_path: Path) -> None:
    ends = sorted((np.arange(70) * 37 % 90).tolist())
    m, n, k = _cut(form, (90, 5, 6))
    check(product(form, dtype, m, n, k, 70), "mma" if dtype is F16 else "simt", ends, tmp_path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("shape", "ends", "transposed"),
    mostly_nightly(
        [((140, 40, 72), [0, 3, 3, 137], turned) for turned in TRANSPOSED]
        + [((150, 7, 33), [1, 140, 150], (False, True))],
        3,
    ),
    ids=str,
)
def test_tensor_cores(
    form: str,
    shape: tuple[int, int, int],
    ends: list[int],
    transposed: tuple[bool, bool],
    tmp_path: Path,
) -> None:
    m, n, k = _cut(form, shape)
    fusion = product(form, BF16, m, n, k, len(ends), transposed=transposed)
    check(fusion, "mma", ends, tmp_path)


def wrong_on_hopper(form: str, folder: Path, edit: Callable[[str], str] = str) -> str:
    """Return what is wrong with Hopper's kernel of a product of four groups, one empty."""
    family: Any = find_scheduler("matmul")
    fusion = product(form, BF16, *_cut(form, (300, 72, 136)), 4)
    plan = family.build(fusion, find("sm_90a"), {"kernel": "wgmma"})
    given = {**random_inputs(fusion, fusion.hints, 0), "ends": held(fusion, [70, 70, 201, 290])}
    orders: tuple[dict[str, Any], ...] = ({"seed": 0}, {"seed": 1, "backwards": True})
    for order in orders:
        outputs = run_plan(plan, given, folder, edit=edit, **order)
        verdict = compare(fusion, fusion.hints, given, outputs)
        if not verdict.ok:
            return f"{order}: {verdict.text()}"
    return ""


def test_groups_of_rows_on_hopper(tmp_path: Path) -> None:
    assert wrong_on_hopper("rows", tmp_path) == ""


@pytest.mark.nightly
def test_rows_behind_all_groups_that_are_not_written_are_seen(tmp_path: Path) -> None:
    def edit(text: str) -> str:
        return text.replace("if (group.index > groups)", "if (group.index >= groups)")

    assert "differs" in wrong_on_hopper("rows", tmp_path, edit)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_kernels_build(form: str, dtype: DType) -> None:
    fusion = product(form, dtype, 512, 256, 128, 8, transposed=(form == "columns", False))
    kernels: dict[str, str] = {}
    for target in ("sm_80", "sm_90a"):
        options = CompileOptions(targets=(target,), targets_given=True, jobs=1)
        planned = driver.plan(fusion, options)
        kernels[target] = planned.plans[0].parameters.kernel  # type: ignore[attr-defined]
        sources = [Source(s.name, s.text) for s in planned.kernel_sources]
        for artifact in build(sources, [target]).values():
            assert (artifact.spill_bytes, artifact.warnings) == (0, ()), artifact.name
    if dtype == F32:
        assert set(kernels.values()) == {"simt"}
    else:
        wgmma = {"rows": "wgmma", "columns": "mma", "depth": "mma"}
        assert kernels == {"sm_80": "mma", "sm_90a": wgmma[form]}


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
@pytest.mark.parametrize(
    ("shape", "ends"),
    [
        *CASES[:5],
        ((1000, 264, 328), [0, 1, 130, 130, 258, 999]),
        ((4096, 512, 256), list(range(64, 4097, 64))),
        ((777, 129, 65), sorted((np.arange(200) * 37 % 777).tolist())),
    ],
    ids=lambda v: str(v)[:20],
)
def test_on_a_gpu(form: str, dtype: DType, shape: tuple[int, int, int], ends: list[int]) -> None:
    m, n, k = _cut(form, shape)
    for transposed in TRANSPOSED if dtype == BF16 else TRANSPOSED[:1]:
        fusion = product(form, dtype, m, n, k, len(ends), transposed=transposed)
        check_on_gpu(fusion, inputs={"ends": held(fusion, ends)})
