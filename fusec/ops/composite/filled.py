"""Tensors of one value, of a sequence and of one-hot rows, by the names of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusec.diagnostics import FusecError
from fusec.ir.dim import Dim, ceildiv, dim
from fusec.ir.dtype import F32, I64, DType
from fusec.ir.graph import Operand
from fusec.ops.composite.formulas import Term, formula
from fusec.ops.declare import Array, Shape, Size, composite
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.movement.indexing import require_index
from fusec.ops.shapes import tensor_shape

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder


def _expand_zeros(builder: GraphBuilder, shape: Sequence[Dim], dtype: DType | None) -> Operand:
    return builder.apply("full", shape, 0, dtype=dtype or F32)


@composite(expand=_expand_zeros)
def zeros(shape: Shape, dtype: DType | None = None) -> Array:
    """Return a tensor of zeros; default dtype f32."""
    return np.zeros(tuple(shape))


def _expand_ones(builder: GraphBuilder, shape: Sequence[Dim], dtype: DType | None) -> Operand:
    return builder.apply("full", shape, 1, dtype=dtype or F32)


@composite(expand=_expand_ones)
def ones(shape: Shape, dtype: DType | None = None) -> Array:
    """Return a tensor of ones; default dtype f32."""
    return np.ones(tuple(shape))


def _full_like(
    builder: GraphBuilder, x: Operand, value: Operand | int, dtype: DType | None = None
) -> Operand:
    shape = tensor_shape("full_like", x)
    return builder.apply("full", shape, value, dtype=dtype or dtype_of(x))


@composite(expand=_full_like)
def full_like(x: Array, fill_value: Array, dtype: DType | None = None) -> Array:
    """Return a tensor filled with one value, with the shape and (default) the dtype of x."""
    return np.full(np.shape(x), fill_value)


def _expand_zeros_like(builder: GraphBuilder, x: Operand, dtype: DType | None) -> Operand:
    return _full_like(builder, x, 0, dtype)


@composite(expand=_expand_zeros_like)
def zeros_like(x: Array, dtype: DType | None = None) -> Array:
    """Return zeros with the shape and (default) the dtype of x."""
    return np.zeros(np.shape(x))


def _expand_ones_like(builder: GraphBuilder, x: Operand, dtype: DType | None) -> Operand:
    return _full_like(builder, x, 1, dtype)


@composite(expand=_expand_ones_like)
def ones_like(x: Array, dtype: DType | None = None) -> Array:
    """Return ones with the shape and (default) the dtype of x."""
    return np.ones(np.shape(x))


def _expand_arange(
    builder: GraphBuilder, start: Dim, end: Dim | None, step: Dim, dtype: DType | None
) -> Operand:
    if end is None:
        start, end = dim(0), start
    if step == 0:
        raise FusecError("`arange` in steps of 0")
    forward = step.at_least(1)
    length = ceildiv(end - start, step) if forward else ceildiv(start - end, step * -1)
    numbers = [_number(builder, size) for size in (start, step)]
    return builder.apply("iota", length, *numbers, dtype=dtype or I64)


def _number(builder: GraphBuilder, size: Dim) -> Operand | int:
    from fusec.ops.builder.size_operands import operand_of_size

    return size.value if size.is_const else operand_of_size(builder, size)


@composite(expand=_expand_arange)
def arange(
    start: Size, end: Size | None = None, step: Size = 1, dtype: DType | None = None
) -> Array:
    """Return start, start + step, ... below `end` as i64; start is 0 with one argument.

    For values other than sizes use `iota`.
    """
    return np.arange(start) if end is None else np.arange(start, end, step)


def _expand_eye(builder: GraphBuilder, n: Dim, m: Dim | None, dtype: DType | None) -> Operand:
    columns = n if m is None else m
    row = builder.apply("unsqueeze", builder.apply("iota", n), dim=1)
    equal = builder.apply("eq", row, builder.apply("iota", columns))
    return builder.apply("cast", equal, dtype=dtype or F32)


@composite(expand=_expand_eye)
def eye(n: Size, m: Size | None = None, dtype: DType | None = None) -> Array:
    """Return an n x m matrix with ones on the diagonal; default dtype f32, default m is n."""
    return np.eye(n, m)


def _one_hot(index: Term, num_classes: Dim) -> Term:
    require_index("one_hot", index.operand)
    rank = len(tensor_shape("one_hot", index.operand))
    classes = index.builder.apply("iota", num_classes, dtype=dtype_of(index.operand))
    return index.unsqueeze(dim=rank).eq(classes).cast(dtype=I64)


@formula(_one_hot)
def one_hot(index: Array, num_classes: Size) -> Array:
    """Return i64 with a last dim of classes: 1 at the class `index`, else 0."""
    return np.equal(np.expand_dims(index, -1), np.arange(num_classes)).astype(np.int64)
