"""Sums and products over ranks that are rounded to a 16-bit float after every addition.

NCCL adds 16-bit floats this way: each rank adds its own value to the partial sum that it receives,
along a ring or a tree that starts at a rank determined by the element's chunk. The last rounding is
that of the result. The others are few, so their largest sum is far below 8 standard deviations.
"""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.ir.arrays import np, running_extremum
from fusec.ir.dtype import DType
from fusec.ir.evaluate import Array
from fusec.ir.graph import Node
from fusec.ir.roles import Combine
from fusec.reference.errors.estimate import SPREAD, Estimate, add, known, ulp


def with_hops(estimate: Estimate, parts: Array, node: Node) -> Estimate:
    """Return the sum or product of `parts` along axis 0 with the roundings between its terms.

    Their order is unknown: the largest partial result of k terms in any order counts.
    """
    dtype, count = node.output.dtype, parts.shape[0]
    if count < 3 or not dtype.is_half:
        return estimate
    with np.errstate(all="ignore"):
        if node.op.combine is Combine.PRODUCT:
            halves = np.abs(estimate.value) * dtype.epsilon + ulp(np.zeros(()), dtype) / 2
            halves = np.broadcast_to(halves, (count - 2, *np.shape(estimate.value)))
        else:
            halves = _half_ulps(parts, dtype)
        most = estimate.reach + np.sum(halves, axis=0)
        variance = np.sum(np.square(halves), axis=0) * SPREAD
    independent = known(add(estimate.independent, variance))
    return replace(estimate, independent=independent, most=known(most))


def _half_ulps(parts: Array, dtype: DType) -> Array:
    """Return the largest rounding of sums of 2, 3, ... of the parts, but not of all.

    If the parts' own roundings could carry a sum over a power of two, it counts as larger.
    """
    ordered = np.sort(np.ascontiguousarray(parts), axis=0)
    low, high = np.cumsum(ordered, axis=0), np.cumsum(ordered[::-1], axis=0)
    sizes = np.maximum(np.abs(low), np.abs(high))[1:-1] * (1 + len(parts) * dtype.epsilon)
    return ulp(running_extremum(np.maximum, sizes, 0), dtype) / 2
