"""Positions of extrema: reductions whose state is a value and its first position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusec.ir.dtype import I64
from fusec.ir.graph import Operand, Type
from fusec.ir.op import Infer
from fusec.ir.roles import Combine
from fusec.ops.declare import Array, Dims, computes_in_own, reduction
from fusec.ops.lazy import np
from fusec.ops.shapes import tensor_shape, without_axes


def _position(name: str) -> Infer:
    def infer(operands: tuple[Operand, ...], attributes: Mapping[str, Any]) -> tuple[Type, ...]:
        shape = tensor_shape(name, operands[0])
        return (Type(I64, without_axes(shape, attributes["dims"])),)

    return infer


def _found(function: Any, arg: Array, dims: Dims, keepdim: bool) -> Array:
    """Return positions in row-major order among the reduced elements; 0 for no elements."""
    array = np.asarray(arg)
    axes = tuple(range(array.ndim)) if dims is None else tuple(dims)
    kept = [axis for axis in range(array.ndim) if axis not in axes]
    moved = np.transpose(array, (*kept, *axes))
    rows = moved.reshape((*moved.shape[: len(kept)], int(np.prod(moved.shape[len(kept) :]))))
    found = rows.shape[-1] > 0
    positions = function(rows, axis=-1) if found else np.zeros(rows.shape[:-1], np.int64)
    return np.expand_dims(positions, axes) if keepdim else positions


@reduction(
    infer=_position("argmax"),
    compute=computes_in_own,
    combine=Combine.FIRST_MAXIMUM,
    cuda="ArgMax",
    accuracy=0,
)
def argmax(arg: Array, dims: Dims = None, keepdim: bool = False) -> Array:
    """Return the first index of the maximum over `dims`, as i64; propagates NaN.

    Over several dims (default: all) the index is in row-major order.
    It is an error for no elements.
    """
    return _found(np.argmax, arg, dims, keepdim)


@reduction(
    infer=_position("argmin"),
    compute=computes_in_own,
    combine=Combine.FIRST_MINIMUM,
    cuda="ArgMin",
    accuracy=0,
)
def argmin(arg: Array, dims: Dims = None, keepdim: bool = False) -> Array:
    """Return the first index of the minimum over `dims`, as i64; propagates NaN.

    Over several dims (default: all) the index is in row-major order.
    It is an error for no elements.
    """
    return _found(np.argmin, arg, dims, keepdim)
