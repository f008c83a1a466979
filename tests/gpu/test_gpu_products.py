"""Matrix products on the GPU among other work: every dtype, chains, other sizes than planned."""

from __future__ import annotations

import pytest
from gpu_check import check_on_gpu

from fusec.ir.dtype import BF16, F16, F32, F64, I32, I64, DType
from fusec.ir.graph import Fusion
from fusec.ops.builder.build import GraphBuilder

pytestmark = pytest.mark.gpu

SIZES = [
    (1, 1, 1), (7, 33, 5), (16, 8, 16), (64, 64, 64), (128, 256, 64), (129, 257, 65),
    (1, 512, 512), (512, 1, 512), (300, 200, 1000), (256, 512, 2048), (97, 89, 4097),
]  # fmt: skip


def product(m: int, n: int, k: int, dtype: DType) -> Fusion:
    builder = GraphBuilder("product")
    rows, columns, depth = (builder.declare_dim(s, e) for s, e in (("M", m), ("N", n), ("K", k)))
    a, b = builder.input("a", dtype, [rows, depth]), builder.input("b", dtype, [depth, columns])
    builder.output(builder.apply("matmul", a, b))
    return builder.finish()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [BF16, F16, F32, F64, I32, I64], ids=str)
def test_sizes_and_dtypes(size: tuple[int, int, int], dtype: DType) -> None:
    check_on_gpu(product(*size, dtype))


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
