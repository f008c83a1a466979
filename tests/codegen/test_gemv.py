"""Products with few rows: what the kernel that streams over B computes, and when there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import mostly_nightly
from test_hopper_on_cpu import MORE_ORDERS, ORDERS, plan_of, product, wrong

from fusec import target
from fusec.diagnostics import Unsupported
from fusec.ir.dtype import BF16, F16, F32, DType
from fusec.ir.graph import Fusion
from fusec.run.inputs import random_inputs
from fusec.schedule.matmul.family import Matmul, MatmulPlan
from fusec.schedule.plan import Plan

HOPPER = target.find("sm_90a")


def streamed(fusion: Fusion, **wanted: object) -> MatmulPlan:
    """Return the plan of a stream with some of its parameters given."""
    plan = plan_of(fusion, "gemv", **wanted)
    assert plan.kernels[0].template == "matmul_gemv"
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize(
    ("m", "tile_m", "tile_n", "stages"),
    mostly_nightly(
        [(1, 8, 16, 1), (8, 8, 64, 1), (5, 8, 32, 2), (11, 16, 16, 2), (3, 32, 32, 1)], 3
    ),
)
def test_every_tile(m: int, tile_m: int, tile_n: int, stages: int, tmp_path: Path) -> None:
    fusion = product(m, 72, 1096, bias=True)
    plan = streamed(fusion, tile_m=tile_m, tile_n=tile_n, stages=stages, splits=1)
    assert wrong(fusion, plan, tmp_path) == ""


@pytest.mark.parametrize(("splits", "depth"), [(2, 1032), (3, 1600), (5, 2568)])
def test_blocks_that_share_k(splits: int, depth: int, tmp_path: Path) -> None:
    fusion = product(3, 40, depth, dtype=F16, bias=True)
    assert wrong(fusion, streamed(fusion, splits=splits), tmp_path) == ""


def test_several_tiles_of_rows_and_batches(tmp_path: Path) -> None:
    fusion = product(11, 24, 136, batches=2)
    assert wrong(fusion, streamed(fusion, tile_m=8, tile_n=16), tmp_path) == ""


def test_the_sum_does_not_depend_on_who_is_last(tmp_path: Path) -> None:
    fusion = product(2, 24, 2056)
    plan, inputs = streamed(fusion, splits=4), random_inputs(fusion, fusion.hints, 0)
    found = [run_plan(plan, inputs, tmp_path, seed=seed)["c"] for seed in range(4)]
    assert all(np.array_equal(each.view(np.uint16), found[0].view(np.uint16)) for each in found)


def test_what_a_thread_cannot_hold_is_refused_as_such() -> None:
    with pytest.raises(Unsupported, match="a thread would need 112 words"):
        streamed(product(17, 24, 8), stages=2)


@given(
    st.integers(1, 20), st.integers(1, 90), st.integers(1, 160), st.integers(1, 3),
    st.sampled_from([1, 2]),
)  # fmt: skip
@settings(max_examples=4, deadline=None)
@pytest.mark.nightly
def test_drawn_products(m: int, n: int, eights: int, splits: int, stages: int) -> None:
    from tempfile import TemporaryDirectory

    fusion = product(m, n, 8 * eights)
    splits = min(splits, -(-8 * eights // 512))
    stages = stages if m <= 16 else 1  # a thread holds no two of 32 rows
    with TemporaryDirectory() as folder:
        plan = streamed(fusion, splits=splits, stages=stages)
        assert wrong(fusion, plan, Path(folder), ORDERS[:1]) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("!is_guarded || is_lane_inside(at, 8, last)", "true"),
        ("start + kOwn <= last", "start < last"),
        ("start += Part::kDepth", "start += 2 * Part::kDepth"),
        ("wanted < last ? wanted : last", "wanted"),
        ("for (int warp = 1;", "for (int warp = 2;"),
        ("for (int split = 0;", "for (int split = 1;"),
        ("half * (kPart / 2)", "half * (kPart / 4)"),
    ],
)
def test_a_wrong_kernel_is_seen(old: str, new: str, tmp_path: Path) -> None:
    fusion, edits = product(3, 20, 1264), 0

    def edit(text: str) -> str:
        nonlocal edits
        edits += old in text
        return text.replace(old, new)

    plan = streamed(fusion, splits=2, stages=2, tile_n=16)
    assert wrong(fusion, plan, tmp_path, MORE_ORDERS, edit)
    assert edits


def test_without_a_barrier_sums_are_read_before_they_are_there(tmp_path: Path) -> None:
    fusion = product(3, 20, 520)

    def edit(text: str) -> str:
        return text.replace("(tiles[threadIdx.x / 32], accumulators);\n  __syncthreads();",
                            "(tiles[threadIdx.x / 32], accumulators);")  # fmt: skip

    assert wrong(fusion, streamed(fusion), tmp_path, MORE_ORDERS, edit)


@pytest.mark.parametrize(
    ("fusion", "why"),
    [
        (product(4, 64, 64, b_columns=False), "`b` is not contiguous along K"),
        (product(4, 64, 64, a_columns=True), "`a` is not contiguous along K"),
        (product(4, 64, 100), "not a multiple of 16 bytes"),
        (product(4, 64, 64, dtype=F32), "f32 GEMMs do not use tensor cores"),
    ],
)
def test_what_does_not_stream_is_refused(fusion: Fusion, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        plan_of(fusion, "gemv")


STREAM = {
    "kernel": "gemv", "tile_m": 8, "tile_n": 16, "stages": 1, "cluster_k": 1, "splits": 1,
    "split_method": "slices", "vector_width": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"tile_m": 64}, "does not support tile_m 64; it supports 8, 16, 32"),
        ({"tile_n": 128}, "does not support tile_n 128; it supports 16, 32, 64"),
        ({"stages": 3}, "supports 1, 2 or 4 stages, not 3"),
        ({"cluster_k": 2}, "supports only `slices`"),
        ({"splits": 2, "split_method": "two_pass"}, "supports only `slices`"),
        ({"splits": 9}, "9 CTAs share 8 steps along K"),
        ({"tile_m": 32, "tile_n": 64}, "shared memory has 1024"),
        ({"tile_m": 8, "tile_n": 64, "stages": 4}, "words for loads in flight"),
        (
            {"kernel": "split_k", "tile_m": 8, "tile_n": 128},
            "kernel `split_k` needs tile_m to be a multiple of 16, not 8",
        ),
    ],
)
def test_what_a_stream_has_not_is_refused(wanted: dict[str, Any], why: str) -> None:
    fusion = product(8, 256, 4096)
    with pytest.raises(Unsupported, match=why):
        Matmul().build(fusion, HOPPER, {**STREAM, **wanted})


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("rows", [1, 4, 8])
def test_few_rows_take_the_stream(rows: int, dtype: DType) -> None:
    plan = Matmul().build(product(rows, 8192, 8192, dtype=dtype), HOPPER)
    assert plan.parameters.kernel == "gemv"


def test_many_rows_do_not() -> None:
    plan = Matmul().build(product(128, 8192, 8192), HOPPER)
    assert plan.parameters.kernel != "gemv"
