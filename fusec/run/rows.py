"""Copies between the layouts of two buffers, as calls of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusec.ir.row_copies import Rows, row_copies
from fusec.run.arrays import layout_of

if TYPE_CHECKING:
    from fusec.hostir.program import Buffer
    from fusec.ir.evaluate import Sizes

__all__ = ["Rows", "rows_of"]


def rows_of(target: Buffer, source: Buffer, sizes: Sizes) -> tuple[Rows, ...]:
    """Return the copies of a tensor's elements into a tensor of the same shape."""
    shape, to = layout_of(target, sizes)
    _, origin = layout_of(source, sizes)
    return tuple(row_copies(shape, to, origin, target.dtype.size))
