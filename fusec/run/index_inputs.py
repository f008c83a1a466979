"""Inputs that hold positions: random ones must lie inside what they index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fusec.ir.evaluate import Array, Sizes
from fusec.ir.graph import Fusion, Node, Value

_THROUGH = frozenset({"cast", "set", "segment_set", "where"})


def index_limit(fusion: Fusion, value: Value, sizes: Sizes) -> int | None:
    """Return the least extent that an integer input indexes; None if it is no index."""
    if not value.dtype.is_integer:
        return None
    extents = [
        data.shape[axis].evaluate(sizes)
        for node, at in _uses(fusion, value)
        for data, axis in _indexed(node, at)
    ]
    return min(extents, default=None)


def _uses(fusion: Fusion, value: Value) -> Iterable[tuple[Node, int]]:
    """Return the nodes that read the input's own integers, and as which operand."""
    for node, read in fusion.readers(value, _passes):
        for at, operand in enumerate(node.operands):
            if operand is read:
                yield node, at


def _passes(node: Node) -> bool:
    through = node.op.name in _THROUGH or node.op.family == "movement"
    return through and node.output.dtype.is_integer


def _indexed(node: Node, at: int) -> Iterable[tuple[Any, int]]:
    """Return the tensor and dim that operand `at` of a node indexes, if it does."""
    if node.op.name == "embedding_fwd" and at == 0:
        yield node.operands[1], 0
    elif node.op.family in ("indexing", "scatter") and node.op.name != "embedding_fwd" and at == 1:
        yield node.operands[0], node.attributes["dim"]


def offsets_end(fusion: Fusion, value: Value, sizes: Sizes) -> int | None:
    """Return the extent that an input cuts into groups; None if it holds no group ends."""
    for node, at in _uses(fusion, value):
        if node.op.name == "grouped_mm" and at == 2:
            rows, columns = node.operands[0].shape, node.operands[1].shape
            cut = rows[-1] if len(rows) == len(columns) else rows[0]
            cut = columns[-1] if len(columns) < len(rows) else cut
            return cut.evaluate(sizes)
    return None


def group_ends(generator: Any, count: int, end: int, dtype: Any) -> Array:
    """Return random ends of `count` groups, the last one at `end`; some groups may be empty."""
    ends = np.sort(generator.integers(0, end, count, endpoint=True))
    ends[-1:] = end
    return ends.astype(dtype)
