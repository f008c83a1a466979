"""One error that elements share with known signs: that of a mean which is subtracted from all.

Taken as common without a sign, it adds up in a sum of squared distances, although it cancels there,
and hides scale errors and shifts of results. With its sign it is fitted to the actual results: the
residuals are judged by the other errors only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fusec.ir.arrays import np
from fusec.ir.evaluate import Array
from fusec.ir.graph import Node
from fusec.ir.op import OpDef
from fusec.ops.pointwise.binary import add, div, mul, sub
from fusec.ops.pointwise.binary import pow as pow_
from fusec.reference.errors.estimate import LIMIT, Estimate, Shared, known, squared, together
from fusec.reference.errors.estimate import add as add_variances

Arrays = Sequence[Array]
FAINT = 1e-4
"""Relative size up to which a shared error is ignored."""


def _of_sum(values: Arrays) -> tuple[Array, ...]:
    return np.ones(()), np.ones(())


def _of_difference(values: Arrays) -> tuple[Array, ...]:
    return np.ones(()), -np.ones(())


def _of_product(values: Arrays) -> tuple[Array, ...]:
    return values[1], values[0]


def _of_quotient(values: Arrays) -> tuple[Array, ...]:
    a, b = values
    return 1 / b, -a / squared(b)


def _of_power(values: Arrays) -> tuple[Array, ...] | None:
    """Only of squares, which occur in sums of distances from a mean."""
    a, b = values
    return (2 * a, np.zeros(())) if b.ndim == 0 and b == 2 else None


def _of_square(place: int, values: Arrays, reach: Callable[[int], Array | float]) -> Array:
    """Return the slope of a square at the far end of its operand's reach."""
    return 2 * np.abs(values[0]) + reach(0)


SIGNED: Mapping[OpDef, Callable[[Arrays], tuple[Array, ...] | None]] = {
    add: _of_sum,
    sub: _of_difference,
    mul: _of_product,
    div: _of_quotient,
    pow_: _of_power,
}
"""The slopes of operations, with their signs; None if unknown."""


def shared_of(
    node: Node, operands: Sequence[Estimate], passed: Estimate, found: Estimate
) -> Shared | None:
    """Return the error that elements of an elementwise result share with known signs, if any.

    passed: the result with the propagated errors of its operands; found: with its own error, too.
    """
    signed_by = SIGNED.get(node.op)
    steep_by = _of_square if node.op is pow_ else node.op.slopes
    if signed_by is None or steep_by is None or found.common is None:
        return None
    values, shape = [o.value for o in operands], found.value.shape
    if any(v.dtype.kind not in "fiu" for v in values):
        return None
    symbols = [_symbol(node, o, found.value) for o in operands]
    largest = max(symbols, key=lambda s: -1.0 if s is None else _size(s))
    if largest is None:
        return None

    def reach(other: int) -> Array | float:
        return 0.0 if operands[other].exact else LIMIT * operands[other].sigma

    slope, further = np.zeros(()), np.zeros(())
    rest: Array | None = None
    met = 0
    with np.errstate(all="ignore"):
        signed = signed_by(values)
        if signed is None:
            return None
        for place, (operand, symbol) in enumerate(zip(operands, symbols, strict=True)):
            if operand.exact:
                continue
            steep = steep_by(place, values, reach)
            steep = np.ones(()) if steep is None else steep
            own = operand.common if symbol is None else symbol.rest
            if symbol is not None and symbol.variance is largest.variance:
                slope = slope + signed[place] * symbol.slope
                beyond = (steep - np.abs(signed[place])) * np.abs(symbol.slope)
                further = further + np.maximum(beyond, 0.0)
            elif symbol is not None:
                own = add_variances(own, symbol.variance * squared(symbol.slope))
            join = together if met & operand.ancestors else add_variances
            rest = join(rest, None if own is None else own * squared(steep))
            met |= operand.ancestors
        rest = add_variances(rest, largest.variance * squared(further))
        if found.common is not passed.common:
            own = found.common if passed.common is None else found.common - passed.common
            rest = add_variances(rest, np.maximum(own, 0.0))
    return Shared(largest.variance, np.broadcast_to(slope, shape), known(rest))


def _symbol(node: Node, operand: Estimate, result: Array) -> Shared | None:
    """Return the shared error of an operand, which is its own error if it is repeated.

    None if it is so small that results detect scale errors despite it.
    """
    variance, own, shape = operand.variance, operand.value.shape, result.shape
    if variance is None or operand.value.size == result.size:
        return operand.shared
    if own and len(own) != len(shape):
        return None
    size = np.abs(operand.value) if node.op in (mul, div) else _root_mean_square(result)
    with np.errstate(all="ignore"):
        if not np.any(np.sqrt(variance) > FAINT * size):
            return None
    wide = np.broadcast_to(variance, own).reshape(own or (1,) * len(shape))
    return Shared(wide, np.ones(()), None)


def _root_mean_square(array: Array) -> float:
    """Return the root mean square of the numbers among elements."""
    norm = float(np.linalg.norm(array))
    if not np.isfinite(norm):
        norm = float(np.linalg.norm(array[np.isfinite(array)]))
    return norm / max(array.size, 1) ** 0.5


def _size(shared: Shared) -> float:
    with np.errstate(all="ignore"):
        size = float(np.mean(shared.variance * squared(shared.slope)))
    return size if np.isfinite(size) else -1.0


def fit(shared: Shared, off: Array, tolerance: Array) -> tuple[Array, Array]:
    """Return the residuals of differences after fitting the shared error, and their limits.

    tolerance: how far elements may be off by all other errors. NaN and infinite elements are
    excluded from the fit and have an infinite limit.
    """
    shape = off.shape
    axes = tuple(a for a, e in enumerate(shared.variance.shape) if e == 1)
    slope = np.broadcast_to(shared.slope, shape)
    with np.errstate(all="ignore"):
        sure = np.isfinite(off) & np.isfinite(tolerance) & np.isfinite(slope)
        g = np.where(sure, slope, 0.0)
        scale = np.sum(squared(g), axis=axes, keepdims=True)
        weight = np.where(scale > 0, g / scale, 0.0)
        most = LIMIT * np.sqrt(shared.variance)
        amount = np.sum(weight * np.where(sure, off, 0.0), axis=axes, keepdims=True)
        amount = np.clip(amount, -most, most)
        doubt = np.sum(np.abs(weight) * np.where(sure, tolerance, 0.0), axis=axes, keepdims=True)
        limits = np.where(sure & (scale > 0), tolerance + np.abs(g) * doubt, np.inf)
        return np.where(sure, off - amount * g, 0.0), limits
