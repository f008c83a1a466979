"""Views: tensors that share another tensor's memory, with an offset and other strides."""

from __future__ import annotations

from itertools import pairwise

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim, Shape, dim
from fusec.ir.expression import contiguous_strides
from fusec.ir.graph import Fusion, Node, Value


def may_be_view(node: Node) -> bool:
    """Return whether a node's result may be its operand's memory."""
    return node.op.access is not None and node.op.access.view


def rearranges(node: Node) -> bool:
    """Return whether a node's result is a window of its operand under other dims, none repeated."""
    access = node.op.access
    return access is not None and access.along is not None and not access.repeats


@dataclass(frozen=True)
class Views:
    """The nodes that compute outputs which are views, and all nodes between these and bases."""

    last: frozenset[Node]
    chain: frozenset[Node]


@dataclass(frozen=True)
class Layout:
    """The layout of a view: offset and strides in elements of `base`."""

    base: Value
    offset: Dim
    strides: tuple[Dim, ...]


def view_nodes(fusion: Fusion, pinned: frozenset[Node]) -> Views:
    """Return the outputs that are views of an input or of another output, as nodes.

    A view of memory that some output is written into would see the write, so it is not counted as
    one. Neither is a view of the generator's state, which advances.
    """
    effects = fusion.effects
    bases = frozenset(
        [i.value for i in fusion.given if i.value.name not in effects.overwritten]
        + [o.value for o in effects.fresh]
    )
    last: set[Node] = set()
    chain: set[Node] = set()
    for output in effects.fresh:
        layout = view_of(fusion, output.value, bases)
        node = fusion.producer.get(output.value)
        if layout is None or node is None or output.part is not None:
            continue
        if output.stride_order and layout.strides != fusion.effects.strides(output.value):
            continue
        way = [node]
        while way[-1].inputs[0] is not layout.base:
            way.append(fusion.producer[way[-1].inputs[0]])
        if any(n.op.ends_segment for n in way[1:]):
            continue
        if not pinned.intersection(way):
            last.add(node)
            chain |= set(way)
    return Views(frozenset(last), frozenset(chain))


def view_of(fusion: Fusion, value: Value, bases: frozenset[Value]) -> Layout | None:
    """Return `value` as a view of the nearest of `bases`; None if it is not a view of any."""
    chain: list[Node] = []
    current = value
    while current not in bases or not chain:
        node = fusion.producer.get(current)
        if node is None or not may_be_view(node):
            return None
        chain.append(node)
        current = node.inputs[0]
    entry = fusion.input_of.get(current)
    strides = fusion.effects.strides(current) if entry is None else entry.strides
    layout: Layout | None = Layout(current, dim(0), strides)
    for node in reversed(chain):
        layout = None if layout is None else _moved(layout, node)
    return layout


def _moved(layout: Layout, node: Node) -> Layout | None:
    """Return the layout after one movement; None if strides cannot express it."""
    source, target = node.inputs[0].shape, node.output.shape
    access = node.op.access
    assert access is not None
    if access.along is None:
        reshaped = reshape_strides(source, layout.strides, target)
        return None if reshaped is None else Layout(layout.base, layout.offset, reshaped)
    along = access.along(node)
    if access.window is None:
        strides = (
            dim(0) if place is None or source[place] != extent else layout.strides[place]
            for place, extent in zip(along, target, strict=True)
        )
        return Layout(layout.base, layout.offset, tuple(strides))
    offset, strides = layout.offset, list[Dim]()
    for place, start, step in zip(along, *access.window(node), strict=True):
        stride = dim(0) if place is None else layout.strides[place]
        offset, strides = offset + start * stride, [*strides, stride * step]
    return Layout(layout.base, offset, tuple(strides))


def reshape_strides(
    source: Shape, strides: tuple[Dim, ...], target: Shape
) -> tuple[Dim, ...] | None:
    """Return the strides of a reshape that copies nothing, or None.

    Runs of dims with equal products correspond; each run must be contiguous with a single stride.
    """
    old = [(e, s) for e, s in zip(source, strides, strict=True) if e != 1]
    new: list[tuple[int, Dim]] = [(k, e) for k, e in enumerate(target) if e != 1]
    result = list(contiguous_strides(target))
    while old and new:
        taken: list[tuple[Dim, Dim]] = [old.pop(0)]
        run: list[tuple[int, Dim]] = [new.pop(0)]
        size: Dim = taken[0][0]
        count: Dim = run[0][1]
        while size != count:
            if old and not size.at_least(count):
                taken.append(old.pop(0))
                size = size * taken[-1][0]
            elif new:
                run.append(new.pop(0))
                count = count * run[-1][1]
            else:
                return None
        for (_, outer), (extent, inner) in pairwise(taken):
            if outer != inner * extent:
                return None
        step = taken[-1][1]
        for k, extent in reversed(run):
            result[k] = step
            step = step * extent
    return None if old or new else tuple(result)
