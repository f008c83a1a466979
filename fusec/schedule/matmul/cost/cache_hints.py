"""Which operands of a split-K GEMM get evict-first hints: those read once that exceed L2."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.schedule.matmul.choice import MatmulParameters, Sizes, sizes_of
from fusec.schedule.matmul.cost.work import ProductWork, widths_of
from fusec.schedule.matmul.problem import Product
from fusec.target import Target

MOST_TIMES = 3
"""Most operand bytes, as a multiple of L2: for 470 MB the hinted loads were 4 % slower (H200)."""


def streamed(
    p: MatmulParameters, sizes: Sizes, widths: tuple[float, float], target: Target
) -> tuple[bool, bool]:
    """Return whether A and B are each read once, by one CTA or by those that share it.

    Then L2 need not write back results of other kernels to make space for bytes without reuse
    (decision 107). widths: bytes per element of A and of B.
    """
    moved = (sizes.m * widths[0] + p.products * sizes.n * widths[1]) * sizes.k
    if not p.has_l2_hints or sizes.batches != 1:
        return False, False
    if not target.l2 < moved <= MOST_TIMES * target.l2:
        return False, False
    rows = -(-sizes.m // (p.tile_m * p.cluster_m))
    columns = -(-sizes.n // (p.columns * p.cluster_n))
    return columns == 1, rows == 1


def streamed_operands(
    product: Product, p: MatmulParameters, hints: Mapping[str, int], target: Target
) -> tuple[bool, bool]:
    """Return whether A and B are each read once at hint sizes and exceed L2."""
    return streamed(p, sizes_of(product, hints), widths_of(product), target)


def displaced_bytes(p: MatmulParameters, needed: ProductWork, target: Target) -> float:
    """Return the bytes of other kernels' results that L2 evicts for operands that stay in it."""
    sizes = needed.sizes
    once = streamed(p, sizes, needed.widths, target)
    kept = sizes.batches * sum(
        rows * sizes.k * width * (not is_once)
        for rows, width, is_once in zip((sizes.m, sizes.n), needed.widths, once, strict=True)
    )
    return min(kept, target.cost.matmul.written_back_bytes) if kept > target.l2 else 0.0
