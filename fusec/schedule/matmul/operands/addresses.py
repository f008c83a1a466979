"""Addresses of the operands of GEMMs in memory, through casts and data movement."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.index.domain import Refusal
from fusec.index.movement import pull
from fusec.ir.access import Coordinates
from fusec.ir.dim import Dim
from fusec.ir.dtype import F8E4M3, F8E5M2, DType
from fusec.ir.expression import Index, Var, index, linearize, of_var
from fusec.ir.graph import Fusion, Node, Value
from fusec.ops.matmul.tensor_cores import tf32

ResolvedAddress = tuple[Value, Index]


def resolve_address(fusion: Fusion, value: Value, at: Coordinates) -> ResolvedAddress | Refusal:
    """Return the input that an operand reads, and its address.

    A widening cast is skipped: products of 16-bit floats are exact in f32. So is rounding to TF32,
    but not that of a cast result.
    """
    name, dtype = value.name, value.dtype
    while value not in fusion.input_of:
        node = fusion.producer[value]
        rounds = node.op is tf32 and value.dtype == dtype
        if rounds or (node.op.converts and _keeps(node.inputs, value.dtype)):
            (value,) = node.inputs
            continue
        pulled = pull(node, at) if node.op.access is not None else None
        branch = pulled.branches[0] if pulled is not None and len(pulled.branches) == 1 else None
        if branch is None or branch.conditions or not isinstance(branch.operand, Value):
            return Refusal(
                "operand",
                f"operand `{name}` is computed by `{node.op.name}`; the GEMM reads its operands "
                "from memory",
            )
        value, at = branch.operand, branch.coordinates
    return value, linearize(at, fusion.input_of[value].strides)


def _keeps(inputs: Sequence[Value], target: DType) -> bool:
    """Return whether a cast of a tensor to `target` is lossless."""
    source = inputs[0].dtype if inputs else target
    if source.is_float and target.is_float:
        narrow = source in (F8E4M3, F8E5M2) or (source.is_half and not target.is_half)
        return source == target or narrow or (source.bits, target.bits) == (32, 64)
    if source.is_integer and source.bits == 8 and target.is_float:
        return target.bits > 8
    signed = source.kind == target.kind or target.kind == "int"
    return source.is_integer and target.is_integer and signed and source.bits < target.bits


def coordinates_of(
    node: Node, axes: tuple[Var, ...], depth: Var
) -> tuple[Coordinates, Coordinates, int]:
    """Return the coordinates of both operands, and how many axes of the result are columns."""
    first, second = node.operands[0].shape, node.operands[1].shape
    k, at = of_var(depth), [of_var(a) for a in axes]
    if node.op.product is not None and node.op.product.transposed:
        columns = len(second) - 1
        return (*at[: len(at) - columns], k), (*at[len(at) - columns :], k), columns
    rows, columns = int(len(first) > 1), int(len(second) > 1)
    batch = at[: len(at) - rows - columns]
    m, n = at[len(batch) : len(batch) + rows], at[len(at) - columns :] if columns else []
    left = (*_batched(batch, first[: len(first) - 1 - rows]), *m, k)
    right = (*_batched(batch, second[: len(second) - 1 - columns]), k, *n)
    return left, right, columns


def _batched(batch: list[Index], shape: tuple[Dim, ...]) -> list[Index]:
    """Return the coordinates of an operand's own batch dims, right-aligned."""
    own = batch[len(batch) - len(shape) :]
    return [index(0) if e == 1 else c for c, e in zip(own, shape, strict=True)]
