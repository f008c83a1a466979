"""Sums in f32 where one operand absorbs the other, as the lowest number absorbs a score.

The sum rounds to the large operand for any value of the small one within its error: it has no
error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from fusec.dataclasses import replace
from fusec.ir.arrays import np
from fusec.ir.evaluate import Array
from fusec.ir.graph import Node
from fusec.ops.pointwise.binary import add, sub
from fusec.reference.errors.estimate import Estimate, without_errors

T = TypeVar("T")

LEAST_RATIO = 2.0**24
"""Ratio of operands from which the larger one absorbs the smaller one."""
LOOKED_AT = 4096
"""Maximum elements of an operand that are sampled for its typical size."""


def absorbed(
    node: Node, operands: Sequence[Estimate], passed: Estimate, found: Estimate
) -> Estimate:
    """Return the estimate of a sum or difference, exact where it equals an exact operand.

    passed: the sum in doubles, with its operands' errors propagated. found: the same with its own
    rounding.
    """
    if not _absorbs(node) or found.exact:
        return found
    sure = np.zeros(found.value.shape, np.bool_)
    for large, small, sign in _pairs(node, *operands):
        if _may_absorb(large.value, small.value):
            sure |= _is_operand(passed, large, sign)
    if not sure.any():
        return found
    with np.errstate(over="ignore"):
        value = np.where(sure, found.value.astype(np.float32), found.value)
    return without_errors(replace(found, value=value), sure)


def as_absorbed(node: Node, values: Sequence[Array], raw: Array) -> Array:
    """Return a sum or difference in doubles, replaced by an operand that absorbs the other."""
    if not _absorbs(node):
        return raw
    for large, small, sign in _pairs(node, *values):
        if _may_absorb(large, small):
            with np.errstate(over="ignore", invalid="ignore"):
                narrow = raw.astype(np.float32)
            sure = (narrow == sign * large) & np.isfinite(narrow)
            raw = np.where(sure, narrow, raw)
    return raw


def _absorbs(node: Node) -> bool:
    return node.op in (add, sub) and node.output.dtype.compute.name == "f32"


def _pairs(node: Node, a: T, b: T) -> tuple[tuple[T, T, int], tuple[T, T, int]]:
    """Return the operands in both orders, with the sign that the first has in the result."""
    return (a, b, 1), (b, a, -1 if node.op is sub else 1)


def _may_absorb(large: Array, small: Array) -> bool:
    """Return whether some element may absorb a typical element of the other operand."""
    if not (large.size and small.size):
        return False
    some = np.sort(np.abs(small.reshape(-1)[:: -(-small.size // LOOKED_AT)]))
    common = float(some[some.size // 16])
    return bool(max(np.max(large), -np.min(large)) >= LEAST_RATIO * common)


def _is_operand(passed: Estimate, operand: Estimate, sign: int) -> Array:
    """Return where all possible sums round to the same exact operand, times `sign`."""
    with np.errstate(over="ignore", invalid="ignore"):
        reach = passed.reach
        low, high = ((passed.value + s * reach).astype(np.float32) for s in (-1, 1))
    there = (low == high) & (low == sign * operand.value) & np.isfinite(low)
    return there & (operand.sigma == 0)
