"""Sums over ranks that one kernel on each GPU computes: each writes to all others, and adds."""

from __future__ import annotations

from fusec.ir.dtype import DType

PUSHED_SUM, PUSHED_SLICES, PUSHED_ROWS = "pushed_sum", "pushed_slices", "pushed_rows"
"""The kinds of such exchanges in a target's `links`, and for who carries them.

Each rank sends all its elements to all others, or adds one slice and sends the result; or the
kernel that reads rows of the sum does so for each of them.
"""
PUSHED_BYTES, PUSHED_BYTES_IN_SLICES = 16 << 20, 12 << 20
"""Bytes that a rank sends to one other, and in slices to several, at most.

Of more, NCCL's rate counts. By replay on four H200 NCCL adds 8 MiB in 60 us; a kernel sends these
12 MiB in 52 (2026-11).
"""
MOST_SENT_TO_ALL = 2 << 20
"""Bytes that a rank sends to several others at most where it sends them all its elements.

In slices fewer are sent, and arrive in two steps. custom_all_reduce.cuh of vLLM takes two stages
from 512 KiB on four GPUs and from 256 KiB on eight; 2 MiB here are 683 and 292 KiB.
"""
MOST_RANKS = 8
MOST_BLOCKS, MOST_CHUNKS = 256, 64
"""Blocks of a kernel, which all run at the same time, and flags of each for one sum, at most."""
RESIDENT_THREADS = 512
"""Threads of an SM that kernels take at most which add their rows: each has 128 registers."""
VECTOR = 16
"""Bytes that a thread moves at once."""
_TYPES = ("f32", "f16", "bf16")


def most_added(kind: str, ranks: int) -> int:
    """Return the bytes of each rank that a kind of pushed sum adds at most."""
    if kind == PUSHED_SLICES:
        return PUSHED_BYTES_IN_SLICES * ranks // (2 * (ranks - 1))
    return (PUSHED_BYTES if ranks == 2 else MOST_SENT_TO_ALL) // (ranks - 1)


def pushed_kind(size: int, ranks: int) -> str:
    """Return how `size` bytes of each rank are pushed."""
    return PUSHED_SLICES if ranks > 2 and size > most_added(PUSHED_SUM, ranks) else PUSHED_SUM


def pushes_sum(reduction: str, dtype: DType, size: int, ranks: int) -> bool:
    """Return whether a kernel adds `size` bytes of each rank, where their GPUs reach each other."""
    if not (1 < ranks <= MOST_RANKS and reduction == "sum" and dtype.name in _TYPES):
        return False
    return size <= most_added(pushed_kind(size, ranks), ranks)


def pushes_rows(reduction: str, dtype: DType, ranks: int) -> bool:
    """Return whether a kernel may add the rows that it reads, of several ranks.

    Those of two are added in one step: their sum is a kernel of its own.
    """
    return 2 < ranks <= MOST_RANKS and reduction == "sum" and dtype.name in _TYPES


def most_turns(size: int, ranks: int) -> int:
    """Return how many rows of `size` bytes in all a block adds at most; 0: others add them."""
    return MOST_CHUNKS if size <= most_added(PUSHED_SLICES, ranks) else 0
