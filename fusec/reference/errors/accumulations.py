"""Expected errors of accumulation in place or in order: scatters and scans.

A scatter moves errors with the values; a scatter that adds has the error of a sequential sum of the
terms with the same index. Running sums and products have the errors of reductions of their first k
elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from fusec.ir.arrays import np, running, running_extremum
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array, apply_reference
from fusec.ir.graph import Node
from fusec.ir.roles import Combine
from fusec.reference.errors.estimate import (
    LIMIT,
    SPREAD,
    Estimate,
    add,
    distance,
    known,
    result,
    squared,
    unit,
    without_zeros,
)
from fusec.reference.errors.order import Order, Stage, as_terms
from fusec.reference.errors.order import running as running_sums
from fusec.reference.errors.products import (
    alike_factors,
    meets_no_number,
    of_neighbours,
    product_range,
    rounding_factors,
)
from fusec.reference.errors.repeats import alike
from fusec.reference.errors.sums import Rules, part_of, sum_error

Attributes = Mapping[str, Any]

SERIAL = Order((Stage(1 << 62),))
"""Sequential addition."""


def scatter(
    node: Node, operands: Sequence[Estimate], attributes: Attributes, rules: Rules
) -> tuple[Estimate, ...]:
    """Return a tensor with elements of another one written or added at an index."""
    data, index, source = operands
    dtype = node.output.dtype

    def place(arg: Array, src: Array) -> Array:
        return apply_reference(node.op, [arg, index.value, src], attributes)[0]

    def both(a: Array | None, b: Array | None) -> Array | None:
        if a is None and b is None:
            return None
        filled = [
            np.zeros(o.value.shape) if p is None else np.broadcast_to(p, o.value.shape)
            for p, o in ((a, data), (b, source))
        ]
        return place(*filled)

    raw = place(data.value, source.value)
    independent = both(data.independent, source.independent)
    if independent is not None and node.op.combine is Combine.SUM and source.value.ndim:
        independent = independent * alike(source.value, (attributes["dim"],))
    common = both(*(None if c is None else np.sqrt(c) for c in (data.common, source.common)))
    common = None if common is None else np.square(common)
    part: Array | None = None
    if node.op.combine is Combine.SUM and dtype.is_float and rules.errors:
        count = place(*(np.ones(o.value.shape) for o in (data, source)))
        squares = place(np.square(data.value), np.square(source.value))
        kind = dtype.compute.numpy
        found = place(data.value.astype(kind), source.value.astype(kind))
        own = sum_error(raw, squares, [found[None]], count, dtype, [SERIAL])
        independent, part = add(independent, without_zeros(own)), part_of(raw, squares)
    if index.variance is not None and index.variance.any():
        independent = np.full(raw.shape, inf)
    ancestors = data.ancestors | index.ancestors | source.ancestors
    return (result(raw, dtype, independent, common, ancestors, part),)


def scan(
    node: Node, operands: Sequence[Estimate], attributes: Attributes, rules: Rules
) -> tuple[Estimate, ...]:
    """Return running sums, products or extrema along a dim.

    Neighbours share the earlier roundings: all errors are common.
    """
    dim, dtype, x = attributes["dim"], node.output.dtype, operands[0]
    initial = [o.value for o in operands[1:]]
    (raw,) = apply_reference(node.op, [x.value, *initial], attributes)
    if node.op.combine is Combine.SUM:
        found = _running_sum(x, initial, raw, dim, dtype, rules)
    elif node.op.combine is Combine.PRODUCT:
        found = _running_product(x, initial, raw, dim, dtype, rules)
    else:
        found = Estimate(raw, _moved(node, x, initial, raw, attributes))
        if node.op.combine is Combine.MONOTONE and rules.errors and raw.size:
            steps = _steps(node, raw, dim, len(initial))
            found = Estimate(raw, None, add(found.independent, steps))
    return (result(raw, dtype, found.independent, found.common, x.ancestors, found.part),)


def _moved(
    node: Node, x: Estimate, initial: Sequence[Array], raw: Array, attributes: Attributes
) -> Array | None:
    """Return the variance of running extrema: their largest change if all elements change."""
    if x.exact:
        return None
    reach = np.broadcast_to(LIMIT * x.sigma, x.value.shape)
    ends = [
        apply_reference(node.op, [x.value + sign * reach, *initial], attributes)[0]
        for sign in (1, -1)
    ]
    change = np.maximum(*(distance(end, raw) for end in ends)) / LIMIT
    return known(np.square(change))


def _steps(node: Node, raw: Array, dim: int, more: int) -> Array:
    """Return the variance of the roundings before each result, bounded by the largest result's."""
    size = running_extremum(np.maximum, np.abs(raw), dim)
    terms = size if node.op.terms is None else node.op.terms(size)
    off = node.op.accuracy * unit(node.output.dtype) * terms
    return np.nan_to_num(squared(off), posinf=inf) * (_counts(raw, dim, more) * SPREAD)


def _counts(raw: Array, dim: int, more: int) -> Array:
    """Return the number of terms of each running result."""
    along = [1] * raw.ndim
    along[dim] = raw.shape[dim]
    return np.arange(1, raw.shape[dim] + 1, dtype=np.float64).reshape(along) + more


def _passed(x: Estimate, dim: int, weight: Array | None = None) -> tuple[Array | None, ...]:
    """Return the weighted running sums of the errors of elements."""
    sums = list[Array | None]()
    for variance in (x.independent, None if x.common is None else np.sqrt(x.common)):
        if variance is not None:
            wide = np.broadcast_to(variance, x.value.shape)
            factor = 1.0 if weight is None else weight if len(sums) else np.square(weight)
            times = 1.0 if sums else alike(x.value, (dim,))
            variance = np.cumsum(wide * factor, axis=dim) * times
        sums.append(variance)
    independent, common = sums
    return independent, None if common is None else np.square(common)


def _running_sum(
    x: Estimate, initial: Sequence[Array], raw: Array, dim: int, dtype: DType, rules: Rules
) -> Estimate:
    independent, common = _passed(x, dim)
    if not dtype.is_rounded or not rules.errors or not raw.size:
        return Estimate(raw, independent, common)
    squares = np.cumsum(squared(x.value), axis=dim)
    for value in initial:
        squares = squares + squared(np.asarray(value))
    taken = [_taken(x.value, dim, dtype, order) for order in rules.orders]
    for value in initial:
        taken = [each + value for each in taken]
    count = _counts(raw, dim, len(initial))
    own = sum_error(raw, squares, [t[None] for t in taken], count, dtype, rules.orders)
    shared = add(independent, without_zeros(own), common)
    return Estimate(raw, None, shared, part=part_of(raw, squares))


def _taken(x: Array, dim: int, dtype: DType, order: Order) -> Array:
    """Return running sums in the type and order in which a kernel computes them."""
    kind = dtype.compute.numpy if x.dtype.kind == "c" else dtype.compute.part.numpy
    terms = as_terms(x.astype(kind, copy=False), (dim,))
    return running_sums(terms, order).reshape(x.shape)


def _running_product(
    x: Estimate, initial: Sequence[Array], raw: Array, dim: int, dtype: DType, rules: Rules
) -> Estimate:
    independent, common = (
        None if v is None else v * squared(raw) for v in _passed(x, dim, 1 / np.abs(x.value))
    )
    if not dtype.is_float or not rules.errors or not raw.size:
        return Estimate(raw, independent, common)
    count = _counts(raw, dim, len(initial))
    taken = running(np.multiply, x.value.astype(dtype.compute.numpy), dim)
    for value in initial:
        taken = taken * value
    off = squared(taken - raw)
    rounds = rounding_factors(x.value)
    rounding = np.cumsum(rounds, axis=dim) + len(initial)
    equal = alike_factors(x.value, (dim,), rounds)
    roundings = np.maximum(rounding - 1, 0) * np.minimum(equal, rounding)
    own = squared(raw) * (roundings * np.square(unit(dtype) / 2) * SPREAD)
    own = own + np.where(np.isfinite(off), off, 0.0)
    reach = of_neighbours(x.value, dim, initial)
    own = own + np.square(product_range(*reach, count, dtype) / LIMIT)
    own = np.where(np.isnan(own), np.where(np.isnan(raw), 0.0, inf), own)
    none = meets_no_number(*reach, dtype)
    own = np.where(np.isinf(raw), np.where(none, inf, 0.0), own)
    return Estimate(raw, None, add(independent, own, common))
