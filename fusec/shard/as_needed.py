"""Which nodes are computed on demand: for each reader the part that it needs."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.ir.graph import Node
from fusec.ir.sharding import STREAM, Sharding
from fusec.shard.axes import is_filled


def without_dims(sharding: Sharding, taken: set[int]) -> Sharding:
    """Return the sharding with some dims undivided; a loop divides all of its dims, or none."""
    if len(sharding.streamed) > 1 and taken.intersection(sharding.streamed):
        sharding = sharding.without(STREAM)
    dims = (() if k in taken else parts for k, parts in enumerate(sharding.dims))
    return replace(sharding, dims=tuple(dims))


def is_sliced(own: Sharding, needed: Sharding) -> bool:
    """Return whether a rank can slice the needed sharding from its own, without communication."""
    pairs = zip(own.dims, needed.dims, strict=True)
    return all(needed_parts[: len(parts)] == parts for parts, needed_parts in pairs)


def is_one_by_one(node: Node) -> bool:
    """Return whether each element of a node's result depends on one element of each operand."""
    access = node.op.access
    moves = access is not None and access.along is not None and access.window is None
    return node.op.is_elementwise or moves


def repeats(node: Node) -> bool:
    """Return whether a node computes any part of its result from an equal part of its operand."""
    access = node.op.access
    return is_filled(node) or (access is not None and access.repeats)
