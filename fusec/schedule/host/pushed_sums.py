"""Sums over ranks computed by one kernel per GPU: each rank writes to all its peers, and adds."""

from __future__ import annotations

from fusec.ir.dtype import DType

PUSHED_SUM, PUSHED_SLICES, PUSHED_ROWS = "pushed_sum", "pushed_slices", "pushed_rows"
"""The kinds of these collectives in a target's `links` and in its choice of carrier.

Each rank sends all its elements to all peers, or sums one slice and sends the result; or the kernel
that reads rows of the sum does so for each row.
"""
PUSHED_BYTES, PUSHED_BYTES_IN_SLICES = 16 << 20, 12 << 20
"""Most bytes that a rank sends to one peer, and in slices to several.

For more, NCCL's rate counts. In CUDA graph replay on four H200, NCCL adds 8 MiB in 60 us; a kernel
sends these 12 MiB in 52 us (2026-11).
"""
MOST_SENT_TO_ALL = 2 << 20
"""Most bytes that a rank sends to several peers if it sends all its elements to each.

Slices send fewer bytes, in two steps. custom_all_reduce.cuh of vLLM uses two stages from 512 KiB on
four GPUs and from 256 KiB on eight; 2 MiB here are 683 and 292 KiB.
"""
MOST_RANKS = 8
MOST_BLOCKS, MOST_CHUNKS = 256, 64
"""Most blocks of a kernel, all resident at the same time, and most flags per block of one sum."""
RESIDENT_THREADS = 512
"""Most threads per SM of kernels that sum their rows over ranks: each has 128 registers."""
VECTOR = 16
"""Bytes that a thread moves per access."""
_TYPES = ("f32", "f16", "bf16")


def most_added(kind: str, ranks: int) -> int:
    """Return the most bytes per rank that a kind of pushed sum adds."""
    if kind == PUSHED_SLICES:
        return PUSHED_BYTES_IN_SLICES * ranks // (2 * (ranks - 1))
    return (PUSHED_BYTES if ranks == 2 else MOST_SENT_TO_ALL) // (ranks - 1)


def pushed_kind(size: int, ranks: int) -> str:
    """Return how `size` bytes of each rank are pushed."""
    return PUSHED_SLICES if ranks > 2 and size > most_added(PUSHED_SUM, ranks) else PUSHED_SUM


def pushes_sum(reduction: str, dtype: DType, size: int, ranks: int) -> bool:
    """Return whether a kernel adds `size` bytes per rank, given peer access between their GPUs."""
    if not (1 < ranks <= MOST_RANKS and reduction == "sum" and dtype.name in _TYPES):
        return False
    return size <= most_added(pushed_kind(size, ranks), ranks)


def pushes_rows(reduction: str, dtype: DType, ranks: int) -> bool:
    """Return whether a kernel may sum the rows that it reads over several ranks.

    Two ranks are summed in one step, by a separate kernel.
    """
    return 2 < ranks <= MOST_RANKS and reduction == "sum" and dtype.name in _TYPES


def most_turns(size: int, ranks: int) -> int:
    """Return the most rows per block, for `size` bytes of rows in all; 0 if that is too large."""
    return MOST_CHUNKS if size <= most_added(PUSHED_SLICES, ranks) else 0
