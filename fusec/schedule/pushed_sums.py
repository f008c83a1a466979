"""Sums over ranks that one kernel on each GPU computes: each writes to all others, and adds."""

from __future__ import annotations

from fusec.ir.dtype import DType

PUSHED_SUM = "pushed_sum"
"""The kind of such an exchange in a target's `links`, and for who carries it."""
PUSHED_BYTES, PUSHED_BYTES_TO_SEVERAL = 16 << 20, 9 << 19
"""Bytes that a rank sends to one other, and to several, at most: of more, NCCL's rate counts.

By replay on four H200, where each sends to three, sums of 3 MiB took 0.91 of NCCL's time, and of
12 MiB 1.21 (2026-11).
"""
MOST_RANKS = 8
_TYPES = ("f32", "f16", "bf16")


def most_pushed(ranks: int) -> int:
    """Return the bytes that a rank sends to the others at most."""
    return PUSHED_BYTES if ranks == 2 else PUSHED_BYTES_TO_SEVERAL


def pushes_sum(reduction: str, dtype: DType, size: int, ranks: int) -> bool:
    """Return whether a kernel adds `size` bytes of each rank, where their GPUs reach each other."""
    few = 1 < ranks <= MOST_RANKS and size * (ranks - 1) <= most_pushed(ranks)
    return few and reduction == "sum" and dtype.name in _TYPES
