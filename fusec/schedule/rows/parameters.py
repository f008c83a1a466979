"""The parameters that kernels over rows of columns share."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.schedule.blocks import BlockParameters
from fusec.schedule.space import Field

MOST_TILE_ROWS = 1 << 12
TILE_ROWS = Field(
    "tile_rows",
    (0, *(1 << k for k in range(3, MOST_TILE_ROWS.bit_length()))),
    "rows of a block that are staged in shared memory together; 0: none",
)
UNROLLED = 4
"""Vectors per iteration of a loop over memory: the unroll factor of the compiler."""


@dataclass(frozen=True, kw_only=True)
class RowsParameters(BlockParameters):
    """The schedule parameters of a kernel that reduces rows of columns.

    shifted: whether vectors are peeled to alignment; tile_rows: rows of a block that are staged in
    shared memory together, 0 if a thread reads its rows from global memory.
    """

    shifted: bool = False
    tile_rows: int = 0


@dataclass(frozen=True, kw_only=True)
class PersistentParameters(RowsParameters):
    """The schedule parameters of a kernel that reads its input again after reducing it.

    storage: where the input stays between phases, `none` if it is read from memory again; chunks:
    the vectors of a thread.
    """

    storage: str
    chunks: int

    @property
    def stays_in_registers(self) -> bool:
        """Return whether a thread's vectors stay in its registers."""
        return self.storage == "registers"

    @property
    def unrolled_elements(self) -> int:
        """Return the elements that the loop of a phase computes without a branch."""
        return self.vector_width * (self.chunks if self.stays_in_registers else UNROLLED)
