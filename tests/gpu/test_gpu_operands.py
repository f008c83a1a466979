"""Products of 8-bit operands, and joined ones, on a GPU against the fp64 reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_check import check_on_gpu
from test_block_scales_on_cpu import block_scaled
from test_converted_on_cpu import weighted
from test_dual_on_cpu import RESIDUAL, SWIGLU, joined
from test_fp8_on_cpu import scaled
from test_weight_forms_on_cpu import ACROSS, ALONG
from test_weights_on_cpu import CAT, OFFSET, SHIFTED, SIGNED, grouped
from weight_forms import Form, weights_of

from fusec.ir.annotations import Override, Pin
from fusec.ir.graph import Fusion
from fusec.schedule.matmul.family import MatmulParameters

pytestmark = pytest.mark.gpu

SIZES = [(24, 136, 656), (304, 328, 400), (520, 1160, 528)]


def with_fields(fusion: Fusion, **fields: object) -> Fusion:
    """Return the fusion with fields of its product's schedule set."""
    overrides = tuple(Override("matmul", name, value) for name, value in fields.items())  # pyright: ignore[reportArgumentType]
    return replace(fusion, schedules=overrides)


def whole(fusion: Fusion) -> Fusion:
    """Return the fusion as one segment of a product."""
    values = tuple(v.name for n in fusion.nodes for v in n.outputs)
    return replace(fusion, pins=(Pin("whole", values, "matmul"),))


def parameters_of(checked: object) -> MatmulParameters:
    """Return the parameters of the one kernel that ran."""
    (plan,) = checked.compiled.program.plans  # type: ignore[attr-defined]
    assert isinstance(plan.parameters, MatmulParameters)
    return plan.parameters


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("types", [("f8e4m3", "f8e4m3"), ("f8e5m2", "f8e4m3")], ids=str)
def test_products_of_8_bit_floats(size: tuple[int, int, int], types: tuple[str, str]) -> None:
    checked = check_on_gpu(scaled(*size, *types), scheduler="matmul", repeats=3)
    assert parameters_of(checked).tile_k == 128


@pytest.mark.parametrize(
    "fields",
    [
        {"kernel": "wgmma", "tile_m": 256, "tile_n": 128, "cluster_m": 2},
        {"kernel": "wgmma", "tile_m": 128, "tile_n": 192, "cluster_n": 2},
        {"kernel": "split_k", "tile_m": 64, "tile_n": 128, "cluster_k": 2, "splits": 2},
    ],
    ids=str,
)
def test_tiles_of_8_bit_floats(fields: dict[str, object]) -> None:
    check_on_gpu(with_fields(scaled(2300, 2312, 656), **fields), scheduler="matmul", repeats=3)


@pytest.mark.parametrize("by", [SWIGLU, RESIDUAL], ids=["swiglu", "residual"])
@pytest.mark.parametrize("along", [True, False])
def test_joined_products(by: str, along: bool) -> None:
    checked = check_on_gpu(joined(1000, 2304, 520, by, along=along), repeats=3)
    assert parameters_of(checked).dual


@pytest.mark.parametrize(
    "fields",
    [
        {"tile_m": 64, "tile_n": 256, "ping_pong": True, "cluster_m": 1, "cluster_n": 1},
        {"tile_m": 256, "tile_n": 128, "ping_pong": False, "cluster_m": 2},
        {"tile_m": 128, "tile_n": 192, "ping_pong": False, "cluster_n": 2},
    ],
    ids=str,
)
def test_tiles_of_joined_products(fields: dict[str, object]) -> None:
    fusion = with_fields(joined(2300, 2312, 72), kernel="wgmma", epilogue_smem=True, **fields)
    check_on_gpu(fusion, scheduler="matmul", repeats=3)


@pytest.mark.parametrize(
    ("rows", "fields"),
    [
        (1, {"tile_m": 16, "tile_n": 128, "cluster_k": 1, "splits": 1}),
        (29, {"tile_m": 32, "tile_n": 256, "cluster_k": 2, "splits": 2, "split_method": "slices"}),
        (130, {"tile_m": 64, "tile_n": 128, "splits": 3, "split_method": "serial_tma"}),
        (
            300,
            {"tile_m": 128, "tile_n": 128, "cluster_k": 2, "splits": 2, "split_method": "slices"},
        ),
        (300, {"tile_m": 128, "tile_n": 256, "cluster_n": 2, "splits": 1}),
    ],
    ids=str,
)
@pytest.mark.parametrize("along", [True, False])
def test_split_joined_products(rows: int, fields: dict[str, object], along: bool) -> None:
    fusion = joined(rows, 2312, 2056, RESIDUAL, along=along)
    check_on_gpu(with_fields(fusion, kernel="split_k", **fields), scheduler="matmul", repeats=3)


@pytest.mark.parametrize("half", ["bf16", "f16"])
@pytest.mark.parametrize("rows", [1, 16, 100, 256])
def test_converted_weights(rows: int, half: str) -> None:
    fusion = with_fields(weighted(rows, 2312, 1040, half), kernel="split_k")
    checked = check_on_gpu(whole(fusion), scheduler="matmul", repeats=3)
    assert parameters_of(checked).converted


@pytest.mark.parametrize(
    ("size", "fields"),
    [
        ((128, 1024, 1152), {}),
        ((24, 1152, 640), {"kernel": "split_k", "tile_m": 32, "cluster_k": 2}),
        ((130, 1152, 640), {"kernel": "wgmma", "tile_m": 128, "tile_n": 56, "cluster_n": 2}),
        ((2300, 2304, 384), {"kernel": "wgmma", "tile_m": 256, "tile_n": 128, "cluster_m": 2}),
    ],
    ids=str,
)
def test_scales_of_blocks(size: tuple[int, int, int], fields: dict[str, object]) -> None:
    fusion = with_fields(block_scaled(*size), **fields)
    checked = check_on_gpu(fusion, scheduler="matmul", repeats=3)
    assert parameters_of(checked).tile_k == 128


UNPACKED = {"bytes": "", "offset": OFFSET, "cat": CAT, "shifted": SHIFTED, "signed": SIGNED}


@pytest.mark.parametrize("unpacked", UNPACKED)
@pytest.mark.parametrize(("rows", "half"), [(1, "bf16"), (13, "f16"), (40, "bf16")])
@pytest.mark.parametrize("kernel", ["gemv", "split_k"])
def test_weights_with_scales_along_k(kernel: str, rows: int, half: str, unpacked: str) -> None:
    fusion = with_fields(grouped(rows, 520, 1280, UNPACKED[unpacked], half), kernel=kernel)
    checked = check_on_gpu(whole(fusion), scheduler="matmul", repeats=3)
    assert parameters_of(checked).converted


@pytest.mark.parametrize("rows", [1, 16])
def test_weights_scaled_by_columns_are_streamed(rows: int) -> None:
    fusion = with_fields(weighted(rows, 520, 2064), kernel="gemv")
    check_on_gpu(fusion, scheduler="matmul", repeats=3)


@pytest.mark.parametrize("form", [*ALONG, *ACROSS], ids=str)
@pytest.mark.parametrize("rows", [1, 13])
def test_forms_of_weights_are_streamed(form: Form, rows: int) -> None:
    fusion = whole(with_fields(weights_of(form, rows, 512, 1280), kernel="gemv"))
    assert parameters_of(check_on_gpu(fusion, scheduler="matmul", repeats=3)).converted


@pytest.mark.parametrize("form", [*ALONG, *ACROSS], ids=str)
@pytest.mark.parametrize("rows", [16, 200])
def test_forms_of_weights_are_converted(form: Form, rows: int) -> None:
    fusion = whole(with_fields(weights_of(form, rows, 544, 1280), kernel="split_k"))
    assert parameters_of(check_on_gpu(fusion, scheduler="matmul", repeats=3)).converted
