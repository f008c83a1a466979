"""Error bounds by the family of an operation: movement moves them, products of matrices sum them.

A contraction takes the operands' bounds through |a| @ |b|, plus `contraction_growth`. Reductions
are in `fusec.reference.reductions`, what selects or scans in `fusec.reference.selections`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import numpy as np

from fusec.diagnostics import Unsupported
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, apply_reference, convert_operand, settle
from fusec.ir.graph import Node
from fusec.ir.totals import distinct_terms
from fusec.reference.bounds import (
    SMALLEST,
    Bounded,
    add_bounds,
    convert_bounded,
    overflowing,
    settle_bounded,
    unit,
)
from fusec.reference.pointwise_bounds import cast_bounds, pointwise_bounds


def bounded_node(
    node: Node, operands: Sequence[Bounded], attributes: Mapping[str, Any]
) -> tuple[Bounded, ...]:
    """Return the results of a node other than a reduction; operands as the graph holds them."""
    if node.op.name == "cast":
        return (cast_bounds(node, operands[0], attributes),)
    dtypes = node.compute_dtypes
    taken = [
        convert_bounded(o, b, d) for o, b, d in zip(node.operands, operands, dtypes, strict=True)
    ]
    rule = _RULES.get(node.op.family)
    if rule is None:
        raise Unsupported(f"no error bound is known for operation `{node.op.name}`", span=node.span)
    return rule(node, taken, attributes)


def _movement(
    node: Node, operands: Sequence[Bounded], attributes: Mapping[str, Any]
) -> tuple[Bounded, ...]:
    dtype = node.output.dtype
    data = [o.type.dtype == dtype and not o.is_scalar for o in node.operands]
    taken = [
        b if o.type.dtype == dtype or not o.is_scalar
        else Bounded(convert_operand(o, b.value, dtype))
        for o, b in zip(node.operands, operands, strict=True)
    ]  # fmt: skip

    def move(arrays: Sequence[Array | None], zero: Any) -> tuple[Array | None, ...]:
        if all(a is None for a in arrays):
            return (None,) * len(node.outputs)
        filled: list[Any] = []
        for array, is_data, operand in zip(arrays, data, taken, strict=True):
            if not is_data and operand.value.ndim:
                filled.append(operand.value)
            elif array is None or not is_data:
                filled.append(np.full(operand.value.shape, zero))
            else:
                filled.append(np.broadcast_to(array, operand.value.shape))
        return apply_reference(node.op, filled, attributes)

    results = apply_reference(node.op, [t.value for t in taken], attributes)
    bounds = move([t.bound for t in taken], 0.0)
    doubts = move([t.doubt for t in taken], False)
    return tuple(
        Bounded(settle(node, v, r), b, None if d is None else np.asarray(d, np.bool_))
        for v, r, b, d in zip(node.outputs, results, bounds, doubts, strict=True)
    )


def _exact(
    node: Node, operands: Sequence[Bounded], attributes: Mapping[str, Any]
) -> tuple[Bounded, ...]:
    results = apply_reference(node.op, [o.value for o in operands], attributes)
    return tuple(Bounded(settle(node, v, r)) for v, r in zip(node.outputs, results, strict=True))


def contraction_growth(count: int, distinct: int | None = None) -> tuple[float, float]:
    """Return the error of a contraction over `count` products in ulps of |a| @ |b| and of |a @ b|.

    Roundings of partial sums walk at random, sqrt(count) in total with a margin; tensor cores cut
    off instead of rounding, once per 16 products, which shifts a sum that grows steadily. Products
    that repeat are rounded the same way each time, so that only `distinct` of them walk; at most
    all are off by half an ulp of a sum half as large on average.
    """
    steady = count / 32
    if distinct is not None and 0 < distinct < count:
        steady = max(steady, min(count / sqrt(distinct) / 2, count / 4))
    return min(max(count, 1), 4 + sqrt(count)), steady


def contraction_error(
    product: Array, magnitude: Array, count: int, dtype: DType, distinct: int | None = None
) -> Array:
    """Return the error of the summation itself; each product may also leave the range of floats."""
    random, steady = contraction_growth(count, distinct)
    lost = count * SMALLEST[dtype.compute.part.name]
    if dtype.is_complex:
        # Two products and their sum for each part; the products may cancel.
        return 1.5 * unit(dtype) * (random + steady + 1) * magnitude + 4 * lost
    return unit(dtype) * (random * magnitude + steady * np.abs(product)) + lost


def distinct_products(node: Node, operands: Sequence[Bounded]) -> int:
    """Return how many products of a contraction's sums differ: few of masks or expanded operands.

    Of two operands with m and n different values it is m * n at most.
    """
    a, b = operands[0].value, operands[1].value
    axis = -2 if node.op.name in ("matmul", "grouped_mm") and b.ndim > 1 else -1
    if not a.ndim or not b.ndim:
        return 1
    return min(a.shape[-1], distinct_terms(a, [-1]) * distinct_terms(b, [axis]))


def contraction_bound(
    operation: Any, operands: Sequence[Bounded], product: Array, magnitude: Array, count: int,
    dtype: DType, *, own: bool = True, distinct: int | None = None,
) -> Array | None:  # fmt: skip
    """Return the bound of `operation` (a contraction of arrays) given |a| @ |b| and a @ b.

    `own` adds the rounding of the summation itself; `distinct`: how many products differ.
    """
    terms: list[Array | None] = []
    for index, operand in enumerate(operands):
        if operand.bound is None:
            continue
        arrays = [np.abs(o.value) for o in operands]
        arrays[index] = np.broadcast_to(operand.bound, operand.value.shape)
        for other in range(2, len(operands)):
            if other != index:
                arrays[other] = np.zeros_like(arrays[other])
        if index >= 2:
            arrays[0] = np.zeros_like(arrays[0])
        terms.append(operation(arrays))
    if own and dtype.is_rounded:
        terms.append(contraction_error(product, magnitude, count, dtype, distinct))
        lost = overflowing(product, magnitude, dtype)
        terms.append(np.where(lost, np.inf, 0.0) if lost.any() else None)
    return add_bounds(*terms)


def _contraction(
    node: Node, operands: Sequence[Bounded], attributes: Mapping[str, Any]
) -> tuple[Bounded, ...]:
    def operation(arrays: Sequence[Array]) -> Array:
        return apply_reference(node.op, arrays, attributes)[0]

    dtype = node.output.dtype
    product = operation([o.value for o in operands])
    magnitude = operation([np.abs(o.value) for o in operands]) if dtype.is_rounded else product
    count = operands[0].value.shape[-1] if operands[0].value.ndim else 1
    distinct = distinct_products(node, operands) if dtype.is_rounded else None
    bound = contraction_bound(
        operation, operands, product, magnitude, count, dtype, distinct=distinct
    )
    # A jump of an operand is part of its bound; it does not put whole rows in doubt.
    return (settle_bounded(node, node.output, product, bound, None),)


_RULES = {
    "pointwise": pointwise_bounds,
    "complex": pointwise_bounds,
    "movement": _movement,
    "contraction": _contraction,
    "factory": _exact,
    "scalar": _exact,
}
