"""Products of rows that are computed on their way, on a GPU against the fp64 reference."""

from __future__ import annotations

import pytest
from gpu_check import check_on_gpu
from test_computed_on_cpu import LAYER, RMS, ROUNDED, normalised
from test_gpu_operands import parameters_of, whole, with_fields

pytestmark = pytest.mark.gpu

FORMS = {"rms": RMS, "layer": LAYER, "rounded": ROUNDED}


@pytest.mark.parametrize("by", FORMS)
@pytest.mark.parametrize("half", ["bf16", "f16"])
@pytest.mark.parametrize("rows", [1, 4, 8])
def test_streams(rows: int, half: str, by: str) -> None:
    fusion = with_fields(normalised(rows, 2312, 4104, FORMS[by], half), kernel="gemv")
    assert parameters_of(check_on_gpu(whole(fusion), scheduler="matmul", repeats=3)).tile_m == 8


@pytest.mark.parametrize("by", FORMS)
@pytest.mark.parametrize("half", ["bf16", "f16"])
@pytest.mark.parametrize("rows", [1, 8, 16, 29, 32])
def test_rings(rows: int, half: str, by: str) -> None:
    fusion = with_fields(normalised(rows, 2312, 4104, FORMS[by], half), kernel="split_k")
    assert parameters_of(check_on_gpu(whole(fusion), scheduler="matmul", repeats=3)).swap_ab


@pytest.mark.parametrize(
    "fields",
    [
        {"tile_m": 16, "tile_n": 256, "stages": 3, "cluster_k": 4, "splits": 1},
        {"tile_m": 32, "tile_n": 128, "stages": 5, "cluster_k": 2, "splits": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("across", [False, True])
def test_tiles(fields: dict[str, object], across: bool) -> None:
    fusion = normalised(24, 2312, 4104, RMS, across=across)
    fusion = whole(with_fields(fusion, kernel="split_k", **fields))
    check_on_gpu(fusion, scheduler="matmul", repeats=3)


def test_what_is_chosen_for_few_rows() -> None:
    for rows, kernel in ((4, "gemv"), (32, "split_k")):
        checked = check_on_gpu(whole(normalised(rows, 4096, 4096)), repeats=3)
        assert parameters_of(checked).kernel == kernel
