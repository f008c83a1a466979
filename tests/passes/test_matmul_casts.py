"""Products of operands that are wider than what lies in memory, read as they lie there."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda_on_cpu import run_plan
from gpu_check import check_on_gpu
from nightly import mostly_nightly

from fusec import driver
from fusec.ir.dtype import BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.options import CompileOptions
from fusec.reference.verdict import compare
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.schedule.matmul.choice import MatmulParameters


def product(
    left: DType, right: DType, wide: DType, shape: tuple[int, int, int], transposed: bool = False
) -> Fusion:
    """Return a product in `wide` of operands in memory as `left` and `right`."""
    m, n, k = shape
    builder = GraphBuilder("widened")
    a = builder.input("a", left, [m, k])
    b = builder.input("b", right, [n, k] if transposed else [k, n])
    if transposed:
        b = builder.apply("permute", b, dims=[1, 0])
    operands = [x if x.dtype == wide else builder.apply("cast", x, dtype=wide) for x in (a, b)]
    builder.output(builder.apply("matmul", *operands))
    return builder.finish()


CASES = [
    (F8E4M3, F8E4M3, F32, "mma"), (F8E4M3, F8E5M2, F32, "mma"), (F8E5M2, F8E5M2, F8E5M2, "mma"),
    (F8E4M3, BF16, F32, "mma"), (F16, F8E5M2, F32, "mma"), (F8E4M3, BF16, BF16, "mma"),
    (BF16, BF16, F32, "mma"), (F16, BF16, F32, "simt"), (BF16, F32, F32, "simt"),
    (F16, F16, F64, "simt"), (I8, I8, I32, "simt"),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right", "wide", "kernel"), mostly_nightly(CASES, 2), ids=str)
def test_casts_are_part_of_the_product(
    left: DType, right: DType, wide: DType, kernel: str, tmp_path: Path
) -> None:
    options = CompileOptions(targets=("sm_80",), targets_given=True, jobs=1)
    # Aligned and ragged extents: both ways to fill a tile.
    for number, (shape, transposed) in enumerate([((40, 48, 80), True), ((33, 9, 37), False)]):
        fusion = product(left, right, wide, shape, transposed)
        (plan,) = driver.plan(fusion, options).plans
        assert isinstance(plan.parameters, MatmulParameters)
        assert plan.parameters.kernel == kernel
        given = random_inputs(fusion, choose_sizes(fusion, None), 0)
        folder = tmp_path / str(number)
        folder.mkdir()
        verdict = compare(fusion, {}, given, run_plan(plan, given, folder))
        assert verdict.ok, verdict.text()


def test_halves_in_f32_are_copied_in_bulk() -> None:
    options = CompileOptions(targets=("sm_90a",), targets_given=True, jobs=1)
    found = {}
    for dtype in (BF16, F8E4M3):
        (plan,) = driver.plan(product(dtype, dtype, F32, (256, 256, 256)), options).plans
        assert isinstance(plan.parameters, MatmulParameters)
        found[dtype] = plan.parameters.kernel
    assert found == {BF16: "wgmma", F8E4M3: "mma"}


def test_a_cast_that_rounds_is_no_part_of_the_product() -> None:
    options = CompileOptions(targets=("sm_80",), targets_given=True, jobs=1)
    fusion = product(F32, BF16, BF16, (64, 64, 64))
    kinds = [s.scheduler for s in driver.plan(fusion, options).segmented.segments]
    assert kinds == ["pointwise", "matmul"]


@pytest.mark.gpu
@pytest.mark.parametrize(("left", "right", "wide", "kernel"), CASES, ids=str)
@pytest.mark.parametrize("shape", [(256, 384, 512), (129, 65, 257)], ids=str)
def test_on_a_gpu(
    left: DType, right: DType, wide: DType, kernel: str, shape: tuple[int, int, int]
) -> None:
    for transposed in (False, True):
        check_on_gpu(product(left, right, wide, shape, transposed))
