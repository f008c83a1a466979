"""What blocks of threads may be: their shapes, and the sums that they share."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.ir.graph import Node
from fusec.schedule.registers import sum_words
from fusec.segment.protocol import Refusal

MAX_THREADS = 1024
"""Threads of a block (CUDA programming guide, technical specifications)."""
STATIC_SHARED = 48 << 10
"""Bytes of shared memory of a block that no attribute has to allow (the same place)."""


def check_shape(threads_x: int, threads_y: int) -> Refusal | None:
    """Return why a block cannot have this shape, by the rules of device/reduce.cuh, or None."""
    threads = threads_x * threads_y
    if threads > MAX_THREADS:
        return Refusal("block", f"a block has at most {MAX_THREADS} threads, got {threads}")
    if threads % 32:
        return Refusal("block", f"{threads} threads per block are not a multiple of the warp size")
    if threads_x & (threads_x - 1) and threads_x % 32:
        because = (
            f"threads_x = {threads_x} is neither a power of two nor a multiple of the warp size"
        )
        return Refusal("block", because)
    return None


def check_access(width: int, widest: int) -> Refusal | None:
    """Return why accesses cannot have so many elements, or None."""
    if width <= widest:
        return None
    return Refusal("access", f"vectors have at most {widest} elements here")


def check_shared(bytes_: int, what: str = "the partial results of a block") -> Refusal | None:
    """Return why arrays of shared memory are too large, or None."""
    if bytes_ <= STATIC_SHARED:
        return None
    return Refusal("shared memory", f"{what} need {bytes_} bytes, the limit is {STATIC_SHARED}")


def column_sums(nodes: Iterable[Node], width: int, threads_x: int, threads_y: int) -> int:
    """Return the bytes that block_reduce_columns (device/reduce.cuh) takes for some reductions.

    Half of the rows are in shared memory at once; those of one kind share an array.
    """
    if threads_y == 1:
        return 0
    kinds = {(n.op.name, n.output.dtype): 4 * sum_words(n) for n in nodes}
    return sum(kinds.values()) * width * threads_x * ((threads_y + 1) // 2)
