"""Matrix products on the GPU: layouts, dtypes, ragged sizes, batches, epilogues, split K."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from gpu_check import Checked, check_on_gpu

from fusec.ir.dtype import BF16, F16, F32, F64, I32, I64, DType
from fusec.ir.graph import Fusion
from fusec.ops.build import GraphBuilder

pytestmark = pytest.mark.gpu

SIZES = [
    (1, 1, 1), (7, 33, 5), (16, 8, 16), (64, 64, 64), (128, 256, 64), (129, 257, 65),
    (1, 512, 512), (512, 1, 512), (300, 200, 1000), (256, 512, 2048), (97, 89, 4097),
]  # fmt: skip


def product(
    m: int, n: int, k: int, dtype: DType, *, turned: tuple[bool, bool] = (False, False)
) -> Fusion:
    """Return a product; a turned operand is the transpose of one that lies in memory."""
    builder = GraphBuilder("product")
    rows, columns, depth = (builder.declare_dim(s, e) for s, e in (("M", m), ("N", n), ("K", k)))
    shapes = [[rows, depth], [depth, columns]]
    operands: list[Any] = []
    for name, shape, turn in zip("ab", shapes, turned, strict=True):
        operand: Any = builder.input(name, dtype, shape[::-1] if turn else shape)
        operands.append(builder.apply("permute", operand, dims=[1, 0]) if turn else operand)
    builder.output(builder.apply("matmul", *operands))
    return builder.finish()


def kernel_of(checked: Checked) -> str:
    return next(
        p.parameters.kernel for p in checked.compiled.planned.plans if p.scheduler == "matmul"
    )


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [BF16, F16, F32, F64, I32, I64], ids=str)
def test_sizes_and_dtypes(size: tuple[int, int, int], dtype: DType) -> None:
    check_on_gpu(product(*size, dtype))


@pytest.mark.parametrize("turned", list(itertools.product([False, True], repeat=2)), ids=str)
@pytest.mark.parametrize("size", [(128, 192, 320), (130, 70, 90), (64, 8, 24)], ids=str)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_layouts(size: tuple[int, int, int], turned: tuple[bool, bool], dtype: DType) -> None:
    check_on_gpu(product(*size, dtype, turned=turned))


@pytest.mark.parametrize("size", [(0, 8, 8), (8, 0, 8), (8, 8, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_nothing_to_multiply(size: tuple[int, int, int], dtype: DType) -> None:
    check_on_gpu(product(*size, dtype))


@pytest.mark.parametrize("depth", [16384, 65536, 131072])
@pytest.mark.parametrize("tile", [(256, 256), (128, 128), (136, 264)], ids=str)
def test_split_k_is_the_same_every_time(depth: int, tile: tuple[int, int]) -> None:
    checked = check_on_gpu(product(*tile, depth, BF16), scheduler="matmul", repeats=10)
    assert kernel_of(checked) in ("split_k", "mma")


@pytest.mark.parametrize("size", [(1024, 1024, 512), (2048, 512, 4096), (520, 1032, 264)], ids=str)
def test_large_products(size: tuple[int, int, int]) -> None:
    check_on_gpu(product(*size, BF16), repeats=3)


@pytest.mark.parametrize("shapes", [
    ((5, 40, 72), (5, 72, 24)), ((5, 40, 72), (72, 24)), ((40, 72), (5, 72, 24)),
    ((2, 3, 33, 17), (2, 3, 17, 9)), ((2, 1, 32, 16), (1, 3, 16, 64)), ((72,), (72, 24)),
    ((40, 72), (72,)), ((72,), (72,)), ((4, 40, 72), (72,)),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_batches_and_vectors(shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: DType) -> None:
    builder = GraphBuilder("batched")
    a, b = (builder.input(n, dtype, s) for n, s in zip("ab", shapes, strict=True))
    builder.output(builder.apply("matmul", a, b))
    check_on_gpu(builder.finish())


@pytest.mark.parametrize("size", [(128, 256, 512), (100, 72, 136), (33, 17, 65)], ids=str)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_linear_with_an_epilogue(size: tuple[int, int, int], dtype: DType, bias: bool) -> None:
    m, n, k = size
    builder = GraphBuilder("linear")
    x, w = builder.input("x", dtype, [m, k]), builder.input("w", dtype, [n, k])
    operands = [x, w] + ([builder.input("bias", dtype, [n])] if bias else [])
    z = builder.apply("cast", builder.apply("linear", *operands), dtype=F32)
    gate = builder.input("gate", F32, [m, n])
    y = builder.apply("mul", builder.apply("gelu", z), gate)
    builder.output(builder.apply("cast", y, dtype=dtype))
    builder.output(builder.apply("gt", z, 0.0))
    check_on_gpu(builder.finish())


def test_a_product_of_computed_operands_and_its_row_sums() -> None:
    builder = GraphBuilder("chain")
    a, b = builder.input("a", F32, [70, 90]), builder.input("b", F32, [90, 50])
    left = builder.apply("cast", builder.apply("exp", a), dtype=BF16)
    c = builder.apply("matmul", left, builder.apply("cast", b, dtype=BF16))
    builder.output(builder.apply("sum", builder.apply("cast", c, dtype=F32), dims=[1]))
    d = builder.input("d", BF16, [50, 30])
    builder.output(builder.apply("matmul", c, d))
    check_on_gpu(builder.finish())


def test_other_row_counts_than_compiled_for() -> None:
    for rows in (1, 100, 129, 1000, 0):
        check_on_gpu(product(128, 256, 512, BF16), run_sizes={"M": rows})
