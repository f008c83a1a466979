"""Strides of inputs from nvFuser's contiguity flags and stride order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, Shape, dim

FreshStride = Callable[[int, Dim], Dim]
"""Creates the symbol of a dim's stride from the dim and the stride it would have if dense."""


def contiguous(shape: Shape) -> tuple[Dim, ...]:
    """Return the strides of a dense row-major tensor."""
    return strides_of(shape, None, None, lambda axis, dense: dense)


def strides_of(
    shape: Shape,
    contiguity: Sequence[bool | None] | None,
    stride_order: Sequence[int] | None,
    fresh: FreshStride,
) -> tuple[Dim, ...]:
    """Return strides; flags are in memory order, slowest dim first, as in nvFuser.

    None: broadcast or expanded, stride 0. True: contiguous with the faster dims. False: an unknown
    stride.
    """
    rank = len(shape)
    order = list(stride_order) if stride_order else list(range(rank - 1, -1, -1))
    if sorted(order) != list(range(rank)):
        raise FusecError(f"stride_order {order} is not a permutation of 0 to {rank - 1}")
    flags = [True] * rank if contiguity is None else list(contiguity)
    if len(flags) != rank:
        raise FusecError(f"contiguity has {len(flags)} entries for {rank} dims")
    strides = [dim(0)] * rank
    dense = dim(1)
    for position in range(rank):
        axis = order.index(position)
        flag = flags[rank - 1 - position]
        if flag is None:
            continue
        strides[axis] = dense if flag else fresh(axis, dense)
        dense = strides[axis] * shape[axis]
    return tuple(strides)
