"""Relative errors that elements have in common: of quotients with one divisor, as softmax weights.

A sum of terms that such weights multiply has the same relative error, for any signs of its terms.
Treated as an error common to the terms, it would add up over their sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.arrays import np
from fusec.ir.evaluate import Array
from fusec.ir.graph import Node
from fusec.ops.pointwise.binary import div
from fusec.reference.errors.estimate import LIMIT, Estimate, squared

SMALL = (1 / (8 * LIMIT)) ** 2
"""Largest relative variance of a divisor for which quotients are off in proportion to its error."""


def factor_of(node: Node, operands: Sequence[Estimate], raw: Array) -> Array | None:
    """Return the relative variance that a node's quotients share because of their divisor."""
    if node.op is not div or raw.dtype.kind != "f":
        return None
    divisor = operands[1]
    variance, shape = divisor.variance, divisor.value.shape
    if variance is None or len(shape) != raw.ndim or shape == raw.shape:
        return None
    with np.errstate(all="ignore"):
        relative = np.broadcast_to(variance, shape) / squared(divisor.value)
        small = relative < SMALL
    return np.where(small, relative, 0.0) if small.any() else None


def without_factor(operand: Estimate, axis: int | None) -> tuple[Array, Array | None]:
    """Return the common variance of matrices without a factor along `axis`, and that factor.

    axis: None if no such factor can be separated.
    """
    common, factor = operand.common, operand.factor
    assert common is not None
    if axis is None or factor is None or factor.ndim < 2 or factor.shape[axis] != 1:
        return common, None
    with np.errstate(invalid="ignore"):
        rest = np.fmax(common - squared(operand.value) * factor, 0)  # NaN has no relative error
    return np.where(np.isfinite(common), rest, common), factor
