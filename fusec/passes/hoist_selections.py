"""Move slices and gathers of rows before the operations that would compute the other rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim, dim
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.ops.matmul.contractions import linear, matmul
from fusec.ops.movement.indexing import embedding_fwd, index_select, select
from fusec.ops.movement.links import links_of
from fusec.ops.movement.movements import broadcast, squeeze
from fusec.ops.movement.reshapes import permute
from fusec.ops.movement.windows import slice as slice_
from fusec.passes.rewrite import Rewriter, rewrite

_REACH = 64
"""Maximum number of operations that a selection moves past."""
_FAMILIES = frozenset({"pointwise", "reduction", "scan"})
_OPS = (broadcast, permute, squeeze)
_GEMMS = (matmul, linear)
"""GEMMs that a selection moves past: their attributes do not depend on the rows."""
_KEPT, _KEPT_OF_GEMM = 2, 8
"""A selection moves only if it keeps at most one of this many elements."""
_FREE = frozenset({"pointwise", "movement"})
"""Families that a kernel computes only for the selected elements in any case."""

_SLICE = ("start_indices", "end_indices", "strides")

Axes = Mapping[int, int]
"""The selected axes of a value: for each, the aligned axis of the selected tensor."""


def hoist_selections(fusion: Fusion) -> Fusion:
    """Select rows before reductions, scans and GEMMs whose other rows are unused.

    A selection (`slice`, `select`, `index_select`, `embedding_fwd`) that keeps at most half of a
    tensor moves before everything that computes this tensor row by row and for no other use. It
    moves before a GEMM only if it keeps at most an eighth: its operands may have to be copied.
    """
    return rewrite(fusion, _rule)


@dataclass(frozen=True)
class _Selection:
    """A node that reads some positions of a tensor along some axes."""

    node: Node
    tensor: Value
    axes: frozenset[int]

    def keeps(self, one_of: int, hints: Mapping[str, int]) -> bool:
        """Return whether it keeps at most one of `one_of` elements, at hint sizes."""
        kept, whole = (
            prod(e.evaluate(hints) for e in v.shape) for v in (self.node.output, self.tensor)
        )
        return one_of * kept <= whole

    def of(self, value: Value, axes: Axes, work: Rewriter) -> Value:
        """Apply the selection to another value along aligned axes, which keep their number."""
        node = self.node
        if node.op is slice_:
            ranges = zip(*(node.attributes[name] for name in _SLICE), strict=True)
            given = dict(enumerate(ranges))
            return _sliced(value, {axis: given[axes[axis]] for axis in axes}, node, work)
        ((axis, _),) = axes.items()
        index = node.operands[_index_place(node)]
        place = dim(int(index.value.real)) if isinstance(index, Const) else index.dim
        if place is not None and place.symbols <= {d.name for d in work.fusion.dims}:
            return _sliced(value, {axis: (place, place + 1, 1)}, node, work)
        if index.is_scalar:
            index = work.add(node, "full", [index], {"shape": (dim(1),), "dtype": index.dtype})
        if node.op is embedding_fwd and len(index.shape) != 1:
            flat = (prod(index.shape, start=dim(1)),)
            index = work.add(node, "reshape", [index], {"new_shape": flat})
        return work.add(node, "index_select", [value, index], {"dim": axis})


def _sliced(
    value: Value, ranges: Mapping[int, tuple[Dim, Dim, int]], near: Node, work: Rewriter
) -> Value:
    """Return a slice: the ranges (start, end, step) by axis, all of the other axes."""
    every = [ranges.get(axis, (dim(0), e, 1)) for axis, e in enumerate(value.shape)]
    return work.add(
        near, "slice", [value], dict(zip(_SLICE, zip(*every, strict=True), strict=True))
    )


def _index_place(node: Node) -> int:
    return 0 if node.op is embedding_fwd else 1


def _selection(node: Node) -> _Selection | None:
    """Return what a node selects; None if it is not a selection."""
    if node.op is slice_:
        tensor = node.operands[0]
        axes = [k for k, e in enumerate(tensor.shape) if node.output.shape[k] != e]
    elif node.op in (select, index_select):
        tensor, axes = node.operands[0], [node.attributes["dim"]]
    elif node.op is embedding_fwd:
        tensor, axes = node.operands[1], [0]
    else:
        return None
    return _Selection(node, tensor, frozenset(axes)) if isinstance(tensor, Value) else None


def _rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
    selection = _selection(node)
    if selection is None or node.output.name in work.pin_of:
        return None
    if not selection.axes or not selection.keeps(_KEPT, work.fusion.hints):
        return None
    passed = _passed(selection, work)
    makers = [work.producer[v] for v in passed]
    if all(maker.op.family in _FREE for maker in makers):
        return None
    narrow: dict[tuple[Value, tuple[tuple[int, int], ...]], Value] = {}

    def operands(maker: Node, axes: Axes) -> list[Operand]:
        found = list(maker.operands)
        for place, operand in enumerate(maker.operands):
            its = _operand_axes(maker, place, axes)
            if isinstance(operand, Value) and its:
                key = (operand, tuple(sorted(its.items())))
                if key not in narrow:
                    narrow[key] = selection.of(operand, its, work)
                found[place] = narrow[key]
        return found

    for value, axes in passed.items():
        maker = work.producer[value]
        given = operands(maker, axes)
        if value is not selection.tensor:
            key = (value, tuple(sorted(axes.items())))
            narrow[key] = work.add(maker, maker.op.name, given, maker.attributes)
        elif node.op in (slice_, index_select):
            return work.become(node, maker.op.name, given, maker.attributes)
        else:
            return _as_selected(node, work.add(maker, maker.op.name, given, maker.attributes), work)
    return None


def _as_selected(node: Node, value: Value, work: Rewriter) -> Sequence[Operand]:
    """Reshape a selected tensor to the shape of the selection's result."""
    if node.op is select:
        return work.become(node, "squeeze", [value], {"dims": (node.attributes["dim"],)})
    return work.become(node, "reshape", [value], {"new_shape": node.output.shape})


def _passed(selection: _Selection, work: Rewriter) -> dict[Value, Axes]:
    """Return the values that are needed only at the selected positions, producers first."""
    found: dict[Value, Axes] = {}
    waiting = {selection.tensor: [{axis: axis for axis in selection.axes}]}
    users = work.fusion.users
    ops = (*_OPS, *_GEMMS) if selection.keeps(_KEPT_OF_GEMM, work.fusion.hints) else _OPS
    grows = True
    while grows and len(found) < _REACH:
        grows = False
        for value, axes in list(waiting.items()):
            # Nodes that only use sizes read no element.
            reading = [n for n in users.get(value, ()) if n.op.family != "scalar"]
            count = sum(user.outputs[0] in found for user in reading)
            if value in found or not reading or count + (value is selection.tensor) < len(reading):
                continue
            maker = work.producer.get(value)
            if maker is None or any(other != axes[0] for other in axes) or not axes[0]:
                continue
            if not (maker.op.family in _FAMILIES or maker.op in ops):
                continue
            if not _may_pass(maker, value, axes[0], work):
                continue
            found[value] = axes[0]
            grows = True
            for place, operand in enumerate(maker.operands):
                if isinstance(operand, Value):
                    waiting.setdefault(operand, []).append(_operand_axes(maker, place, axes[0]))
    return dict(reversed(found.items()))


def _may_pass(maker: Node, value: Value, axes: Axes, work: Rewriter) -> bool:
    """Return whether a node computes each position of its result along the axes independently."""
    op = maker.op
    if len(maker.outputs) != 1 or op.copies or op.ends_segment:
        return False
    if value in work.finals or value.name in work.pin_of or value.name in work.fusion.shardings:
        return False
    linked = {k for place in range(len(maker.operands)) for k in _linked(maker, place).values()}
    return linked >= axes.keys()


def _linked(maker: Node, place: int) -> dict[int, int]:
    """Return the axes of an operand that are aligned with axes of the result, with these."""
    # Extents as expressions: some may be equal only at hint sizes.
    shapes: Any = [o.shape if isinstance(o, Value) else () for o in maker.operands]
    out: Any = maker.output.shape
    links = links_of(maker, maker.attributes, shapes, out)
    return {axis: result for operand, axis, result in links.same if operand == place}


def _operand_axes(maker: Node, place: int, axes: Axes) -> dict[int, int]:
    """Return the axes of an operand that are selected if those of the result are."""
    return {a: axes[r] for a, r in _linked(maker, place).items() if r in axes}
