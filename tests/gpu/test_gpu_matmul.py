"""Matrix products on a GPU: every kernel, layout and epilogue against the fp64 reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gpu_check import check_on_gpu
from paths import ROOT

from fusec.ir.annotations import Override
from fusec.ir.dtype import BF16, F16, F32, F64, I32, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder
from fusec.parse.reader import read_file
from fusec.run.binary.sass import sass
from fusec.schedule.matmul.family import MatmulParameters

pytestmark = pytest.mark.gpu


def product(
    m: int, n: int, k: int, dtype: DType = BF16, *, a_columns: bool = False, b_columns: bool = True
) -> Fusion:
    """Return a matrix product; `a_columns` (`b_columns`): the operand is stored transposed."""
    builder = GraphBuilder("product")
    rows, columns, depth = (
        builder.declare_dim(d, s) for d, s in zip("MNK", (m, n, k), strict=True)
    )
    a = builder.input("a", dtype, (depth, rows) if a_columns else (rows, depth))
    b = builder.input("b", dtype, (columns, depth) if b_columns else (depth, columns))
    if a_columns:
        (a,) = builder.call("permute", [a], {"dims": (1, 0)})
    if b_columns:
        (b,) = builder.call("permute", [b], {"dims": (1, 0)})
    (c,) = builder.call("matmul", [a, b], names=["c"])
    builder.output(c)
    return builder.finish()


def kernel_of(checked: object) -> str:
    """Return the kernel that the product runs in."""
    plans = checked.compiled.program.plans  # type: ignore[attr-defined]
    (parameters,) = [p.parameters for p in plans if isinstance(p.parameters, MatmulParameters)]
    return parameters.kernel


@pytest.mark.parametrize(("a_columns", "b_columns"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("shape", [(128, 256, 64), (1, 8, 16), (200, 136, 520), (1000, 512, 328)])
def test_half_products(
    shape: tuple[int, int, int], dtype: DType, a_columns: int, b_columns: int
) -> None:
    fusion = product(*shape, dtype, a_columns=bool(a_columns), b_columns=bool(b_columns))
    check_on_gpu(fusion, scheduler="matmul")


@pytest.mark.parametrize("dtype", [F32, F64, I32, BF16], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 13, 5), (65, 33, 129), (257, 127, 67)])
def test_ragged_products(shape: tuple[int, int, int], dtype: DType) -> None:
    for columns in (False, True):
        check_on_gpu(product(*shape, dtype, b_columns=columns))


@pytest.mark.parametrize("shape", [(0, 8, 16), (8, 0, 16), (8, 8, 0)])
def test_empty_products(shape: tuple[int, int, int]) -> None:
    check_on_gpu(product(*shape))


@pytest.mark.parametrize("method", ["slices", "serial_tma", "serial", "two_pass"])
def test_parts_along_k_are_summed_bitwise_the_same_in_100_runs(method: str) -> None:
    settings = {"kernel": "split_k", "tile_m": 128, "tile_n": 128, "stages": 4, "cluster_k": 4}
    settings |= {"splits": 3, "split_method": method}
    overrides = tuple(Override("c", name, value) for name, value in settings.items())
    fusion = replace(product(256, 256, 65536), schedules=overrides)
    checked = check_on_gpu(fusion, repeats=100)
    texts = [sass(artifact.cubin) for artifact in checked.compiled.artifacts.values()]
    # cp.reduce.async.bulk
    assert any("UBLKRED" in text for text in texts) == (method == "serial_tma")


@pytest.mark.parametrize(
    ("method", "dtype"),
    [
        *((method, dtype) for method in ("slices", "two_pass") for dtype in (BF16, F16)),
        ("serial_tma", F16),  # eight turns in bf16 are inconclusive (decision 172)
    ],
)
def test_parts_along_k_are_left_in_halves(method: str, dtype: DType) -> None:
    settings = {"kernel": "split_k", "tile_m": 128, "tile_n": 128, "stages": 4, "splits": 8}
    settings |= {"split_method": method, "workspace_dtype": "half"}
    overrides = tuple(Override("c", name, value) for name, value in settings.items())
    fusion = replace(product(256, 256, 65536, dtype), schedules=overrides)
    check_on_gpu(fusion, repeats=10, exact=dtype == F16)  # 8 bits of bf16 round whole numbers, too


SPLIT_K = sorted((ROOT / "examples" / "split_k").glob("*.yaml"))


@pytest.mark.parametrize("path", SPLIT_K, ids=lambda p: p.stem)
def test_examples_of_methods_to_sum(path: Path) -> None:
    check_on_gpu(read_file(path), repeats=1 if path.stem == "parallel" else 10)


def test_parts_along_k_are_summed_in_the_order_of_arrival() -> None:
    settings = {"kernel": "split_k", "tile_m": 128, "tile_n": 128, "stages": 4, "cluster_k": 4}
    settings |= {"splits": 7, "split_method": "parallel"}
    overrides = tuple(Override("c", name, value) for name, value in settings.items())
    check_on_gpu(replace(product(256, 256, 65536), schedules=overrides))


@pytest.mark.parametrize("shape", [(128, 128, 131072), (512, 512, 32768), (100, 72, 40000)])
def test_split_products(shape: tuple[int, int, int]) -> None:
    check_on_gpu(product(*shape), repeats=3)


def linear(dtype: DType, m: int, n: int, k: int) -> Fusion:
    builder = GraphBuilder("linear_silu")
    x = builder.input("x", dtype, (m, k))
    w = builder.input("w", dtype, (n, k))
    bias = builder.input("bias", dtype, (n,))
    residual = builder.input("residual", dtype, (m, n))
    (y,) = builder.call("linear", [x, w, bias])
    (y,) = builder.call("silu", [y])
    (y,) = builder.call("add", [y, residual], names=["y"])
    builder.output(y)
    return builder.finish()


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
@pytest.mark.parametrize("shape", [(256, 512, 128), (33, 72, 200)])
def test_linear_with_an_epilogue(shape: tuple[int, int, int], dtype: DType) -> None:
    check_on_gpu(linear(dtype, *shape), scheduler="matmul")


@pytest.mark.parametrize(
    ("tile_m", "tile_n", "ping_pong", "cluster", "staged"),
    [
        (128, 256, False, (1, 1), True),
        (128, 192, False, (2, 1), True),
        (256, 128, False, (1, 2), True),
        (128, 128, True, (1, 1), True),
        (128, 128, True, (2, 1), True),
        (128, 128, True, (1, 2), False),
        (192, 192, False, (1, 1), True),
        (192, 136, False, (1, 2), False),
        (256, 152, False, (1, 1), True),
        (128, 144, False, (2, 2), True),
        (64, 256, True, (2, 2), True),
        (128, 128, True, (4, 1), True),
        (128, 192, False, (1, 4), True),
        (192, 96, False, (4, 2), True),
        (64, 192, True, (2, 4), False),
        (104, 128, True, (2, 1), False),
        (96, 256, False, (1, 4), False),
        (88, 128, False, (1, 1), False),
    ],
)
def test_tiles_of_persistent_products(
    tile_m: int, tile_n: int, ping_pong: bool, cluster: tuple[int, int], staged: bool
) -> None:
    settings = {"kernel": "wgmma", "tile_m": tile_m, "tile_n": tile_n, "ping_pong": ping_pong}
    settings |= {"cluster_m": cluster[0], "cluster_n": cluster[1], "epilogue_smem": staged}
    fusion = linear(BF16, 2300, 2312, 72)  # several tiles for each SM
    overrides = tuple(Override("matmul", name, value) for name, value in settings.items())
    check_on_gpu(replace(fusion, schedules=overrides), scheduler="matmul", repeats=3)


@pytest.mark.parametrize(
    ("tile_m", "tile_n", "ping_pong", "cluster", "splits"),
    [
        (128, 128, True, (1, 1), 4),
        (128, 128, True, (1, 2), 2),
        (128, 192, False, (1, 1), 3),
        (192, 128, False, (2, 1), 2),
        (256, 128, False, (1, 1), 3),
        (128, 96, False, (2, 2), 2),
        (128, 128, True, (4, 1), 3),
    ],
)
def test_parts_of_the_last_wave(
    tile_m: int, tile_n: int, ping_pong: bool, cluster: tuple[int, int], splits: int
) -> None:
    settings = {"kernel": "wgmma", "tile_m": tile_m, "tile_n": tile_n, "ping_pong": ping_pong}
    settings |= {
        "cluster_m": cluster[0],
        "cluster_n": cluster[1],
        "splits": splits,
        "epilogue_smem": True,
    }
    fusion = linear(BF16, 148 * tile_m - 40, tile_n, 1032)  # 148 tiles on 132 SMs
    overrides = tuple(Override("matmul", name, value) for name, value in settings.items())
    check_on_gpu(replace(fusion, schedules=overrides), scheduler="matmul", repeats=20)


@pytest.mark.parametrize(
    ("tile_m", "tile_n", "cluster", "splits"),
    [(128, 128, (1, 1), 5), (192, 144, (2, 1), 4), (104, 128, (1, 1), 4)],
)
def test_parts_of_few_tiles(
    tile_m: int, tile_n: int, cluster: tuple[int, int], splits: int
) -> None:
    settings = {"kernel": "wgmma", "tile_m": tile_m, "tile_n": tile_n, "ping_pong": False}
    settings |= {
        "cluster_m": cluster[0],
        "cluster_n": cluster[1],
        "splits": splits,
        "epilogue_smem": tile_m != 104,
    }
    overrides = tuple(Override("matmul", name, value) for name, value in settings.items())
    fusion = replace(linear(BF16, 500, 528, 1032), schedules=overrides)
    check_on_gpu(fusion, scheduler="matmul", repeats=20)


@pytest.mark.parametrize("columns", [2311, 2314, 4097, 71])
@pytest.mark.parametrize(
    ("tile_m", "tile_n", "ping_pong", "cluster"),
    [(128, 256, False, (1, 1)), (128, 192, True, (2, 1)), (64, 72, True, (1, 1))],
)
def test_rows_of_results_that_begin_anywhere(
    columns: int, tile_m: int, tile_n: int, ping_pong: bool, cluster: tuple[int, int]
) -> None:
    settings = {"kernel": "wgmma", "tile_m": tile_m, "tile_n": tile_n, "ping_pong": ping_pong}
    settings |= {"cluster_m": cluster[0], "cluster_n": cluster[1], "epilogue_smem": True}
    fusion = product(2300, columns, 72)
    overrides = tuple(Override("matmul", name, value) for name, value in settings.items())
    check_on_gpu(replace(fusion, schedules=overrides), scheduler="matmul", repeats=3)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize(
    ("shape", "tile_n", "stages", "splits"),
    [((1, 520, 2056), 16, 2, 1), ((5, 136, 4104), 32, 1, 3), ((8, 64, 8192), 64, 1, 8)],
)
def test_streams_over_b(
    shape: tuple[int, int, int], tile_n: int, stages: int, splits: int, dtype: DType
) -> None:
    settings = {"kernel": "gemv", "tile_m": 8, "tile_n": tile_n}
    settings |= {"stages": stages, "splits": splits}
    overrides = tuple(Override("matmul", name, value) for name, value in settings.items())
    fusion = replace(linear(dtype, *shape), schedules=overrides)
    check_on_gpu(fusion, scheduler="matmul", repeats=20)


@pytest.mark.parametrize("rows", [48, 96, 160, 240])
def test_swapped_operands(rows: int) -> None:
    settings = {"kernel": "split_k", "tile_m": rows, "tile_n": 128, "cluster_k": 2, "splits": 2}
    overrides = tuple(Override("matmul", name, value) for name, value in settings.items())
    fusion = replace(linear(BF16, rows - 5, 264, 1032), schedules=overrides)
    check_on_gpu(fusion, scheduler="matmul", repeats=3)


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((3, 64, 32), (3, 32, 48)),
        ((2, 3, 40, 24), (2, 3, 24, 16)),
        ((5, 16, 32), (32, 64)),
        ((32,), (32, 64)),
        ((16, 32), (32,)),
        ((2, 1, 16, 32), (1, 3, 32, 8)),
    ],
)
def test_batches_and_vectors(
    a_shape: tuple[int, ...], b_shape: tuple[int, ...], dtype: DType
) -> None:
    builder = GraphBuilder("batched")
    (c,) = builder.call(
        "matmul", [builder.input("a", dtype, a_shape), builder.input("b", dtype, b_shape)]
    )
    builder.output(c)
    check_on_gpu(builder.finish())
