"""Views: tensors that are another tensor's memory with an offset and other strides."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from fusec.index.expression import contiguous_strides
from fusec.ir.dim import Dim, Shape, dim
from fusec.ir.graph import Fusion, Node, Value
from fusec.segment.segmented import crossing_strides

VIEW_OPS = frozenset(
    {
        "segment_set", "permute", "reshape", "slice", "squeeze", "broadcast", "expand",
        "broadcast_in_dim",
    }
)  # fmt: skip
"""Movements that may be views; `set` is a copy on purpose."""


@dataclass(frozen=True)
class Views:
    """The nodes that make outputs which are views, and all nodes on the way to them."""

    last: frozenset[Node]
    chain: frozenset[Node]


@dataclass(frozen=True)
class Layout:
    """Where the elements of a view lie: offset and strides in elements of `base`."""

    base: Value
    offset: Dim
    strides: tuple[Dim, ...]


def view_nodes(fusion: Fusion, pinned: frozenset[Node]) -> Views:
    """Return the outputs that are views of an input or of another output, as nodes.

    A view of memory that some output is written into would see the writing: that is none. Nor is
    one of the generator's state, which moves on.
    """
    written = {o.alias for o in fusion.outputs if o.alias is not None}
    bases = frozenset(
        [i.value for i in fusion.given if i.value.name not in written]
        + [o.value for o in fusion.outputs if o.alias is None]
    )
    last: set[Node] = set()
    chain: set[Node] = set()
    for output in fusion.outputs:
        layout = view_of(fusion, output.value, bases)
        node = fusion.producer.get(output.value)
        if layout is None or node is None or output.alias is not None or output.part is not None:
            continue
        if output.stride_order and layout.strides != crossing_strides(fusion, output.value):
            continue
        way = [node]
        while way[-1].inputs[0] is not layout.base:
            way.append(fusion.producer[way[-1].inputs[0]])
        if any(n.op.name == "segment_set" for n in way[1:]):
            continue
        if not pinned.intersection(way):
            last.add(node)
            chain |= set(way)
    return Views(frozenset(last), frozenset(chain))


def view_of(fusion: Fusion, value: Value, bases: frozenset[Value]) -> Layout | None:
    """Return `value` as a view of the nearest of `bases`; None if it is none of them."""
    chain: list[Node] = []
    current = value
    while current not in bases or not chain:
        node = fusion.producer.get(current)
        if node is None or node.op.name not in VIEW_OPS:
            return None
        chain.append(node)
        current = node.inputs[0]
    entry = fusion.input_of.get(current)
    strides = crossing_strides(fusion, current) if entry is None else entry.strides
    layout: Layout | None = Layout(current, dim(0), strides)
    for node in reversed(chain):
        layout = None if layout is None else _moved(layout, node)
    return layout


def _moved(layout: Layout, node: Node) -> Layout | None:
    """Return the layout after one movement; None if no strides say it."""
    source, target = node.inputs[0].shape, node.output.shape
    given: tuple[Dim, ...] = layout.strides
    attributes = node.attributes
    match node.op.name:
        case "permute":
            order: tuple[int, ...] = attributes["dims"]
            strides = tuple(given[axis] for axis in order)
        case "slice":
            offset = layout.offset
            for start, stride in zip(attributes["start_indices"], given, strict=True):
                offset = offset + start * stride
            steps: tuple[int, ...] = attributes["strides"]
            strides = tuple(s * int(step) for s, step in zip(given, steps, strict=True))
            return Layout(layout.base, offset, strides)
        case "squeeze":
            strides = tuple(s for k, s in enumerate(given) if k not in attributes["dims"])
        case "broadcast":
            rest = iter(given)
            strides = tuple(dim(0) if new else next(rest) for new in attributes["is_broadcast_dim"])
        case "expand":
            padding = len(target) - len(source)
            filled = (*(dim(0),) * padding, *given)
            strides = _expanded((*(dim(1),) * padding, *source), filled, target)
        case "broadcast_in_dim":
            shape, placed = [dim(1)] * len(target), [dim(0)] * len(target)
            places = attributes["broadcast_dims"]
            for place, extent, stride in zip(places, source, given, strict=True):
                shape[place], placed[place] = extent, stride
            strides = _expanded(tuple(shape), tuple(placed), target)
        case "reshape":
            reshaped = reshape_strides(source, given, target)
            if reshaped is None:
                return None
            strides = reshaped
        case _:
            strides = given
    return Layout(layout.base, layout.offset, strides)


def _expanded(source: Shape, strides: tuple[Dim, ...], target: Shape) -> tuple[Dim, ...]:
    return tuple(
        stride if extent == to else dim(0)
        for extent, stride, to in zip(source, strides, target, strict=True)
    )


def reshape_strides(
    source: Shape, strides: tuple[Dim, ...], target: Shape
) -> tuple[Dim, ...] | None:
    """Return the strides of a reshape that copies nothing, or None.

    Runs of dims with equal products correspond; a run must lie in memory as one dim of one stride.
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
