"""Split products summed by a kernel of their own, on the host, and that wrong ones are seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from nightly import mostly_nightly
from test_hopper_on_cpu import dies, plan_of, product, wrong

from fusec.ir.graph import Fusion
from fusec.schedule.plan import KernelPlan

NINE = 9
"""Slices, which two groups of threads share."""


def summed(**changes: object) -> tuple[Fusion, KernelPlan]:
    """Return a ragged product with a bias, and its plan with a kernel that adds slices up."""
    fusion = product(200, 40, 64 * NINE, bias=True)
    shape = {"tile_m": 128, "tile_n": 64, "cluster_k": 1, "splits": NINE, "stages": 2, **changes}
    return fusion, plan_of(fusion, "split_k", **shape, split_method="two_pass")


@pytest.mark.parametrize(
    "changes",
    mostly_nightly(
        [
            {"cluster_m": 2},
            {"tile_n": 128, "splits": 2},
            {"tile_m": 64, "tile_n": 128, "splits": 3},
            {"cluster_k": 2, "splits": 4},
        ],
        2,
    ),
    ids=["pairs", "fragments", "swap_ab", "clusters"],
)
def test_a_second_kernel_adds_slices(changes: dict[str, object], tmp_path: Path) -> None:
    assert wrong(*summed(**changes), tmp_path) == ""


WRONG = {
    "the slice of a turn": ("slices + turn * Config::kSlab", "slices"),
    "a slice is left out": ("split < splits)", "split < splits - 1)"),
    "the slices of a group": ("group * Config::kEach + i", "i"),
    "the sums of the groups": ("sums[g * Config::kQuads + own]", "sums[own]"),
    "no barrier before these": ("] = sum;\n    __syncthreads();", "] = sum;"),
    "which sums lanes exchange": ("is_odd ? sums.x : sums.z", "is_odd ? sums.z : sums.x"),
    "the rows of odd lanes": ("lane % 2 * 8 + lane / 4", "lane / 4"),
    "the second does not wait": ("fusec::wait_for_kernels_before();", ""),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_second_kernel_is_seen(name: str, tmp_path: Path) -> None:
    dies(*summed(), *WRONG[name], tmp_path)
