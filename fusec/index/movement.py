"""Coordinate maps of nodes: pulled from a result to operands, or pushed forward.

The same nodes are analysed many times in different groups, so their maps are cached.
"""

from __future__ import annotations

from functools import lru_cache

from fusec.ir.access import Coordinates, Pulled, Pushed
from fusec.ir.dim import Shape
from fusec.ir.expression import index
from fusec.ir.graph import Node, Operand, Value

KEPT = 1 << 14
"""Maximum number of cached results of each function."""


@lru_cache(KEPT)
def pull(node: Node, at: Coordinates) -> Pulled:
    """Return the operands' coordinates that the result of a movement operation reads at `at`."""
    assert node.op.access is not None
    return node.op.access.pull(node, at)


@lru_cache(KEPT)
def push(node: Node, at: Coordinates, operand: int) -> Pushed | None:
    """Return the position in the result of an operand's element at `at`; None if not by one map."""
    assert node.op.access is not None
    function = node.op.access.push
    return None if function is None else function(node, at, operand)


def pull_elementwise(operand: Operand, at: Coordinates) -> Coordinates:
    """Return an elementwise operand's coordinates: 0 at dims of extent 1, () for a scalar."""
    if not isinstance(operand, Value) or not operand.shape:
        return ()  # such as the 0-dim seed of a random tensor
    return _at_shape(operand.shape, at) if operand.has_unit_extent else at


@lru_cache(KEPT)
def _at_shape(shape: Shape, at: Coordinates) -> Coordinates:
    return tuple(index(0) if e == 1 else c for e, c in zip(shape, at, strict=True))
