"""Which operands of a product leave L2 first: those that are larger than it, and are read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusec.target import Target

if TYPE_CHECKING:
    from fusec.schedule.matmul_choice import MatmulParameters, Sizes

STREAMING = ("split_k", "vector")
"""Kernels that say so of what they load."""


def read_once(
    p: MatmulParameters, sizes: Sizes, widths: tuple[int, int], target: Target
) -> tuple[bool, bool]:
    """Return whether A, and B, are read once and do not fit in L2.

    What other kernels have left there need not be written back then for what nobody asks for again
    (decision 107). widths: bytes of an element of A, and of B.
    """
    if p.kernel not in STREAMING or sizes.batches != 1:
        return False, False
    rows = -(-sizes.m // (p.tile_m * p.pair_rows))
    columns = -(-sizes.n // (p.columns * p.pair_columns))
    a, b = (x * sizes.k * w > target.l2 for x, w in zip((sizes.m, sizes.n), widths, strict=True))
    return a and columns == 1, b and rows == 1
