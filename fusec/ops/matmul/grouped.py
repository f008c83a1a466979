"""Grouped GEMMs: groups of rows, columns or summed elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fusec.diagnostics import FusecError, Instead
from fusec.ir.dim import Dim
from fusec.ir.dtype import DType
from fusec.ir.graph import Node, Operand, Type
from fusec.ir.op import Cost
from fusec.ir.roles import Combine, Lookup, Product
from fusec.ops.declare import Array, operation
from fusec.ops.dtypes import dtype_of
from fusec.ops.lazy import np
from fusec.ops.matmul.scaled import scaled_groups
from fusec.ops.movement import links
from fusec.ops.movement.indexing import require_index
from fusec.ops.shapes import described, mismatch, tensor_shape

Operands = tuple[Operand, ...]
Attributes = Mapping[str, Any]


def _pairs(operands: Operands, attributes: Attributes) -> Iterable[tuple[Dim, Dim]]:
    left, right, ends = (o.shape for o in operands[:3])
    if left and len(right) > 1:
        yield left[-1], right[-2]
    for matrices in (left, right):
        if len(matrices) == 3 and ends:
            yield matrices[0], ends[0]


def _groups_end(node: Node) -> Dim:
    """Return the exclusive upper bound on the end of a group, itself an exclusive end."""
    left, right = (o.shape for o in node.operands[:2])
    if len(left) == len(right):
        return left[-1] + 1
    return (left[0] if len(left) == 2 else right[-1]) + 1


def _computes(operands: Operands, result: DType) -> tuple[DType, ...]:
    return (result.compute, result.compute, dtype_of(operands[2]))


def _infer(operands: Operands, attributes: Attributes) -> tuple[Type, ...]:
    left, right, ends = (tensor_shape("grouped_mm", o) for o in operands)
    if (len(left), len(right)) not in ((2, 3), (3, 2), (2, 2)):
        raise FusecError(
            "`grouped_mm` needs [M, K] and [G, K, N], [G, M, K] and [K, N], or [M, K] and [K, N]",
            notes=[described(operands)],
        )
    if dtype_of(operands[0]) != dtype_of(operands[1]) or not dtype_of(operands[0]).is_float:
        raise FusecError(
            "`grouped_mm` needs operands of one float type",
            notes=[described(operands)],
            help="cast them to one type first",
        )
    require_index("grouped_mm", operands[2])
    if len(ends) != 1:
        raise FusecError(
            "the offsets of `grouped_mm` must have 1 dim: the end of every group",
            notes=[described(operands)],
        )
    for a, b in _pairs(operands, attributes):
        if a != b:
            why, instead = "summed extents and groups must agree", None
            if len(right) == 3 and len(left) == 2 and left[-1] == right[-1]:
                instead = Instead(
                    arguments={"mat2": "transpose({mat2}, -2, -1)"},
                    why="weights are [groups, in, out]",
                )
            raise mismatch("grouped_mm", a, b, why, operands, instead=instead)
    shape = (left[-2], right[-1]) if len(left) != len(right) else (ends[0], left[0], right[1])
    return (Type(dtype_of(operands[0]), shape),)


@operation(
    "contraction", infer=_infer, compute=_computes, equal=_pairs, instead=scaled_groups,
    cost=Cost(2), domain=(-1.0, 1.0), combine=Combine.SUM,
    lookup=Lookup(2, 0, _groups_end, ends=True), product=Product(), links=links.grouped,
)  # fmt: skip
def grouped_mm(
    mat1: Array,
    mat2: Array,
    offsets: Array,
    scale1: Array | None = None,
    scale2: Array | None = None,
    alpha: Array | None = None,
    bias: Array | None = None,
    beta: Array | None = None,
    dtype: DType | None = None,
) -> Array:
    """Multiply matrices by group; offsets hold the end of each group, in increasing order.

    [M, K] @ [G, K, N] groups rows, [G, M, K] @ [K, N] columns; [M, K] @ [K, N] groups the summed
    elements, for [G, M, N]. Results past the last group are 0. Scales have one element, or one
    for each row of mat1 and column of mat2; with them the result is bf16 without `dtype`.
    """
    a, b = np.asarray(mat1), np.asarray(mat2)
    extent = a.shape[-1] if a.ndim == b.ndim else a.shape[0] if a.ndim == 2 else b.shape[1]
    ends = [int(e) for e in offsets]
    starts = [0, *ends][: len(ends)]
    if any(not s <= e <= extent for s, e in zip(starts, ends, strict=True)):
        raise FusecError(f"`grouped_mm`: offsets {ends} must increase from 0 to at most {extent}")
    spans = [slice(s, e) for s, e in zip(starts, ends, strict=True)]
    if a.ndim == b.ndim:
        return (
            np.stack([a[:, s] @ b[s] for s in spans])
            if spans
            else np.zeros((0, len(a), b.shape[1]))
        )
    result = np.zeros((a.shape[-2], b.shape[-1]), np.result_type(a, b))
    for group, span in enumerate(spans):
        if a.ndim == 2:
            result[span] = a[span] @ b[group]
        else:
            result[:, span] = a[group] @ b[:, span]
    return result
