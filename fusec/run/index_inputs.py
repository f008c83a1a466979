"""Random index inputs: their values must be in bounds of what they index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fusec.ir.dim import Dim
from fusec.ir.evaluate import Array, Sizes
from fusec.ir.graph import Fusion, Node, Value


def index_limit(fusion: Fusion, value: Value, sizes: Sizes) -> int | None:
    """Return the smallest extent that an integer input indexes; None if it is not an index."""
    if not value.dtype.is_integer:
        return None
    extents = [
        extent.evaluate(sizes) for node, at in _uses(fusion, value) for extent in _indexed(node, at)
    ]
    return min(extents, default=None)


def _uses(fusion: Fusion, value: Value) -> Iterable[tuple[Node, int]]:
    """Return the nodes that read the input's own integers, and as which operand."""
    for node, read in fusion.readers(value, _passes):
        for at, operand in enumerate(node.operands):
            if operand is read:
                yield node, at


def _passes(node: Node) -> bool:
    through = node.op.converts or node.op.chooses or node.op.family == "movement"
    return through and node.output.dtype.is_integer


def _indexed(node: Node, at: int) -> Iterable[Dim]:
    """Return the extent that operand `at` of a node indexes, if it does."""
    lookup = node.op.lookup
    if lookup is not None and lookup.index == at and not lookup.ends:
        yield lookup.extent(node)


def offsets_end(fusion: Fusion, value: Value, sizes: Sizes) -> int | None:
    """Return the extent that an input partitions into groups; None if it holds no group ends."""
    for node, at in _uses(fusion, value):
        lookup = node.op.lookup
        if lookup is not None and lookup.index == at and lookup.ends:
            return lookup.extent(node).evaluate(sizes) - 1
    return None


def group_ends(generator: Any, count: int, end: int, dtype: Any) -> Array:
    """Return random ends of `count` groups, the last one at `end`; some groups may be empty."""
    ends = np.sort(generator.integers(0, end, count, endpoint=True))
    ends[-1:] = end
    return ends.astype(dtype)
