"""A fusion as a kernel computes it, without one: f32 arithmetic, sums in a given order.

What a kernel does to bits is imitated: operations round to f32 (their NumPy references run on f32
arrays), half values are rounded where they are defined, and sums are taken in chains and trees over
terms in random places. A mistake can be built in: a part of a sum that is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from fusec.ir.dtype import DType
from fusec.ir.evaluate import (
    Array,
    Sizes,
    apply_reference,
    constant,
    evaluate_attributes,
    known_scalar,
    round_to,
)
from fusec.ir.graph import Const, Fusion, Node, Value, needed_nodes
from fusec.ir.roles import Combine
from fusec.ops.reduction.statistics import results_of
from fusec.reference.errors.order import Order, Stage, as_terms, performed
from fusec.reference.evaluate import find_values, input_array, last_uses

BLOCKED = Order((Stage(32),))
"""The order of sums that is taken unless another one is given."""
TERMS = 1 << 22
"""Products that are held at once."""
PARTS = 64
"""Equal parts of a sum of which one is left out."""


@dataclass(frozen=True)
class Arithmetic:
    """How a fusion is computed.

    order: of every sum; shuffle: seed by which terms change places, None to leave them; lost: the
    node of whose sums one of 64 parts is left out.
    """

    order: Order = BLOCKED
    shuffle: int | None = None
    lost: Node | None = None


def computed(dtype: DType) -> Any:
    """Return the NumPy dtype that a kernel holds values of `dtype` in."""
    return np.dtype(np.float32) if dtype.is_half else dtype.numpy


def evaluate_single(
    fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes, arithmetic: Arithmetic | None = None
) -> dict[str, Array]:
    """Return the outputs as computed, half values before their last rounding."""
    values = find_values(fusion, None)
    nodes = needed_nodes(fusion.nodes, values)
    work = _Work(sizes, arithmetic or Arithmetic())
    environment: dict[Value, Array] = {}
    for entry in fusion.inputs:
        raw = np.asarray(input_array(entry, inputs, sizes)).astype(entry.value.dtype.numpy)
        environment[entry.value] = raw.astype(computed(entry.value.dtype))
    for node, dead in zip(nodes, last_uses(nodes, values), strict=True):
        environment.update(zip(node.outputs, work.results(node, environment), strict=True))
        for value in dead:
            del environment[value]
    return {v.name: environment[v] for v in values}


def stored(fusion: Fusion, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return outputs rounded to their types."""
    values = (o.value for o in fusion.outputs)
    return {v.name: rounded(np.asarray(outputs[v.name]), v.dtype) for v in values}


def rounded(array: Array, dtype: DType) -> Array:
    """Return an array in another type; casts to f8e4m3 saturate."""
    with np.errstate(all="ignore"):
        narrow = round_to(array.astype(np.float64), dtype) if dtype.is_half else array
        return narrow.astype(dtype.numpy)


class _Work:
    """The nodes of a fusion, one after the other."""

    def __init__(self, sizes: Sizes, arithmetic: Arithmetic) -> None:
        self.sizes, self.arithmetic = sizes, arithmetic
        seed = arithmetic.shuffle
        self.rng = None if seed is None else np.random.default_rng(seed)

    def results(self, node: Node, environment: Mapping[Value, Array]) -> list[Array]:
        known = [known_scalar(v, self.sizes) for v in node.outputs]
        if known[0] is not None:
            return [k for k in known if k is not None]
        operands = [
            self._read(
                node, constant(o) if isinstance(o, Const) else environment[o], o.type.dtype, d
            )
            for o, d in zip(node.operands, node.compute_dtypes, strict=True)
        ]
        attributes = evaluate_attributes(node.attributes, self.sizes)
        with np.errstate(all="ignore"):
            made = self._made(node, operands, attributes)
            return [
                np.asarray(result).astype(computed(value.dtype), copy=False)
                for value, result in zip(node.outputs, made, strict=True)
            ]

    def _read(self, node: Node, array: Array, source: DType, dtype: DType) -> Array:
        """Return an operand: a half value is rounded where it is read, but not where it moves."""
        if source.is_half and not (node.op.family == "movement" and source == node.output.dtype):
            array = rounded(np.asarray(array), source)
        return np.asarray(array).astype(computed(dtype))

    def _made(
        self, node: Node, operands: list[Array], attributes: Mapping[str, Any]
    ) -> Sequence[Any]:
        rounded = node.output.dtype.is_rounded and operands and operands[0].ndim
        if node is self.arithmetic.lost:
            operands = _without_part(node, operands, attributes)
        if node.op.combine is Combine.MOMENTS and rounded:
            return self._spread(node, operands[0], attributes)
        if node.op.family == "reduction" and node.op.combine is Combine.SUM and rounded:
            return [self._sum(operands[0], attributes["dims"])]
        if node.op.family == "contraction" and rounded and operands[1].ndim:
            return [self._product(node, operands, attributes)]
        return apply_reference(node.op, operands, attributes)

    def _sum(self, x: Array, axes: tuple[int, ...]) -> Array:
        if not x.size:
            return np.sum(x, axis=axes)
        terms = as_terms(x, axes)
        if self.rng is not None:
            terms = terms[:, self.rng.permutation(terms.shape[1])]
        kept = [e for a, e in enumerate(x.shape) if a not in axes]
        return performed(terms, self.arithmetic.order).reshape(kept)

    def _spread(self, node: Node, x: Array, attributes: Mapping[str, Any]) -> list[Array]:
        axes = attributes["dims"]
        count = prod(x.shape[a] for a in axes)
        mean = self._sum(x, axes) / x.dtype.type(count)
        away = x - np.expand_dims(mean, axes)
        squares = np.square(np.real(away)) + np.square(np.imag(away)) if x.dtype.kind == "c" else (
            np.square(away)
        )  # fmt: skip
        m2 = self._sum(squares, axes)
        free = max(count - attributes.get("correction", 0), 0)
        found = {"mean": mean, "m2": m2, "var": m2 / m2.dtype.type(free)}
        found["count"] = np.full(mean.shape, count)
        return [found[kind] for kind in results_of(node)]

    def _product(self, node: Node, operands: list[Array], attributes: Mapping[str, Any]) -> Array:
        """Return a product of matrices, each sum in the order given; grouped ones in NumPy's."""
        if len(operands) > 2 and operands[2].dtype.kind in "iu":
            return apply_reference(node.op, operands, attributes)[0]
        a, b = operands[0], operands[1]
        if node.op.product is not None and node.op.product.transposed:
            b = np.swapaxes(b, -1, -2) if b.ndim > 1 else b
        left = a[None, :] if a.ndim == 1 else a
        right = b[:, None] if b.ndim == 1 else b
        if self.rng is not None:
            order = self.rng.permutation(left.shape[-1])
            left, right = left.take(order, -1), right.take(order, -2)
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        found = np.empty((*batch, left.shape[-2], right.shape[-1]), np.result_type(left, right))
        left = np.broadcast_to(left, (*batch, *left.shape[-2:]))
        right = np.broadcast_to(right, (*batch, *right.shape[-2:]))
        rows = max(1, TERMS // max(right.shape[-1] * right.shape[-2], 1))
        if not left.shape[-1]:
            found[...] = 0
        for place in np.ndindex(*batch) if left.shape[-1] else ():
            for low in range(0, left.shape[-2], rows):
                part = left[place][low : low + rows, :, None] * right[place][None]
                found[place][low : low + rows] = performed(part, self.arithmetic.order)
        if a.ndim == 1:
            found = found[..., 0, :]
        if b.ndim == 1:
            found = found[..., 0]
        found = found + found.dtype.type(0)  # sums begin with 0: none is -0
        return found if len(operands) < 3 else found + operands[2]


def summed_extent(node: Node, sizes: Sizes) -> int:
    """Return how many terms the sums of a node have, 0 for a node without."""
    if not node.operands or not node.output.dtype.is_rounded:
        return 0
    shape = [d.evaluate(sizes) for d in node.operands[0].type.shape or ()]
    if node.op.family == "reduction" and node.op.combine in (Combine.MOMENTS, Combine.SUM):
        axes: tuple[int, ...] = node.attributes["dims"]
        return prod(shape[a] for a in axes)
    if node.op.family == "contraction" and shape:
        return shape[-1]
    return 0


def _without_part(node: Node, operands: list[Array], attributes: Mapping[str, Any]) -> list[Array]:
    """Return the operands with one of 64 parts of each sum put to 0 (of variances, to the mean)."""
    x = operands[0].copy()
    axes = attributes["dims"] if node.op.family == "reduction" else (x.ndim - 1,)
    axis = max(axes, key=lambda a: x.shape[a])
    count = x.shape[axis]
    place = [slice(None)] * x.ndim
    place[axis] = slice(count // 2, count // 2 + max(1, count // PARTS))
    moments = node.op.combine is Combine.MOMENTS
    x[tuple(place)] = np.mean(x, axis=axes, keepdims=True) if moments else 0
    return [x, *operands[1:]]
