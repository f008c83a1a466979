"""Discontinuities and poles within an operand's error bound, as an operation declares them."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.arrays import np
from fusec.ir.evaluate import Array
from fusec.ir.graph import Node


def between(
    node: Node, values: Sequence[Array], bound: Array, index: int
) -> tuple[Array | None, Array | float]:
    """Return where results between both ends may differ more than at the ends, and by how much."""
    floats = node.output.dtype.is_float and values[index].dtype.kind != "c"
    if node.op.between is None or not floats:
        return None, 0.0
    with np.errstate(all="ignore"):
        return node.op.between(values, bound, index)
