"""A fusion in f32 arithmetic, every sum taken in an order of one's choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusec.ir.dtype import F32
from fusec.ir.evaluate import (
    constant,
    convert_operand,
    evaluate_attributes,
    evaluate_node,
    round_to,
)
from fusec.ir.graph import Const, Fusion, Node, Value
from fusec.reference.evaluate import input_array, widen_input

Array = np.ndarray
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Order:
    """How terms are added.

    add: sums the last axis, in the array's own type; sequence: of n terms that come one by one.
    """

    add: Callable[[Array], Array]
    sequence: Callable[[int], Sequence[int]]


def _one_by_one(terms: Array) -> Array:
    total = np.zeros(terms.shape[:-1], terms.dtype)
    for k in range(terms.shape[-1]):
        total = total + terms[..., k]
    return total


def _mixed(count: int) -> Sequence[int]:
    return [int(k) for k in np.random.default_rng(count).permutation(count)]


def _tree(terms: Array) -> Array:
    while terms.shape[-1] > 1:
        half = terms.shape[-1] // 2
        pairs = terms[..., :half] + terms[..., half : 2 * half]
        terms = np.concatenate([pairs, terms[..., 2 * half :]], axis=-1)
    return terms[..., 0] if terms.shape[-1] else _one_by_one(terms)


ORDERS = (
    Order(_one_by_one, range),
    Order(lambda terms: _one_by_one(terms[..., _mixed(terms.shape[-1])]), _mixed),
    Order(_tree, lambda count: range(count)[::-1]),
)


def evaluate_in(
    order: Order, fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes
) -> dict[Value, Array]:
    """Return all values."""
    found: dict[Value, Array] = {}
    for entry in fusion.inputs:
        found[entry.value] = widen_input(entry.value, input_array(entry, inputs, sizes))
    for node in fusion.nodes:
        rule = SUMS.get(node.op.name) if node.output.dtype.is_float else None
        results = [_settled(rule, order, node, found, sizes)] if rule else evaluate_node(
            node, found, sizes
        )  # fmt: skip
        for value, array in zip(node.outputs, results, strict=True):
            found[value] = round_to(array, F32) if value.dtype == F32 else array
    return found


Rule = Callable[..., Array]


def _settled(
    rule: Rule, order: Order, node: Node, found: Mapping[Value, Array], sizes: Sizes
) -> Array:
    dtype = node.output.dtype
    wide = np.float64 if dtype.name == "f64" else np.float32
    operands: list[Array] = []
    for operand, compute in zip(node.operands, node.compute_dtypes, strict=True):
        array = constant(operand) if isinstance(operand, Const) else found[operand]
        array = convert_operand(operand, array, compute)
        operands.append(array.astype(wide) if array.dtype.kind == "f" else array)
    shape = tuple(d.evaluate(sizes) for d in node.output.shape)
    result = rule(order, shape, *operands, **evaluate_attributes(node.attributes, sizes))
    exact = np.asarray(result, np.float64)
    return round_to(exact, dtype) if dtype.is_half else exact


def _sum(order: Order, shape: Any, a: Array, dims: Any = None, dtype: Any = None) -> Array:
    axes = list(range(a.ndim)) if dims is None else list(dims)
    kept = [axis for axis in range(a.ndim) if axis not in axes]
    count = int(np.prod([a.shape[axis] for axis in axes]))
    return order.add(np.transpose(a, [*kept, *axes]).reshape(*shape, count))


def _matmul(order: Order, shape: Any, a: Array, b: Array) -> Array:
    left = a[None] if a.ndim == 1 else a
    right = np.swapaxes(b[:, None] if b.ndim == 1 else b, -1, -2)
    return order.add(left[..., :, None, :] * right[..., None, :, :]).reshape(shape)


def _linear(order: Order, shape: Any, x: Array, weight: Array, bias: Any = None) -> Array:
    turned = np.swapaxes(weight, -1, -2) if weight.ndim > 1 else weight
    product = _matmul(order, shape, x, turned)
    return product if bias is None else product + bias


def _cumsum(order: Order, shape: Any, a: Array, init: Any = None, dim: int = 0) -> Array:
    moved = np.moveaxis(a, dim, -1)
    sums = [order.add(moved[..., : k + 1]) for k in range(moved.shape[-1])]
    result = np.stack(sums, dim) if sums else a
    return result if init is None else result + init


def _index_add(
    order: Order, shape: Any, a: Array, index: Array, src: Array, dim: int, **_: Any
) -> Array:
    result = np.moveaxis(a.copy(), dim, 0)
    for k in order.sequence(len(index)):
        result[index[k]] += np.moveaxis(src, dim, 0)[k]
    return np.moveaxis(result, 0, dim)


def _scatter_add(
    order: Order, shape: Any, a: Array, index: Array, src: Array, dim: int, **_: Any
) -> Array:
    result, places = a.copy(), list(np.indices(index.shape))
    places[dim] = index
    source = src[tuple(slice(n) for n in index.shape)] if src.ndim else np.full(index.shape, src)
    for k in order.sequence(index.shape[dim]):
        at = (slice(None),) * dim + (k,)
        result[tuple(p[at] for p in places)] += source[at]
    return result


SUMS: Mapping[str, Rule] = {
    "sum": _sum, "matmul": _matmul, "linear": _linear, "cumsum": _cumsum, "index_add": _index_add,
    "scatter_add": _scatter_add,
}  # fmt: skip
