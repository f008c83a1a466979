"""Which matrix product a segment is: its axes, where its operands lie, and what follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusec.index.domain import Domain, Refusal, find_domain
from fusec.index.expression import Index, Var, delinearize, index, linearize, of_var
from fusec.index.movement import PULL, Coordinates, pull
from fusec.ir.dim import Dim, dim, product
from fusec.ir.dtype import DType
from fusec.ir.graph import Fusion, Node, Value
from fusec.schedule.matmul_epilogue import Epilogue, find_epilogue

BATCH = "batch"


@dataclass(frozen=True)
class Operand:
    """A factor: the buffer it is read from, and the strides of its address, in elements.

    batch: the part of the address that depends on the batch index, constants included. row: the
    stride along M for A, along N for B; depth: along K; None where that axis has one element.
    """

    buffer: Value
    batch: Index
    row: Dim | None
    depth: Dim | None

    @property
    def k_major(self) -> bool:
        """Return whether neighbours along K are neighbours in memory; else whether to assume so."""
        return self.depth is None or self.depth == 1 or self.row not in (None, 1)

    @property
    def is_dense(self) -> bool:
        """Return whether neighbours along K or along the rows are neighbours in memory."""
        return (self.depth if self.k_major else self.row) in (None, 1)

    @property
    def pitch(self) -> Dim | None:
        """Return the stride between the contiguous runs; None where there is one."""
        return self.row if self.k_major else self.depth


@dataclass(frozen=True)
class Problem:
    """A batched matrix product D[batch, m, n] = A[batch, m, k] B[batch, k, n] and its epilogue.

    batch_axes, row_axes, column_axes: axes of the product's result that make up each index; axes are
    variables named by position, as in the domain of the epilogue.
    """

    node: Node
    batch_axes: tuple[Var, ...]
    row_axes: tuple[Var, ...]
    column_axes: tuple[Var, ...]
    k: Dim
    a: Operand
    b: Operand
    epilogue: Epilogue
    domain: Domain

    @property
    def batches(self) -> Dim:
        """Return the number of products."""
        return product(a.extent for a in self.batch_axes)

    @property
    def m(self) -> Dim:
        """Return the number of rows."""
        return product(a.extent for a in self.row_axes)

    @property
    def n(self) -> Dim:
        """Return the number of columns."""
        return product(a.extent for a in self.column_axes)

    @property
    def dtype(self) -> DType:
        """Return the type of the operands."""
        return self.a.buffer.dtype


def find_problem(fusion: Fusion) -> Problem | Refusal:
    """Return the matrix product of a segment, or why it is none."""
    products = [n for n in fusion.nodes if n.op.family == "contraction"]
    if len(products) != 1:
        return Refusal("contraction", f"the segment has {len(products)} matrix products, not one")
    node = products[0]
    if node.op.name not in ("matmul", "linear"):
        return Refusal("operation", f"`{node.op.name}` is not this family's")
    axes = tuple(Var(f"i{k}", extent) for k, extent in enumerate(node.output.shape))
    depth = Var("k", node.operands[0].shape[-1])
    left, right, columns = _coordinates(node, axes, depth)
    a = _located(fusion, node.inputs[0], left, (*axes, depth))
    b = _located(fusion, node.inputs[1], right, (*axes, depth))
    if isinstance(a, Refusal):
        return a
    if isinstance(b, Refusal):
        return b
    epilogue = find_epilogue(fusion, node)
    if isinstance(epilogue, Refusal):
        return epilogue
    domain = find_domain(epilogue.fusion, epilogue.sums)
    if isinstance(domain, Refusal):
        return domain
    outer, column_axes = axes[: len(axes) - columns], axes[len(axes) - columns :]
    split = _rows_from(outer, a[1], b[1])
    batch_axes, row_axes = outer[:split], outer[split:]
    return Problem(
        node,
        batch_axes,
        row_axes,
        column_axes,
        depth.extent,
        _operand(*a, batch_axes, row_axes, depth),
        _operand(*b, batch_axes, column_axes, depth),
        epilogue,
        domain,
    )


def _coordinates(
    node: Node, axes: tuple[Var, ...], depth: Var
) -> tuple[Coordinates, Coordinates, int]:
    """Return the coordinates of both operands, and how many axes of the result are columns."""
    first, second = node.operands[0].shape, node.operands[1].shape
    k, at = of_var(depth), [of_var(a) for a in axes]
    if node.op.name == "linear":
        columns = len(second) - 1
        return (*at[: len(at) - columns], k), (*at[len(at) - columns :], k), columns
    rows, columns = int(len(first) > 1), int(len(second) > 1)
    batch = at[: len(at) - rows - columns]
    m, n = at[len(batch) : len(batch) + rows], at[len(at) - columns :] if columns else []
    left = (*_batched(batch, first[: len(first) - 1 - rows]), *m, k)
    right = (*_batched(batch, second[: len(second) - 1 - columns]), k, *n)
    return left, right, columns


def _batched(batch: list[Index], shape: tuple[Dim, ...]) -> list[Index]:
    """Return the coordinates of an operand's own batch dims, aligned at the last."""
    own = batch[len(batch) - len(shape) :]
    return [index(0) if e == 1 else c for c, e in zip(own, shape, strict=True)]


Located = tuple[Value, Mapping[Var, Dim], Dim]


def _located(
    fusion: Fusion, value: Value, at: Coordinates, axes: tuple[Var, ...]
) -> Located | Refusal:
    """Return the input behind an operand, its strides along the axes and its offset."""
    name = value.name
    while value not in fusion.input_of:
        node = fusion.producer[value]
        pulled = pull(node, at) if node.op.name in PULL else None
        branch = pulled.branches[0] if pulled is not None and len(pulled.branches) == 1 else None
        if branch is None or branch.conditions or not isinstance(branch.operand, Value):
            return Refusal(
                "operand",
                f"operand `{name}` is computed by `{node.op.name}`; the product reads its operands "
                "from memory",
            )
        value, at = branch.operand, branch.coordinates
    address = linearize(at, fusion.input_of[value].strides)
    strides: dict[Var, Dim] = {}
    for axis in axes:
        stride = address.coefficient(axis)
        if stride is None:
            return Refusal("operand", f"operand `{name}` has no single stride along an axis")
        strides[axis] = stride
    return value, strides, address.constant


def _rows_from(outer: tuple[Var, ...], a: Mapping[Var, Dim], b: Mapping[Var, Dim]) -> int:
    """Return the first of the trailing axes that can be one row index: B is the same for all of them
    and A has one stride."""
    first, wanted = len(outer), None
    for position in reversed(range(len(outer))):
        axis = outer[position]
        if axis.extent == 1:
            first = position
            continue
        if b[axis] != 0 or (wanted is not None and a[axis] != wanted):
            break
        wanted, first = a[axis] * axis.extent, position
    return first


def _operand(
    buffer: Value,
    strides: Mapping[Var, Dim],
    offset: Dim,
    batch: tuple[Var, ...],
    own: tuple[Var, ...],
    depth: Var,
) -> Operand:
    number = of_var(Var(BATCH, product(a.extent for a in batch)))
    at = delinearize(number, [a.extent for a in batch])
    base = linearize(at, [strides[a] for a in batch]) + index(offset)
    rows = [strides[a] for a in own if a.extent != 1]
    return Operand(
        buffer, base, rows[-1] if rows else None, strides[depth] if depth.extent != 1 else None
    )


def bind(problem: Problem, width: int) -> tuple[Mapping[Var, Index], Var, Var]:
    """Return the axes in loop variables (batch, m, and column n = chunk * width + lane)."""
    chunks = problem.n if width == 1 else problem.n.divide(width)
    assert chunks is not None
    chunk, lane = Var("chunk", chunks), Var("i", dim(width))
    column = of_var(chunk) * width + of_var(lane)
    groups = (
        (problem.batch_axes, of_var(Var(BATCH, problem.batches))),
        (problem.row_axes, of_var(Var("m", problem.m))),
        (problem.column_axes, column),
    )
    binding: dict[Var, Index] = {}
    for axes, position in groups:
        extents = [a.extent for a in axes]
        binding.update(zip(axes, delinearize(position, extents), strict=True))
    return binding, chunk, lane
