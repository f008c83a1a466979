"""Which axes of operands and results are aligned, for operations without a coordinate map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusec.dataclasses import replace
from fusec.ir.graph import Node
from fusec.ir.roles import Links, Shapes


def reshape(
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


def pad(links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]) -> None:
    widths = attributes["pad_widths"]
    links.same += [(0, a, a) for a in range(len(out)) if widths[2 * a] == 0 == widths[2 * a + 1]]


def cat(links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]) -> None:
    dim = attributes["dim"]
    links.same += [(i, a, a) for i in range(len(shapes)) for a in range(len(out)) if a != dim]


def update_slice(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    for axis, (start, extent) in enumerate(zip(attributes["start_indices"], out, strict=True)):
        if start == 0 and shapes[1][axis] == extent:
            links.same += [(0, axis, axis), (1, axis, axis)]


def matmul(
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


def linear(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    links.same += [(0, a, a) for a in range(len(shapes[0]) - 1)]
    for index in range(1, len(shapes)):
        if len(shapes[index]) == 3 - index:
            links.same.append((index, 0, len(out) - 1))


def grouped(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    """Link rows and columns, except those that each group has its own of."""
    a, b = len(shapes[0]), len(shapes[1])
    if a >= b:
        links.same.append((0, a - 2, len(out) - 2))
    if b >= a:
        links.same.append((1, b - 1, len(out) - 1))


def flip(links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]) -> None:
    links.same += [(0, a, a) for a in range(len(out)) if a not in attributes["dims"]]


def link_other_axes(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    """Link all axes except `dim`, along which the operation processes whole rows."""
    tensors = [k for k, shape in enumerate(shapes) if len(shape) == len(out)]
    for axis, extent in enumerate(out):
        if axis != attributes["dim"] and all(shapes[k][axis] == extent for k in tensors):
            links.same += [(k, axis, axis) for k in tensors]


def index_select(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    links.same += [(0, a, a) for a in range(len(out)) if a != attributes["dim"]]
    if shapes[1]:
        links.same.append((1, 0, attributes["dim"]))


def select(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    dim = attributes["dim"]
    links.same += [(0, a, a - (a > dim)) for a in range(len(shapes[0])) if a != dim]


def embedding(
    links: Links, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> None:
    links.same += [(0, a, a) for a in range(len(shapes[0]))]
    links.same.append((1, 1, len(out) - 1))


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


def _lying_along(
    links: Links, along: Sequence[int | None], shapes: Shapes, out: tuple[int, ...]
) -> None:
    places = ((source, k) for k, source in enumerate(along) if source is not None)
    links.same += [(0, a, k) for a, k in places if shapes[0][a] == out[k]]


def links_of(
    node: Node, attributes: Mapping[str, Any], shapes: Shapes, out: tuple[int, ...]
) -> Links:
    """Return how a node's axes relate; axes that it does not name cannot be divided into blocks."""
    links, op = Links(), node.op
    if op.links is not None:
        op.links(links, attributes, shapes, out)
    elif op.access is not None and op.access.along is not None:
        _lying_along(links, op.access.along(node), shapes, out)
        if op.access.window is not None:
            starts, _ = op.access.window(replace(node, attributes=attributes))
            links.same = [(i, a, k) for i, a, k in links.same if starts[a] == 0]
    elif op.is_elementwise:
        _elementwise(links, attributes, shapes, out)
    elif op.family == "reduction" and op.combine is not None:
        _reduction(links, attributes, shapes, out)
        if op.combine.is_position:
            links.summed = []
    elif op.family in ("scan", "sort"):
        link_other_axes(links, attributes, shapes, out)
    return links
