"""Which axes of which values run together: along them a fusion can be evaluated in blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from fusec.ir.evaluate import Sizes, evaluate_attributes, extents
from fusec.ir.graph import Fusion, Node, Value
from fusec.reference.reductions import MERGEABLE

Axis = tuple[Value, int]
Shapes = Sequence[tuple[int, ...]]


@dataclass
class Links:
    """How a node's axes relate: operand axis to result axis, and the operand axes it sums over."""

    same: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """(operand, its axis, axis of every result)"""
    summed: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


LinkRule = Callable[[Links, Mapping[str, Any], Shapes, tuple[int, ...]], None]

STRETCHED = {
    "expand": "shape",
    "broadcast_in_dim": "shape",
    "reshape": "new_shape",
    "full": "shape",
    "slice": "end_indices",
    "uniform": "shape",
    "normal": "shape",
}
"""Operations with an attribute that holds the extents of the result."""

UNBOUND = frozenset({"expand", "broadcast_in_dim", "full"})
"""Operations that can make a block of a result axis that no operand has."""
DRAWN_RUNS = 256
"""Runs of neighbouring elements up to which a block of random numbers is drawn run by run."""


def _elementwise(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    for index, shape in enumerate(shapes):
        shift = len(out) - len(shape)
        links.same += [
            (index, a, a + shift) for a in range(len(shape)) if shape[a] == out[a + shift]
        ]


def _reduction(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    dims = attributes["dims"]
    kept = [a for a in range(len(shapes[0])) if a not in dims]
    links.same += [(0, a, k) for k, a in enumerate(kept)]
    links.summed += [(0, a) for a in dims]


def _broadcast(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    places = [k for k, new in enumerate(attributes["is_broadcast_dim"]) if not new]
    links.same += [(0, a, k) for a, k in enumerate(places)]


def _broadcast_in_dim(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    places = attributes["broadcast_dims"]
    links.same += [(0, a, k) for a, k in enumerate(places) if shapes[0][a] == out[k]]


def _squeeze(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    kept = [a for a in range(len(shapes[0])) if a not in attributes["dims"]]
    links.same += [(0, a, k) for k, a in enumerate(kept)]


def _permute(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    links.same += [(0, a, k) for k, a in enumerate(attributes["dims"])]


def _reshape(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    starts, before = dict[tuple[int, int], int](), 1
    for axis, extent in enumerate(shapes[0]):
        starts.setdefault((before, extent), axis)
        before *= extent
    before = 1
    for axis, extent in enumerate(out):
        if extent > 1 and (before, extent) in starts:
            links.same.append((0, starts[before, extent], axis))
        before *= extent


def _slice(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    links.same += [
        (0, a, a)
        for a in range(len(out))
        if out[a] == shapes[0][a] and attributes["start_indices"][a] == 0
    ]


def _pad(links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]) -> None:
    widths = attributes["pad_widths"]
    links.same += [(0, a, a) for a in range(len(out)) if widths[2 * a] == 0 == widths[2 * a + 1]]


def _cat(links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]) -> None:
    dim = attributes["dim"]
    links.same += [(i, a, a) for i in range(len(shapes)) for a in range(len(out)) if a != dim]


def _matmul(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    a, b = shapes[0], shapes[1]
    links.summed += [(0, len(a) - 1), (1, max(len(b) - 2, 0))]
    rank = len(out)
    if len(a) > 1:
        row = rank - (2 if len(b) > 1 else 1)
        links.same.append((0, len(a) - 2, row))
    if len(b) > 1:
        links.same.append((1, len(b) - 1, rank - 1))
    matrix_dims = (len(a) > 1) + (len(b) > 1)
    for index, shape in enumerate((a, b)):
        for back in range(3, len(shape) + 1):
            axis, target = len(shape) - back, rank - matrix_dims - (back - 2)
            if shape[axis] == out[target]:
                links.same.append((index, axis, target))


def _linear(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    links.same += [(0, a, a) for a in range(len(shapes[0]) - 1)]
    for index in range(1, len(shapes)):
        if len(shapes[index]) == 3 - index:
            links.same.append((index, 0, len(out) - 1))


def _kept(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    dims = attributes["dims"]
    kept = [a for a in range(len(shapes[0])) if a not in dims]
    links.same += [(0, a, k) for k, a in enumerate(kept)]


def _flip(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    links.same += [(0, a, a) for a in range(len(out)) if a not in attributes["dims"]]


def _beside(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    """Link the axes beside `dim`, in a row of which the operation works."""
    tensors = [k for k, shape in enumerate(shapes) if len(shape) == len(out)]
    for axis, extent in enumerate(out):
        if axis != attributes["dim"] and all(shapes[k][axis] == extent for k in tensors):
            links.same += [(k, axis, axis) for k in tensors]


def _index_select(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    links.same += [(0, a, a) for a in range(len(out)) if a != attributes["dim"]]
    if shapes[1]:
        links.same.append((1, 0, attributes["dim"]))


def _select(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    dim = attributes["dim"]
    links.same += [(0, a, a - (a > dim)) for a in range(len(shapes[0])) if a != dim]


def _embedding(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    links.same += [(0, a, a) for a in range(len(shapes[0]))]
    links.same.append((1, 1, len(out) - 1))


_RULES: dict[str, LinkRule] = {
    "argmax": _kept,
    "argmin": _kept,
    "flip": _flip,
    "index_select": _index_select,
    "select": _select,
    "gather": _beside,
    "take_along_axis": _beside,
    "embedding_fwd": _embedding,
    "scatter": _beside,
    "scatter_add": _beside,
    "scan": _beside,
    "sort": _beside,
    "broadcast": _broadcast,
    "broadcast_in_dim": _broadcast_in_dim,
    "expand": _elementwise,
    "squeeze": _squeeze,
    "permute": _permute,
    "reshape": _reshape,
    "slice": _slice,
    "pad": _pad,
    "cat": _cat,
    "set": _elementwise,
    "segment_set": _elementwise,
    "matmul": _matmul,
    "linear": _linear,
}


def links_of(
    node: Node, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> Links:
    """Return how a node's axes relate; axes that it does not name cannot be cut into blocks."""
    links = Links()
    rule = _RULES.get(node.op.name) or _RULES.get(node.op.family)
    if rule is None and node.op.is_elementwise:
        rule = _elementwise
    elif rule is None and node.op.name in MERGEABLE:
        rule = _reduction
    if rule is not None:
        rule(links, attributes, shapes, out)
    return links


@dataclass(frozen=True)
class Band:
    """Axes that run together: at most one of each value, all of one extent."""

    axes: Mapping[Value, int]
    extent: int
    summing: frozenset[Node]
    """Reductions and contractions over the band."""
    unbound: frozenset[Node]
    """Nodes that make the band anew (a broadcast), to be given the extent of a block."""


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
    """Return whether a node makes a block of a result axis that no operand has."""
    if node.op.family == "random":
        return prod(before) <= DRAWN_RUNS
    return node.op.name in UNBOUND
