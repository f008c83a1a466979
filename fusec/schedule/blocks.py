"""Shapes of thread blocks, and the reductions that their threads share."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.dataclasses import dataclass
from fusec.ir.graph import Node
from fusec.schedule.registers import sum_words
from fusec.schedule.space import WIDTHS, Field, Parameters
from fusec.segment.protocol import Refusal

MAX_THREADS = 1024
"""Most threads per block (CUDA programming guide, technical specifications)."""
STATIC_SHARED = 48 << 10
"""Most bytes of shared memory per block that need no opt-in attribute (the same source)."""


VECTOR_WIDTH = Field("vector_width", WIDTHS, "elements per load and store of a thread")

SHIFTED = Field(
    "shifted",
    (False, True),
    "whether vector loads start at aligned addresses, wherever rows begin",
)


@dataclass(frozen=True, kw_only=True)
class BlockParameters(Parameters):
    """The block of a kernel over rows of columns, and the accesses of its threads.

    vector_width: elements of an access; threads_x: threads along the contiguous axis, threads_y:
    across it; wide_index: whether indices have 64 bits.
    """

    vector_width: int
    threads_x: int
    threads_y: int
    wide_index: bool

    @property
    def block(self) -> tuple[int, int, int]:
        """Return the shape of the block."""
        return self.threads_x, self.threads_y, 1

    @property
    def threads(self) -> int:
        """Return the threads of the block."""
        return self.threads_x * self.threads_y


def check_shape(p: BlockParameters) -> Refusal | None:
    """Return why a block cannot have this shape, by the rules of device/reduce.cuh, or None."""
    threads, threads_x = p.threads, p.threads_x
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
    """Return why accesses cannot have that many elements, or None."""
    if width <= widest:
        return None
    return Refusal("access", f"vectors have at most {widest} elements here")


def check_shared(bytes_: int, what: str = "the partial results of a block") -> Refusal | None:
    """Return why arrays of shared memory are too large, or None."""
    if bytes_ <= STATIC_SHARED:
        return None
    return Refusal("shared memory", f"{what} need {bytes_} bytes, the limit is {STATIC_SHARED}")


def check_column_sums(nodes: Iterable[Node], p: BlockParameters) -> Refusal | None:
    """Return why block_reduce_columns (device/reduce.cuh) has no memory for reductions, or None.

    Half of the rows are in shared memory at once; reductions of the same kind share an array.
    """
    if p.threads_y == 1:
        return None
    kinds = {(n.op.name, n.output.dtype): 4 * sum_words(n) for n in nodes}
    rows = (p.threads_y + 1) // 2
    return check_shared(sum(kinds.values()) * p.vector_width * p.threads_x * rows)
