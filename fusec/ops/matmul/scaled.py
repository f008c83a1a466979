"""Scaled GEMMs: alpha (mat1 scale1) @ (mat2 scale2) + beta bias."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError, Unsupported
from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import BF16, F32, F64, DType
from fusec.ir.graph import Operand
from fusec.ops.declare import Array, composite
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.shapes import Shape, described, mismatch, tensor_shape

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder

Slots = Sequence[Sequence[Operand] | None]


def _wide(builder: GraphBuilder, value: Operand, dtype: DType) -> Operand:
    return value if dtype_of(value) == dtype else builder.apply("cast", value, dtype=dtype)


def _compute(name: str, operands: Sequence[Operand]) -> DType:
    """Return the type in which scaled operands are multiplied."""
    for operand in operands:
        if not dtype_of(operand).is_float:
            raise FusecError(f"`{name}` needs floats", notes=[described([operand])])
    return F64 if any(dtype_of(o) == F64 for o in operands) else F32


def _blocks(name: str, matrix: Operand, scale: Operand) -> list[tuple[Dim, Dim]]:
    """Return (blocks, elements of one) for each dim of a scaled matrix."""
    found: list[tuple[Dim, Dim]] = []
    for extent, count in zip(matrix.shape, scale.shape, strict=True):
        size = extent.divide(count)
        if size is None:
            raise mismatch(name, extent, count, "a scale has a divisor of every extent", [scale])
        found.append((count, size))
    return found


def _scaled(builder: GraphBuilder, name: str, matrix: Operand, scale: Operand) -> Operand:
    """Return a matrix times a scale for each block."""
    blocks = _blocks(name, matrix, scale)
    split = [e for block in blocks for e in block]
    spread = [e for count, _ in blocks for e in (count, 1)]
    pieces = builder.apply("reshape", matrix, new_shape=split)
    factor = builder.apply("reshape", scale, new_shape=spread)
    product = builder.apply("mul", pieces, factor)
    return builder.apply("reshape", product, new_shape=list(matrix.shape))


def _factor(
    builder: GraphBuilder, name: str, side: str, matrix: Operand, scale: Operand, summed: int
) -> Operand | None:
    """Return a scale as a factor of the result; None if it varies along the summed dim."""
    shape = scale.type.shape or ()
    rank = len(matrix.shape)
    if all(e == 1 for e in shape):
        return builder.apply("reshape", scale, new_shape=[]) if shape else scale
    if len(shape) != rank:
        raise FusecError(
            f"`{name}` needs {side} with one element, or with {rank} dims as its operand has",
            notes=[described([matrix, scale])],
        )
    blocks = _blocks(name, matrix, scale)
    whole = all(count == 1 or size == 1 for count, size in blocks)
    return scale if shape[summed] == 1 and whole else None


def _finished(
    builder: GraphBuilder,
    product: Operand,
    factors: Sequence[Operand | None],
    bias: Operand | None,
    beta: Operand | None,
    dtype: DType,
) -> Operand:
    """Return a GEMM's result times the factors, plus the bias, in the type of the result."""
    wide = dtype_of(product)
    for factor in factors:
        if factor is not None:
            product = builder.apply("mul", product, _single(builder, factor, wide))
    if bias is not None:
        added = _wide(builder, bias, wide)
        if beta is not None:
            added = builder.apply("mul", added, _single(builder, beta, wide))
        product = builder.apply("add", product, added)
    elif beta is not None:
        raise FusecError("beta without a bias")
    return _wide(builder, product, dtype)


def _single(builder: GraphBuilder, value: Operand, wide: DType) -> Operand:
    """Return a factor in the type of the GEMM, with a one-element tensor as a 0-dim tensor."""
    shape = value.type.shape
    if shape and all(e == 1 for e in shape):
        value = builder.apply("reshape", value, new_shape=[])
    return _wide(builder, value, wide)


def _expand_scaled(
    builder: GraphBuilder,
    mat1: Operand,
    mat2: Operand,
    scale1: Operand,
    scale2: Operand,
    alpha: Operand | None,
    bias: Operand | None,
    beta: Operand | None,
    dtype: DType | None,
) -> Operand:
    operands = [mat1, mat2]
    wide = _compute("scaled_mm", [*operands, scale1, scale2])
    for operand in operands:
        if len(tensor_shape("scaled_mm", operand)) != 2:
            raise FusecError("`scaled_mm` needs [M, K] and [K, N]", notes=[described(operands)])
    if mat1.shape[1] != mat2.shape[0]:
        summed = (mat1.shape[1], mat2.shape[0])
        raise mismatch("scaled_mm", *summed, "the summed extents must agree", operands)
    factors = [
        _factor(builder, "scaled_mm", "scale1", mat1, scale1, 1),
        _factor(builder, "scaled_mm", "scale2", mat2, scale2, 0),
    ]
    sides = [_wide(builder, o, wide) for o in operands]
    for k, (factor, scale) in enumerate(zip(factors, (scale1, scale2), strict=True)):
        if factor is None:
            sides[k] = _scaled(builder, "scaled_mm", sides[k], _wide(builder, scale, wide))
    product = builder.apply("matmul", *sides)
    return _finished(builder, product, [*factors, alpha], bias, beta, dtype or BF16)


def _equal(
    operands: tuple[Operand, ...], attributes: Mapping[str, Any]
) -> Iterable[tuple[Dim, Dim]]:
    left, right, *scales = (o.shape for o in operands[:4])
    if len(left) == 2 and len(right) == 2:
        yield left[1], right[0]
    for own, scale in zip((left, right), scales, strict=False):
        if len(own) == len(scale):
            yield from ((a, b) for a, b in zip(own, scale, strict=True) if b != 1)


def _spread(matrix: Array, scale: Array) -> Array:
    """Return a scale with an element for every element of a matrix."""
    found = np.asarray(scale)
    if found.size == 1:
        return found.reshape(())
    for axis, extent in enumerate(np.shape(matrix)):
        found = np.repeat(found, extent // max(1, found.shape[axis]), axis=axis)
    return found


@composite(expand=_expand_scaled, equal=_equal)
def scaled_mm(
    mat1: Array,
    mat2: Array,
    scale1: Array,
    scale2: Array,
    alpha: Array | None = None,
    bias: Array | None = None,
    beta: Array | None = None,
    dtype: DType | None = None,
) -> Array:
    """Multiply scaled matrices, with scales per tensor, row, column or block; default dtype bf16.

    alpha (mat1 scale1) @ (mat2 scale2) + beta bias. A scale has one element, or the dims of its
    matrix with divisors of their extents: [M, 1] scales rows, [M, K // 128] blocks of 128.
    """
    product = (mat1 * _spread(mat1, scale1)) @ (mat2 * _spread(mat2, scale2))
    product = product if alpha is None else product * np.reshape(alpha, ())
    if bias is None:
        return product
    return product + np.asarray(bias) * (1 if beta is None else np.reshape(beta, ()))


def scaled_groups(
    builder: GraphBuilder, slots: Slots, attributes: Mapping[str, Any]
) -> tuple[Operand, ...] | None:
    """Return a composed grouped GEMM with scales or an output type; None if not needed."""
    given = [None if slot is None else slot[0] for slot in slots]
    mat1, mat2, offsets, scale1, scale2, alpha, bias, beta = given
    dtype = attributes.get("dtype")
    if all(o is None for o in given[3:]) and dtype is None:
        return None
    assert mat1 is not None
    assert mat2 is not None
    assert offsets is not None
    wide = _compute("grouped_mm", [mat1, mat2])
    sides = [_wide(builder, o, wide) for o in (mat1, mat2)]
    product = builder.apply("grouped_mm", *sides, offsets)
    factors = [
        None if s is None else _group_factor(builder, (mat1, mat2), offsets, product, s, side)
        for side, s in enumerate((scale1, scale2))
    ]
    default = dtype_of(mat1) if scale1 is None and scale2 is None else BF16
    return (_finished(builder, product, [*factors, alpha], bias, beta, dtype or default),)


def _group_factor(
    builder: GraphBuilder,
    matrices: tuple[Operand, Operand],
    offsets: Operand,
    product: Operand,
    scale: Operand,
    side: int,
) -> Operand:
    """Return a scale of mat1 (side 0) or mat2 as a factor of the grouped GEMM."""
    shape: Shape = scale.type.shape or ()
    if all(e == 1 for e in shape):
        return scale
    own = matrices[side].shape
    (count,) = offsets.shape
    # If both have two dims, the sum is divided into groups, each with a result and a scale of its
    # own.
    cut = len(matrices[0].shape) == len(matrices[1].shape)
    lead = (count,) if cut or len(own) == 3 else ()
    expected = (*lead, own[-2], dim(1)) if side == 0 else (*lead, dim(1), own[-1])
    if len(shape) != len(expected) or not all(
        a == 1 or builder.bindings.unify(a, b) for a, b in zip(shape, expected, strict=True)
    ):
        blocks = Unsupported("`grouped_mm` with scales that vary along the summed dim")
        axis = -1 if side == 0 else -2
        if len(shape) == len(expected) and shape[axis] != 1:
            raise blocks
        raise FusecError(
            f"`grouped_mm` needs scale{side + 1} of one element or of shape "
            f"[{', '.join(map(str, expected))}]",
            notes=[described([scale])],
        )
    if cut or len(own) == 2:
        return scale
    if next(iter(shape)) == 1:
        return builder.apply("squeeze", scale, dims=[0])
    rows = product.shape[0] if side == 1 else product.shape[1]
    groups = _group_of(builder, offsets, rows)
    lines = builder.apply("squeeze", scale, dims=[1 if side == 1 else 2])
    found = builder.apply("index_select", lines, groups, dim=0)
    return found if side == 1 else builder.apply("permute", found, dims=[1, 0])


def _group_of(builder: GraphBuilder, offsets: Operand, rows: Dim) -> Operand:
    """Return the group of each row; rows past the last group count as part of it."""
    (count,) = offsets.shape
    numbers = builder.apply("iota", rows, dtype=dtype_of(offsets))
    column = builder.apply("broadcast", numbers, is_broadcast_dim=[False, True])
    line = builder.apply("broadcast", offsets, is_broadcast_dim=[True, False])
    behind = builder.apply("sum", builder.apply("ge", column, line), dims=[1])
    last = count.value - 1 if count.is_const else None
    if last is None:
        size = builder.apply("size", offsets, dim=0)
        return builder.apply("minimum", behind, builder.apply("sub", size, 1))
    return builder.apply("minimum", behind, last)
