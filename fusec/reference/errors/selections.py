"""Expected errors of operations that move, select or sort elements, or generate random numbers.

- Movement and indexing move errors with the values. What is repeated (expanded, gathered)
  has its errors in common. If an index is uncertain, so is the value that it reads.
- A position (argmax, argsort, top-k) is one of several where elements lie within their errors of
  one another (`rivals`): a kernel may order them the other way round. Equal exact elements do not
  count. The value that such a position reads is unknown.
- The k-th value in order lies between the k-th of all lower and the k-th of all upper ends.
- Random numbers have the same bits everywhere; only the arithmetic on them rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from fusec.dataclasses import replace
from fusec.ir.arrays import np, running_extremum
from fusec.ir.evaluate import Array, apply_reference, convert_operand, settle
from fusec.ir.graph import Node
from fusec.ir.roles import Combine
from fusec.reference.errors.accumulations import scan, scatter
from fusec.reference.errors.estimate import (
    LIMIT,
    Alike,
    Estimate,
    Shared,
    add,
    converted,
    distance,
    known,
    result,
    rounding,
)
from fusec.reference.errors.rivals import Rivals, in_rows, rivals_in_order, rivals_of_extremum
from fusec.reference.errors.sums import Rules

Attributes = Mapping[str, Any]
Rule = Callable[[Node, Sequence[Estimate], Attributes, Rules], tuple[Estimate, ...]]

_SIGN: Mapping[Combine | None, float] = {
    Combine.FIRST_MAXIMUM: 1.0,
    Combine.FIRST_MINIMUM: -1.0,
}
MARGIN = 1 + 2.0**-20
"""Intervals that touch count as overlapping."""


def selected(
    node: Node, operands: Sequence[Estimate], attributes: Attributes, rules: Rules
) -> tuple[Estimate, ...] | None:
    """Return the results of a node of these families; None for any other node."""
    if node.op.family == "movement":
        return _movement(node, operands, attributes)
    by_position = node.op.family == "reduction" and node.op.combine in _SIGN
    rule = _position if by_position else _RULES.get(node.op.family)
    if rule is None:
        return None
    taken = [
        converted(o, e, d)
        for o, e, d in zip(node.operands, operands, node.compute_dtypes, strict=True)
    ]
    with np.errstate(all="ignore"):
        return rule(node, taken, attributes, rules)


def _common(estimate: Estimate, own: tuple[int, ...]) -> Estimate:
    """Return an estimate whose elements may be read several times; own: the shape of their source.

    If that has extent 1 or the same extent along an axis, repetition is along those axes only.
    """
    shape, alike = estimate.value.shape, None
    if len(own) == len(shape) and all(f in (1, m) for f, m in zip(own, shape, strict=True)):
        assert estimate.independent is not None
        axes = frozenset(a for a, extent in enumerate(own) if extent == 1)
        alike = Alike(axes, estimate.independent)
    return replace(estimate, independent=None, common=estimate.variance, alike=alike)


def _shared(source: Estimate, shape: tuple[int, ...]) -> Shared | None:
    """Return the error of each element as that of all its repetitions, along axes of extent 1.

    None if elements are repeated in any other way.
    """
    own, variance = source.value.shape, source.variance
    if variance is None or len(own) != len(shape):
        return None
    if not all(f in (1, m) for f, m in zip(own, shape, strict=True)):
        return None
    return Shared(np.broadcast_to(variance, own), np.ones(()), None)


def _mosts(taken: Sequence[Estimate]) -> Sequence[Array | None]:
    """Return the limits of errors, of all operands if any has one."""
    if all(t.most is None for t in taken):
        return [None] * len(taken)
    return [t.reach for t in taken]


def _movement(
    node: Node, operands: Sequence[Estimate], attributes: Attributes
) -> tuple[Estimate, ...]:
    dtype = node.output.dtype
    # Only operands of the result's type are elements of it; they are rounded where it is read.
    data = [o.type.dtype == dtype and not o.is_scalar for o in node.operands]
    taken = [
        e if moved else replace(e.settled, value=_taken(o, e, dtype), rounds_to=None)
        for o, e, moved in zip(node.operands, operands, data, strict=True)
    ]

    def move(arrays: Sequence[Array | None]) -> tuple[Array | None, ...]:
        if all(a is None for a in arrays):
            return (None,) * len(node.outputs)
        filled: list[Any] = []
        for array, moved, operand in zip(arrays, data, taken, strict=True):
            if not moved and operand.value.ndim:
                filled.append(operand.value)
            elif array is None or not moved:
                filled.append(np.zeros(operand.value.shape))
            else:
                filled.append(np.broadcast_to(array, operand.value.shape))
        return apply_reference(node.op, filled, attributes)

    values = apply_reference(node.op, [t.value for t in taken], attributes)
    parts = (
        move([t.independent for t in taken]), move([t.common for t in taken]),
        move([t.part for t in taken]), move(_mosts(taken)),
    )  # fmt: skip
    ancestors = 0
    for each in taken:
        ancestors |= each.ancestors
    rounds_to = next((t.rounds_to for t in taken if t.rounds_to is not None), None)
    found = list[Estimate]()
    for value, independent, common, part, most in zip(values, *parts, strict=True):
        held = value if rounds_to is not None else settle(node, node.output, value)
        each = Estimate(held, independent, common, ancestors, part, rounds_to, most=most)
        access = node.op.access
        repeated = access is not None and access.repeats and each.independent is not None
        own = taken[0].value
        if repeated and value.size > own.size:
            each = replace(_common(each, own.shape), shared=_shared(taken[0], value.shape))
        found.append(each)
    return tuple(found)


def _taken(operand: Any, estimate: Estimate, dtype: Any) -> Array:
    value = estimate.settled.value
    return convert_operand(operand, value, dtype) if operand.is_scalar else value


def _lost(index: Estimate) -> Array | None:
    """Return the elements of an index that a kernel may see differently."""
    variance = index.variance
    return None if variance is None or not variance.any() else variance > 0


def _indexing(
    node: Node, operands: Sequence[Estimate], attributes: Attributes, rules: Rules
) -> tuple[Estimate, ...]:
    place = 0 if node.op.lookup is None else node.op.lookup.index
    data, index = operands[1 - place], operands[place]

    def pick(array: Array | None) -> Array | None:
        if array is None:
            return None
        arrays = [index.value, np.broadcast_to(array, data.value.shape)]
        return apply_reference(node.op, arrays if place == 0 else arrays[::-1], attributes)[0]

    value, variance = pick(data.value), pick(data.variance)
    assert value is not None
    lost = _lost(index)
    if lost is not None:
        reached = _reached(node, lost, value.shape, attributes)
        variance = np.where(reached, inf, 0.0 if variance is None else variance)
    held = settle(node, node.output, value)
    ancestors = data.ancestors | index.ancestors
    return (Estimate(held, None, variance, ancestors, pick(data.part)),)


def _reached(node: Node, lost: Array, shape: tuple[int, ...], attributes: Attributes) -> Array:
    """Return which results a mask over the index reaches."""
    if lost.ndim == 0:
        return np.full(shape, bool(lost))
    if "dim" not in attributes:
        return np.broadcast_to(lost[..., None], shape)
    if lost.ndim < len(shape):
        axes = [k for k in range(len(shape)) if k != attributes["dim"]]
        lost = np.expand_dims(lost, axes)
    return np.broadcast_to(lost, shape)


def _sort(
    node: Node, operands: Sequence[Estimate], attributes: Attributes, rules: Rules
) -> tuple[Estimate, ...]:
    x, dim = operands[0], attributes["dim"]
    results = apply_reference(node.op, [x.value], attributes)
    positions = results[-1]
    unsure = spread = rivals = None
    if not x.exact:
        reach = np.broadcast_to(LIMIT * x.sigma, x.value.shape)
        met = _overlapping(x.value, reach, dim)
        lost = np.take_along_axis(met, positions, axis=dim)
        if lost.any():
            unsure, rivals = np.where(lost, inf, 0.0), _in_order(node, x.value, reach, attributes)
        if len(results) == 2:
            up, down = (
                apply_reference(node.op, [x.value + s * reach], attributes)[0] for s in (1, -1)
            )
            change = np.maximum(distance(up, results[0]), distance(down, results[0])) / LIMIT
            spread = known(np.square(change))
    held = settle(node, node.outputs[-1], positions)
    placed = Estimate(held, unsure, None, x.ancestors, rivals=rivals)
    if len(results) == 1:
        return (placed,)
    held = settle(node, node.outputs[0], results[0])
    return Estimate(held, spread, None, x.ancestors), placed


def _in_order(node: Node, x: Array, reach: Array, attributes: Attributes) -> Rivals:
    """Return the rivals of the positions that order elements."""
    reach, dim, ends = reach * MARGIN, attributes["dim"], list[Array]()
    for end in (x - reach, x + reach):
        order = apply_reference(node.op, [end], attributes)[-1]
        ends.append(np.take_along_axis(end, order, axis=dim))
    return rivals_in_order(x, reach, dim, (ends[0], ends[1]))


def _overlapping(x: Array, reach: Array, axis: int) -> Array:
    """Return which elements may swap positions with a neighbour in order."""
    order = np.argsort(x, axis=axis, kind="stable")
    s = np.take_along_axis(np.asarray(x, np.float64), order, axis)
    b = np.take_along_axis(reach * MARGIN, order, axis)
    before = running_extremum(np.maximum, s + b, axis)
    after = np.flip(running_extremum(np.minimum, np.flip(s - b, axis), axis), axis)
    met = np.zeros(x.shape, bool)
    head = tuple(slice(None) if k != axis else slice(None, -1) for k in range(x.ndim))
    tail = tuple(slice(None) if k != axis else slice(1, None) for k in range(x.ndim))
    met[tail] |= before[head] > (s - b)[tail]
    met[head] |= after[tail] < (s + b)[head]
    found = np.zeros(x.shape, bool)
    np.put_along_axis(found, order, met, axis)
    return found


def _position(
    node: Node, operands: Sequence[Estimate], attributes: Attributes, rules: Rules
) -> tuple[Estimate, ...]:
    x = operands[0]
    positions = apply_reference(node.op, [x.value], attributes)[0]
    held = settle(node, node.output, positions)
    if x.exact or not x.value.size:
        return (Estimate(held),)
    sign, dims = _SIGN[node.op.combine], attributes["dims"]
    rows = in_rows(x.value, dims) * sign
    reach = np.broadcast_to(LIMIT * x.sigma * MARGIN, x.value.shape)
    at, reaches = positions.reshape(-1, 1), in_rows(reach, dims)
    least = np.take_along_axis(rows - reaches, at, 1)
    met = rows + reaches > least
    np.put_along_axis(met, at, False, 1)
    lost: Any = met.any(axis=1).reshape(positions.shape)
    if not lost.any():
        return (Estimate(held, None, None, x.ancestors),)
    rivals = rivals_of_extremum(x.value, reach, dims, sign)
    return (Estimate(held, np.where(lost, inf, 0.0), None, x.ancestors, rivals=rivals),)


def _random(
    node: Node, operands: Sequence[Estimate], attributes: Attributes, rules: Rules
) -> tuple[Estimate, ...]:
    values = [o.value for o in operands]
    (raw,) = apply_reference(node.op, values, attributes)
    if not rules.errors:
        return (result(raw, node.output.dtype, None, None),)
    terms = np.abs(raw) + np.abs(raw - values[0])
    independent, common = rounding(terms, node.output.dtype, node.op.accuracy, False)
    for operand in operands[:2]:
        if operand.variance is not None:
            common = add(common, np.max(operand.variance) * np.square(1 + np.abs(raw)))
    return (result(raw, node.output.dtype, independent, common),)


def _factory(
    node: Node, operands: Sequence[Estimate], attributes: Attributes, rules: Rules
) -> tuple[Estimate, ...]:
    """Return a tensor generated from scalars: it is off as if generated from their errors."""
    (raw,) = apply_reference(node.op, [o.value for o in operands], attributes)
    held = settle(node, node.output, raw)
    if all(o.exact for o in operands):
        return (Estimate(held),)
    errors = [o.sigma for o in operands]
    (common,) = apply_reference(node.op, errors, attributes)
    ancestors = 0
    for operand in operands:
        ancestors |= operand.ancestors
    return (Estimate(held, None, known(np.square(common)), ancestors),)


_RULES: Mapping[str, Rule] = {
    "factory": _factory,
    "indexing": _indexing,
    "scatter": scatter,
    "scan": scan,
    "sort": _sort,
    "random": _random,
}
"""By family."""
