"""Triangles: parts of a matrix selected by comparing row and column indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusec.diagnostics import FusecError
from fusec.ir.dtype import I32, I64
from fusec.ir.graph import Const, Operand
from fusec.ops.declare import Array, composite
from fusec.ops.lazy import np
from fusec.ops.literals import literal
from fusec.ops.shapes import described, tensor_shape

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder


def column_offsets(
    builder: GraphBuilder, name: str, x: Operand, diagonal: Operand
) -> tuple[Operand, Operand]:
    """Return (column numbers [1, C], row numbers plus the diagonal [R, 1]) of the last two dims."""
    shape = tensor_shape(name, x)
    if len(shape) < 2:
        raise FusecError(f"`{name}` needs at least 2 dims", notes=[described([x])])
    if diagonal.type.shape is not None or not diagonal.type.dtype.is_integer:
        raise FusecError(
            f"the diagonal of `{name}` must be an integer", notes=[described([diagonal])]
        )
    rows, columns = shape[-2], shape[-1]
    small = rows.is_const and columns.is_const and rows.value + columns.value < 2**30
    if isinstance(diagonal, Const):
        # Row numbers are added to it: beyond any matrix it must not wrap.
        number = min(max(int(diagonal.value.real), -(2**62)), 2**62)
        diagonal, small = literal(number), small and abs(number) < 2**30
    dtype = I32 if small else I64
    row = builder.apply("iota", rows, dtype=dtype)
    column = builder.apply("iota", columns, dtype=dtype)
    row = builder.apply("broadcast", row, is_broadcast_dim=[False, True])
    column = builder.apply("broadcast", column, is_broadcast_dim=[True, False])
    return column, builder.apply("add", row, diagonal)


def _expand_triu(builder: GraphBuilder, arg: Operand, diagonal: Operand) -> Operand:
    column, limit = column_offsets(builder, "triu", arg, diagonal)
    return builder.apply("where", builder.apply("ge", column, limit), arg, _zero(arg))


def _expand_tril(builder: GraphBuilder, arg: Operand, diagonal: Operand) -> Operand:
    column, limit = column_offsets(builder, "tril", arg, diagonal)
    return builder.apply("where", builder.apply("le", column, limit), arg, _zero(arg))


def _zero(like: Operand) -> bool | int | float:
    dtype = like.type.dtype
    return 0.0 if dtype.is_float or dtype.is_complex else 0 if dtype.is_integer else False


@composite(expand=_expand_triu)
def triu(arg: Array, diagonal: Array = 0) -> Array:
    """Return the upper triangle of the last two dims, zero below diagonal `diagonal`."""
    return np.triu(arg, int(diagonal))


@composite(expand=_expand_tril)
def tril(arg: Array, diagonal: Array = 0) -> Array:
    """Return the lower triangle of the last two dims, zero above diagonal `diagonal`."""
    return np.tril(arg, int(diagonal))
