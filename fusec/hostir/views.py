"""Outputs that are views: which memory, at which offset and strides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fusec.ir.dim import Dim, Shape, dim, product
from fusec.ir.graph import Fusion, Node, Value


@dataclass(frozen=True)
class View:
    """A tensor in the memory of `source`; strides and offset in elements."""

    source: Value
    strides: Shape
    offset: Dim


def view_of(fusion: Fusion, value: Value) -> View | None:
    """Return `value` as a view of an input of `fusion`, or None if it is computed or copied."""
    entry = fusion.input_of.get(value)
    if entry is not None:
        return View(value, entry.strides, dim(0))
    node = fusion.producer[value]
    rule = _RULES.get(node.op.name)
    if rule is None:
        return None
    base = view_of(fusion, node.inputs[0])
    return None if base is None else rule(node, base)


def _same(node: Node, view: View) -> View:
    return view


def _broadcast(node: Node, view: View) -> View:
    rest = iter(view.strides)
    mask: tuple[bool, ...] = node.attributes["is_broadcast_dim"]
    return View(view.source, tuple(dim(0) if new else next(rest) for new in mask), view.offset)


def _broadcast_in_dim(node: Node, view: View) -> View:
    places: tuple[int, ...] = node.attributes["broadcast_dims"]
    strides = [dim(0)] * node.output.rank
    for axis, place in enumerate(places):
        repeated = node.inputs[0].shape[axis] != node.output.shape[place]
        strides[place] = dim(0) if repeated else view.strides[axis]
    return View(view.source, tuple(strides), view.offset)


def _expand(node: Node, view: View) -> View:
    pairs = zip(node.inputs[0].shape, node.output.shape, view.strides, strict=True)
    return View(
        view.source, tuple(s if old == new else dim(0) for old, new, s in pairs), view.offset
    )


def _squeeze(node: Node, view: View) -> View:
    dropped: tuple[int, ...] = node.attributes["dims"]
    strides = tuple(s for axis, s in enumerate(view.strides) if axis not in dropped)
    return View(view.source, strides, view.offset)


def _permute(node: Node, view: View) -> View:
    order: tuple[int, ...] = node.attributes["dims"]
    return View(view.source, tuple(view.strides[axis] for axis in order), view.offset)


def _slice(node: Node, view: View) -> View:
    starts: tuple[Dim, ...] = node.attributes["start_indices"]
    steps: tuple[int, ...] = node.attributes["strides"]
    offset = view.offset
    for start, stride in zip(starts, view.strides, strict=True):
        offset = offset + start * stride
    strides = tuple(stride * step for stride, step in zip(view.strides, steps, strict=True))
    return View(view.source, strides, offset)


def _reshape(node: Node, view: View) -> View | None:
    shape = node.inputs[0].shape
    dense = tuple(product(shape[k + 1 :]) for k in range(len(shape)))
    if any(s != d and e != 1 for s, d, e in zip(view.strides, dense, shape, strict=True)):
        return None
    target = node.output.shape
    return View(
        view.source, tuple(product(target[k + 1 :]) for k in range(len(target))), view.offset
    )


_RULES: Mapping[str, Callable[[Node, View], Any]] = {
    "set": _same,
    "segment_set": _same,
    "broadcast": _broadcast,
    "broadcast_in_dim": _broadcast_in_dim,
    "expand": _expand,
    "squeeze": _squeeze,
    "permute": _permute,
    "slice": _slice,
    "reshape": _reshape,
}
