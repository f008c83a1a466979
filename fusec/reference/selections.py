"""Error bounds of operations that select, place, accumulate in order, sort or draw.

- Indexing and scatters move bounds with the values; a doubtful index puts its results in doubt.
- A position (argmax, argsort, top-k) is in doubt where the intervals of value and bound of two
  elements overlap: a kernel may order them the other way round. Equal exact elements do not count.
- The k-th value in order lies between the k-th of x - bound and the k-th of x + bound.
- Running sums and products are bounded as reductions of their first k elements; a scatter-add as a
  sum of as many terms as meet in an element.
- Random numbers have the same bits everywhere; only the arithmetic on them rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np

from fusec.ir.evaluate import Array, apply_reference, settle
from fusec.ir.graph import Node
from fusec.ir.totals import distinct_terms
from fusec.reference.bounds import (
    SMALLEST,
    Bounded,
    add_bounds,
    convert_bounded,
    either,
    overflowing,
    rounding,
    settle_bounded,
    unit,
)
from fusec.reference.node_bounds import contraction_error, distinct_products
from fusec.reference.reductions import meets_no_number, of_neighbours, product_range

Attributes = Mapping[str, Any]
Rule = Callable[[Node, Sequence[Bounded], Attributes], tuple[Bounded, ...]]

MARGIN = 1 + 2.0**-20
"""Intervals that touch count as overlapping."""


def selected(
    node: Node, operands: Sequence[Bounded], attributes: Attributes
) -> tuple[Bounded, ...] | None:
    """Return the results of a node of these families; None for any other node."""
    rule = _RULES.get(node.op.name) or _RULES.get(node.op.family)
    if rule is None:
        return None
    taken = [
        convert_bounded(o, b, d)
        for o, b, d in zip(node.operands, operands, node.compute_dtypes, strict=True)
    ]
    with np.errstate(all="ignore"):
        return rule(node, taken, attributes)


def _lost(index: Bounded) -> Array | None:
    """Return the elements of an index that a kernel may see differently."""
    moved = None if index.bound is None else np.asarray(index.bound > 0)
    lost = either(index.doubt, moved)
    return lost if lost is not None and np.any(lost) else None


def _indexing(
    node: Node, operands: Sequence[Bounded], attributes: Attributes
) -> tuple[Bounded, ...]:
    place = 0 if node.op.params[0].name == "input" else 1
    data, index = operands[1 - place], operands[place]

    def pick(array: Array | None) -> Array | None:
        if array is None:
            return None
        arrays = [index.value, np.broadcast_to(array, data.value.shape)]
        return apply_reference(node.op, arrays if place == 0 else arrays[::-1], attributes)[0]

    value, doubt = pick(data.value), pick(data.doubt)
    assert value is not None
    lost = _lost(index)
    if lost is not None:
        doubt = either(doubt, _spread(node, lost, value.shape, attributes))
    return (Bounded(settle(node, node.output, value), pick(data.bound), doubt),)


def _spread(node: Node, lost: Array, shape: tuple[int, ...], attributes: Attributes) -> Array:
    """Return which results a mask over the index reaches."""
    if lost.ndim == 0:
        return np.full(shape, bool(lost))
    if node.op.name == "embedding_fwd":
        return np.broadcast_to(lost[..., None], shape)
    if lost.ndim < len(shape):
        axes = [k for k in range(len(shape)) if k != attributes["dim"]]
        lost = np.expand_dims(lost, axes)
    return np.broadcast_to(lost, shape)


def _scatter(
    node: Node, operands: Sequence[Bounded], attributes: Attributes
) -> tuple[Bounded, ...]:
    data, index, source = operands

    def place(arg: Array, src: Array) -> Array:
        return apply_reference(node.op, [arg, index.value, src], attributes)[0]

    def both(a: Array | None, b: Array | None, kind: Any) -> Array | None:
        if a is None and b is None:
            return None
        filled = [
            np.zeros(o.value.shape, kind) if p is None else np.broadcast_to(p, o.value.shape)
            for p, o in ((a, data), (b, source))
        ]
        return place(*filled)

    raw = place(data.value, source.value)
    bound, doubt = both(data.bound, source.bound, np.float64), None
    if data.doubt is not None or source.doubt is not None:
        first, second = (
            None if d is None else d.astype(np.int64) for d in (data.doubt, source.doubt)
        )
        marked = both(first, second, np.int64)
        assert marked is not None
        doubt = np.not_equal(marked, 0)
    if _lost(index) is not None:
        doubt = np.ones(raw.shape, bool)
    if node.op.name != "scatter" and node.output.dtype.is_float:
        ones = [np.ones(o.value.shape) for o in (data, source)]
        terms = place(np.abs(data.value), np.abs(source.value))
        count = place(*ones)
        # What arrives in any order may round in the same direction each time.
        growth = np.maximum(count - 1, 0)
        if attributes["deterministic"]:
            growth = _growth(count, _distinct(source.value, attributes["dim"]))
        own = terms * unit(node.output.dtype) * growth
        own = np.where(overflowing(raw, terms, node.output.dtype), np.inf, own)
        bound = add_bounds(bound, own)
    return (settle_bounded(node, node.output, raw, bound, doubt),)


def _distinct(terms: Array, axis: int) -> int:
    """Return how many of the terms that are summed along an axis differ."""
    return distinct_terms(terms, [axis]) if terms.ndim else 1


def _growth(count: Array, distinct: int) -> Array:
    """Return `reductions.growth` of an array of counts."""
    repeats = np.minimum(count / sqrt(max(distinct, 1)), count / 2)
    walk = np.maximum(np.sqrt(count), np.where(count > distinct, repeats, 0))
    return np.minimum(np.maximum(count - 1, 0), 4 + walk) / 2


def _scan(node: Node, operands: Sequence[Bounded], attributes: Attributes) -> tuple[Bounded, ...]:
    name, dim, dtype = node.op.name, attributes["dim"], node.output.dtype
    x = operands[0]

    def scan(array: Array, *rest: Array) -> Array:
        return apply_reference(node.op, [array, *rest], attributes)[0]

    initial = [o.value for o in operands[1:]]
    raw = scan(x.value, *initial)
    along = [1] * raw.ndim
    along[dim] = raw.shape[dim]
    count = np.arange(1, raw.shape[dim] + 1, dtype=np.float64).reshape(along) + len(initial)
    wide = None if x.bound is None else np.broadcast_to(x.bound, x.value.shape)
    doubt = None if x.doubt is None else np.logical_or.accumulate(x.doubt, axis=dim)
    bound: Array | None = None
    none: Any = False
    if name == "cumsum":
        bound = None if wide is None else np.cumsum(wide, axis=dim)
        if dtype.is_rounded:
            terms = scan(np.abs(x.value), *(np.abs(i) for i in initial))
            own = terms * unit(dtype) * _growth(count, _distinct(x.value, dim))
            own = np.where(overflowing(raw, terms, dtype), np.inf, own)
            bound = add_bounds(bound, own)
    elif name == "cumprod":
        relative = 0.0 if wide is None else np.cumsum(wide / np.abs(x.value), axis=dim)
        if dtype.is_float:
            reach = of_neighbours(x.value, dim, initial)
            none = meets_no_number(*reach, dtype)
            bound = np.abs(raw) * (relative + count * unit(dtype))
            bound = bound + count * SMALLEST[dtype.compute.name]
            bound = bound + product_range(*reach, count, dtype)
    elif wide is not None:
        up, down = scan(x.value + wide, *initial), scan(x.value - wide, *initial)
        bound = np.maximum(np.abs(up - raw), np.abs(raw - down))
    if bound is not None:
        bound = np.where(np.isnan(bound), np.where(np.isnan(raw), 0.0, np.inf), bound)
        bound = np.where(np.isinf(raw), np.where(none, np.inf, 0.0), bound)
    return (settle_bounded(node, node.output, raw, bound, doubt),)


def _sort(node: Node, operands: Sequence[Bounded], attributes: Attributes) -> tuple[Bounded, ...]:
    x, dim = operands[0], attributes["dim"]
    results = apply_reference(node.op, [x.value], attributes)
    positions = results[-1]
    doubt = bound = None
    if not x.exact:
        wide = np.zeros(x.value.shape) if x.bound is None else x.bound
        unsure = _overlapping(x.value, np.broadcast_to(wide, x.value.shape), dim)
        if x.doubt is not None:
            unsure = unsure | np.any(x.doubt, axis=dim, keepdims=True)
        doubt = np.take_along_axis(unsure, positions, axis=dim)
        if len(results) == 2:
            up, down = (
                apply_reference(node.op, [x.value + s * wide], attributes)[0] for s in (1, -1)
            )
            bound = np.maximum(np.abs(up - results[0]), np.abs(results[0] - down))
            bound = np.where(np.isnan(bound), 0.0, bound)
    placed = Bounded(settle(node, node.outputs[-1], positions), None, doubt)
    if len(results) == 1:
        return (placed,)
    jumps = None if x.doubt is None else np.broadcast_to(
        np.any(x.doubt, axis=dim, keepdims=True), results[0].shape
    )  # fmt: skip
    return Bounded(settle(node, node.outputs[0], results[0]), bound, jumps), placed


def _overlapping(x: Array, bound: Array, axis: int) -> Array:
    """Return which elements a neighbour in order may change places with."""
    order = np.argsort(x, axis=axis, kind="stable")
    s = np.take_along_axis(np.asarray(x, np.float64), order, axis)
    b = np.take_along_axis(bound * MARGIN, order, axis)
    before = np.maximum.accumulate(s + b, axis=axis)
    after = np.flip(np.minimum.accumulate(np.flip(s - b, axis), axis=axis), axis)
    met = np.zeros(x.shape, bool)
    head = tuple(slice(None) if k != axis else slice(None, -1) for k in range(x.ndim))
    tail = tuple(slice(None) if k != axis else slice(1, None) for k in range(x.ndim))
    met[tail] |= before[head] > (s - b)[tail]
    met[head] |= after[tail] < (s + b)[head]
    result = np.zeros(x.shape, bool)
    np.put_along_axis(result, order, met, axis)
    return result


def _position(
    node: Node, operands: Sequence[Bounded], attributes: Attributes
) -> tuple[Bounded, ...]:
    x = operands[0]
    positions = apply_reference(node.op, [x.value], attributes)[0]
    held = settle(node, node.output, positions)
    if x.exact or not x.value.size:
        return (Bounded(held),)
    rows = _rows(x.value, attributes["dims"]) * (1.0 if node.op.name == "argmax" else -1.0)
    wide = np.zeros(x.value.shape) if x.bound is None else x.bound
    bound = _rows(np.broadcast_to(wide, x.value.shape), attributes["dims"]) * MARGIN
    at = positions.reshape(-1, 1)
    least = np.take_along_axis(rows - bound, at, 1)
    rivals = rows + bound > least
    np.put_along_axis(rivals, at, False, 1)
    doubt: Any = rivals.any(axis=1).reshape(positions.shape)
    if x.doubt is not None:
        doubt = np.logical_or(doubt, np.any(x.doubt, axis=attributes["dims"]))
    return (Bounded(held, None, doubt if doubt.any() else None),)


def _rows(x: Array, dims: Sequence[int]) -> Array:
    """Return the reduced elements as rows."""
    kept = [axis for axis in range(x.ndim) if axis not in dims]
    count = int(np.prod([x.shape[axis] for axis in dims], dtype=np.int64))
    return np.transpose(x, (*kept, *dims)).reshape(-1, count)


def _random(node: Node, operands: Sequence[Bounded], attributes: Attributes) -> tuple[Bounded, ...]:
    values = [o.value for o in operands]
    (raw,) = apply_reference(node.op, values, attributes)
    terms = np.abs(raw) + np.abs(raw - values[0])
    own = rounding(terms, node.output.dtype, node.op.accuracy)
    given = [o.bound for o in operands if o.bound is not None]
    scale = sum((np.max(np.abs(g)) for g in given), 0.0) * (1 + np.abs(raw))
    bound = add_bounds(own, scale if given else None)
    return (settle_bounded(node, node.output, raw, bound, None),)


def _grouped(
    node: Node, operands: Sequence[Bounded], attributes: Attributes
) -> tuple[Bounded, ...]:
    a, b, ends = operands

    def product(left: Array | None, right: Array | None) -> Array | None:
        if left is None or right is None:
            return None
        wide = [np.broadcast_to(x, o.value.shape) for x, o in ((left, a), (right, b))]
        return apply_reference(node.op, [*wide, ends.value], attributes)[0]

    dtype, raw = node.output.dtype, product(a.value, b.value)
    left, right = np.abs(a.value), np.abs(b.value)
    magnitude = product(left, right)
    assert raw is not None
    assert magnitude is not None
    distinct = distinct_products(node, operands)
    own = contraction_error(raw, magnitude, a.value.shape[-1], dtype, distinct)
    bound = add_bounds(own, product(a.bound, right), product(left, b.bound))
    return (settle_bounded(node, node.output, raw, bound, None),)


def _factory(
    node: Node, operands: Sequence[Bounded], attributes: Mapping[str, Any]
) -> tuple[Bounded, ...]:
    """Return a tensor made of scalars: where they are off, it is off as if made of their errors."""
    (raw,) = apply_reference(node.op, [o.value for o in operands], attributes)
    errors = [np.zeros(()) if o.bound is None else o.bound for o in operands]
    (bound,) = apply_reference(node.op, errors, attributes)
    known = all(o.bound is None for o in operands)
    return (settle_bounded(node, node.output, raw, None if known else bound, None),)


_RULES: Mapping[str, Rule] = {
    "full": _factory,
    "iota": _factory,
    "grouped_mm": _grouped,
    "indexing": _indexing,
    "scatter": _scatter,
    "scan": _scan,
    "sort": _sort,
    "random": _random,
    "argmax": _position,
    "argmin": _position,
}
"""By name, else by family."""
