"""Sums over ranks that one kernel on each GPU computes: each writes to all others, and adds."""

from __future__ import annotations

from fusec.ir.dtype import DType

PUSHED_SUM = "pushed_sum"
"""The kind of such an exchange in a target's `links`, and for who carries it."""
PUSHED_BYTES = 16 << 20
"""Bytes that a rank sends to others, at most: of more, NCCL's rate counts."""
MOST_RANKS = 8
_TYPES = ("f32", "f16", "bf16")


def pushes_sum(reduction: str, dtype: DType, size: int, ranks: int) -> bool:
    """Return whether a kernel adds `size` bytes of each rank, where their GPUs reach each other."""
    few = 1 < ranks <= MOST_RANKS and size * (ranks - 1) <= PUSHED_BYTES
    return few and reduction == "sum" and dtype.name in _TYPES
