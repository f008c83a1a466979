"""Find bands, aligned axes of different values along which a fusion can be evaluated in blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from fusec.dataclasses import dataclass
from fusec.ir.evaluate import Sizes, evaluate_attributes, extents
from fusec.ir.graph import Fusion, Node, Value
from fusec.ir.roles import Links
from fusec.ops.movement.links import links_of

Axis = tuple[Value, int]


RANDOM_RUNS = 256
"""Runs of adjacent elements up to which a block of random numbers is generated run by run."""


@dataclass(frozen=True)
class Band:
    """Aligned axes: at most one of each value, all of the same extent."""

    axes: Mapping[Value, int]
    extent: int
    summing: frozenset[Node]
    """Reductions and contractions over the band."""
    unbound: frozenset[Node]
    """Nodes that introduce the band (a broadcast); they take the extent of a block instead."""


def find_bands(fusion: Fusion, nodes: Sequence[Node], sizes: Sizes) -> list[Band]:
    """Return the bands along which `nodes` can be evaluated in blocks."""
    shape = {v: extents(v.type, sizes) for v in fusion.values}
    parent: dict[Axis, Axis] = {}

    def find(axis: Axis) -> Axis:
        while (above := parent.setdefault(axis, axis)) != axis:
            parent[axis] = parent.setdefault(above, above)
            axis = above
        return axis

    linked: dict[Node, Links] = {}
    for node in nodes:
        operands = [shape[o] if isinstance(o, Value) else () for o in node.operands]
        attributes = evaluate_attributes(node.attributes, sizes)
        links = linked[node] = links_of(node, attributes, operands, shape[node.output])
        for index, axis, target in links.same:
            operand = node.operands[index]
            assert isinstance(operand, Value)
            for result in node.outputs:
                parent[find((operand, axis))] = find((result, target))
        summed = [(o, a) for i, a in links.summed if isinstance(o := node.operands[i], Value)]
        for operand, axis in summed[1:]:
            if node.op.family == "contraction":
                parent[find((operand, axis))] = find(summed[0])
    used = dict.fromkeys(
        (*(v for n in nodes for v in n.inputs), *(v for n in nodes for v in n.outputs))
    )
    members: dict[Axis, list[Axis]] = {}
    for value in used:
        for axis in range(len(shape[value])):
            members.setdefault(find((value, axis)), []).append((value, axis))
    bands = (_band(group, nodes, linked, shape) for group in members.values())
    return [b for b in bands if b is not None]


def _band(
    group: Sequence[Axis],
    nodes: Sequence[Node],
    linked: Mapping[Node, Links],
    shape: Mapping[Value, tuple[int, ...]],
) -> Band | None:
    axes = dict(group)
    sizes = {shape[v][a] for v, a in group}
    if len(axes) != len(group) or len(sizes) != 1 or sizes <= {0, 1}:
        # Nothing can be divided along a single element or none.
        return None
    summing, unbound = set[Node](), set[Node]()
    for node in nodes:
        if node.output.is_scalar:
            continue
        links = linked[node]
        inside = [
            (i, axes[o]) for i, o in enumerate(node.operands) if isinstance(o, Value) and o in axes
        ]
        results = [axes.get(v) for v in node.outputs]
        if not inside:
            axis = results[0]
            if axis is not None and _makes_blocks(node, shape[node.output][:axis]):
                unbound.add(node)
            continue
        same = {(i, a): r for i, a, r in links.same}
        if all(pair in links.summed for pair in inside) and results[0] is None:
            summing.add(node)
        elif any(pair not in same or same[pair] != results[0] for pair in inside):
            return None
    return Band(axes, sizes.pop(), frozenset(summing), frozenset(unbound))


def _makes_blocks(node: Node, before: tuple[int, ...]) -> bool:
    """Return whether a node can compute a block of a result axis that no operand has."""
    if node.op.family == "random":
        return prod(before) <= RANDOM_RUNS
    return node.op.access.repeats if node.op.access is not None else bool(node.op.extents)
