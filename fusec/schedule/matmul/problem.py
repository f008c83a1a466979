"""Recognizes the GEMM of a segment: its axes, operands and epilogue."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass, replace
from fusec.index.access import Facts, access_class
from fusec.index.domain import Domain, Refusal, find_domain
from fusec.index.instances import Lowering
from fusec.ir.dim import Dim, dim, product
from fusec.ir.dtype import BF16, F8E4M3, F8E5M2, F16, F32, I8, U8, DType
from fusec.ir.expression import (
    Index,
    Var,
    contiguous_strides,
    delinearize,
    linearize,
    of_var,
)
from fusec.ir.graph import Fusion, Node, Value
from fusec.properties import cached_property
from fusec.schedule.matmul.epilogue import Epilogue, find_epilogue, sums_dtype
from fusec.schedule.matmul.operands.addresses import coordinates_of, resolve_address
from fusec.schedule.matmul.operands.block_scales import BlockScales, Found
from fusec.schedule.matmul.operands.computed import Computed, find_computed, no_computing
from fusec.schedule.matmul.operands.found import find_operand
from fusec.schedule.matmul.operands.operand import BATCH, Operand, operand_of, weighed
from fusec.schedule.matmul.staged import (
    PAIR,
    ROW,
    Pairs,
    StagedSlots,
    StagedTensor,
    find_staged,
    slots_of,
)
from fusec.schedule.matmul.totals import Total
from fusec.schedule.pointwise.nest import accesses
from fusec.segment.roofline import is_tf32


@dataclass(frozen=True)
class Groups:
    """The partition of the rows or of K of a GEMM into groups, given by the end of each.

    ends: the buffer with the ends, the first at `base`, `stride` elements between them; count: of
    groups; cuts: `rows` (every group has its own B) or `depth` (every group has its own result).
    """

    ends: Value
    base: Dim
    stride: Dim
    count: Dim
    cuts: str


@dataclass(frozen=True)
class Dual:
    """A second GEMM of the same A that the epilogue combines with the first, and its B."""

    node: Node
    b: Operand


@dataclass(frozen=True)
class Product:
    """A batched GEMM D[batch, m, n] = A[batch, m, k] B[batch, k, n] and its epilogue.

    batch_axes, row_axes, column_axes: the axes of the GEMM's result that make up each index, as
    variables of the epilogue's domain. With groups of rows the batch of B is the group. totals:
    reductions of the results within tiles; the epilogue computes their terms, too. tf32: whether
    TF32 is requested for both operands; computed: the computation of A, whose strides are then
    those of contiguous rows.
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
    groups: Groups | None = None
    dual: Dual | None = None
    totals: tuple[Total, ...] = ()
    tf32: bool = False
    computed: Computed | None = None

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Return A and B, and the second B of a dual GEMM."""
        return (self.a, self.b) if self.dual is None else (self.a, self.b, self.dual.b)

    @property
    def buffers(self) -> frozenset[Value]:
        """Return the buffers that the operands read, without scales and zero points."""
        if self.computed is None:
            return frozenset(o.buffer for o in self.operands)
        return self.computed.buffers | {self.b.buffer}

    @property
    def made(self) -> tuple[Value, ...]:
        """Return the values computed from the results: stored, or reduced within tiles."""
        stored = (o.value for o in self.epilogue.fusion.outputs)
        return tuple(dict.fromkeys((*stored, *(t.value for t in self.totals))))

    @property
    def scales(self) -> tuple[BlockScales, ...]:
        """Return the scales and zero points that are applied to operands, not to their sums."""
        return tuple(s for o in self.operands for s in o.factors)

    @property
    def batches(self) -> Dim:
        """Return the number of batches."""
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
    def cuts(self) -> str:
        """Return what groups partition: `rows`, `depth` or nothing (empty)."""
        return "" if self.groups is None else self.groups.cuts

    @property
    def operand_batches(self) -> Dim:
        """Return the number of values of the batch index that operands are read with."""
        if self.groups is not None and self.cuts == "rows":
            return self.groups.count
        return self.batches

    def run(self, operand: Operand) -> Dim:
        """Return the extent of an operand's contiguous axis."""
        if operand.k_major:
            return self.k
        return self.m if operand is self.a else self.n

    @property
    def dtype(self) -> DType | None:
        """Return the type in which tensor cores take both operands; None if they cannot exactly.

        Tensor cores sum in f32, so casts of 16-bit floats to f32 before them cost nothing.
        """
        if sums_dtype(self.node.output.dtype) != F32:
            return None
        both = {self.a.buffer.dtype, self.b.buffer.dtype}
        if self.tf32 and both == {F32}:
            return F32
        wide = {F16, BF16} & both or {F16}
        return wide.pop() if len(wide) == 1 and both - wide <= {F8E4M3, F8E5M2, I8, U8} else None

    @property
    def narrow(self) -> tuple[DType, DType] | None:
        """Return the types of A and B if both are 8-bit floats, which some tensor cores support."""
        both = (self.a.buffer.dtype, self.b.buffer.dtype)
        summed = sums_dtype(self.node.output.dtype) == F32
        return both if summed and {*both} <= {F8E4M3, F8E5M2} else None

    @property
    def has_converted_weights(self) -> bool:
        """Return whether B is 8- or 4-bit integers that a kernel converts to 16-bit floats."""
        alone = self.groups is None and self.dual is None and self.a.scales is None
        few = bool(self.b.packed) or self.b.flipped or self.b.buffer.dtype == I8
        return alone and few and self.a.buffer.dtype == self.dtype

    @property
    def is_converted(self) -> bool:
        """Return whether an operand has another type in memory than in tensor cores."""
        return any(o.buffer.dtype != self.dtype for o in self.operands)

    @property
    def is_plain(self) -> bool:
        """Return whether the epilogue at most rounds."""
        return not self.totals and all(n.op.converts for n in self.epilogue.fusion.nodes)

    def staged(self, facts: Facts) -> tuple[StagedTensor, ...]:
        """Return the tensors of the epilogue whose rows are staged in shared memory."""
        if self.staged_width != PAIR and self.dual is not None:
            return ()
        reduced = [self._pairs.lowering.at_home(t.value) for t in self.totals]
        return find_staged(self._pairs, self.epilogue.all_sums, facts, reduced)

    @cached_property
    def _pairs(self) -> Pairs:
        """Return the epilogue in the loop variables of staged columns."""
        fusion, width = self.epilogue.fusion, self.staged_width
        binding, chunk, lane = bind(self, width)
        lowering = Lowering(fusion, self.domain, binding)
        return Pairs(fusion, lowering, chunk, lane, self.n, width)

    @property
    def staged_width(self) -> int:
        """Return the neighbouring columns that are staged at once: a pair if pairs divide N."""
        return PAIR if Facts.proven(self.n, PAIR) else 1

    @cached_property
    def slots(self) -> StagedSlots:
        """Return the shared memory slots of the staged tensors."""
        hints = self.epilogue.fusion.hints
        staged = self.staged(Facts(hints))
        return slots_of(staged, self.n.evaluate(hints), self.k.evaluate(hints))


def find_product(fusion: Fusion) -> Product | Refusal:
    """Return the GEMM of a segment, or why it is not one."""
    products = [n for n in fusion.nodes if n.op.family == "contraction"]
    if len(products) != 1:
        return Refusal("contraction", f"the scheduler needs one GEMM, found {len(products)}")
    node = products[0]
    if node.op.product is None:
        return Refusal("operation", f"the scheduler does not support `{node.op.name}`")
    axes = tuple(Var(f"i{k}", extent) for k, extent in enumerate(node.output.shape))
    depth = Var("k", node.operands[0].shape[-1])
    if node.op.lookup is not None:
        return _grouped(fusion, node, axes, depth)
    left, right, columns = coordinates_of(node, axes, depth)
    outer, column_axes = axes[: len(axes) - columns], axes[len(axes) - columns :]
    a = found = find_operand(fusion, node.inputs[0], left, (), depth)
    b = find_operand(fusion, node.inputs[1], right, column_axes, depth)
    computed, rows = None, node.inputs[0]
    if isinstance(a, Refusal):
        computed = find_computed(fusion, rows)
        if not isinstance(computed, Computed):
            return computed or a
        a = Found((rows, linearize(left, contiguous_strides(rows.shape))))
    if isinstance(b, Refusal):
        return b
    split = _rows_from(outer, a.values[1], b.values[1])
    result = (outer[:split], outer[split:], column_axes)
    made = _problem(fusion, node, result, depth, (a, b), outer[:split])
    if computed is None or isinstance(made, Refusal):
        return made
    if made.batches != 1 and isinstance(found, Refusal):
        return found
    made = replace(made, computed=computed)
    because = no_computing(made, Facts(fusion.hints))
    return Refusal("operand", because) if because else made


def _problem(
    fusion: Fusion,
    node: Node,
    result: tuple[tuple[Var, ...], ...],
    depth: Var,
    operands: tuple[Found, Found],
    batch: tuple[Var, ...],
    groups: Groups | None = None,
) -> Product | Refusal:
    """Return the problem for the batch, row and column axes of a result.

    batch: the axes that operands are read by.
    """
    epilogue = find_epilogue(fusion, node)
    if isinstance(epilogue, Refusal):
        return epilogue
    domain = find_domain(epilogue.fusion, epilogue.sums)
    if isinstance(domain, Refusal):
        return domain
    a, b = (
        operand_of(o.values, batch, own, depth) for o, own in zip(operands, result[1:], strict=True)
    )
    if isinstance(a, Refusal):
        return a
    if isinstance(b, Refusal):
        return b
    a, b = (
        weighed(each, found, own, depth)
        for each, found, own in zip((a, b), operands, result[1:], strict=True)
    )
    if isinstance(a, Refusal):
        return a
    if isinstance(b, Refusal):
        return b
    if groups is not None:
        a = replace(a, cut=a.k_major == (groups.cuts == "depth"))
        b = replace(b, cut=b.k_major and groups.cuts == "depth")
    first, rows, columns = result
    few = {is_tf32(fusion, value) for value in node.inputs[:2]}
    buffers = {a.buffer.dtype, b.buffer.dtype}
    if True in few and F32 in buffers and (False in few or len(buffers) > 1):
        because = "TF32 needs both f32 operands, not one"
        return Refusal("operand", because)
    return Product(
        node, first, rows, columns, depth.extent, a, b, epilogue, domain, groups,
        tf32=False not in few,
    )  # fmt: skip


def _grouped(fusion: Fusion, node: Node, axes: tuple[Var, ...], depth: Var) -> Product | Refusal:
    """Return the problem of a grouped GEMM; groups of columns are transposed groups of rows."""
    first, second, offsets = node.inputs
    group = Var("g", offsets.shape[0])
    k, g, at = of_var(depth), of_var(group), [of_var(a) for a in axes]
    if first.rank == second.rank:
        cuts, batch, result = "depth", axes[:1], (axes[:1], axes[1:2], axes[2:])
        sides = ((first, (at[1], k)), (second, (k, at[2])))
    elif first.rank == 2:
        cuts, batch, result = "rows", (group,), ((), axes[:1], axes[1:])
        sides = ((first, (at[0], k)), (second, (g, k, at[1])))
    else:
        cuts, batch, result = "rows", (group,), ((), axes[1:], axes[:1])
        sides = ((second, (k, at[1])), (first, (g, at[0], k)))
    a, b = (resolve_address(fusion, value, coordinates) for value, coordinates in sides)
    ends = resolve_address(fusion, offsets, (g,))
    if isinstance(a, Refusal):
        return a
    if isinstance(b, Refusal):
        return b
    if isinstance(ends, Refusal):
        return ends
    buffer, address = ends
    stride = address.coefficient(group)
    if stride is None:
        return Refusal("operand", f"`{buffer.name}` does not have a single stride along the groups")
    groups = Groups(buffer, address.constant, stride, group.extent, cuts)
    return _problem(fusion, node, result, depth, (Found(a), Found(b)), batch, groups)


def _rows_from(outer: tuple[Var, ...], a: Index, b: Index) -> int:
    """Return the first of the trailing axes that can be one row index.

    B is the same for all of them, and A has one stride.
    """
    first, wanted = len(outer), None
    for position in reversed(range(len(outer))):
        axis = outer[position]
        if axis.extent != 1:
            stride = a.coefficient(axis)
            if axis in b.variables or stride is None or wanted not in (None, stride):
                break
            wanted = stride * axis.extent
        first = position
    return first


def bind(problem: Product, width: int) -> tuple[Mapping[Var, Index], Var, Var]:
    """Return the axes in loop variables (batch, m, and column n = chunk * width + lane)."""
    chunks = problem.n if width == 1 else problem.n.divide(width)
    assert chunks is not None
    chunk, lane = Var("chunk", chunks), Var("i", dim(width))
    column = of_var(chunk) * width + of_var(lane)
    groups = (
        (problem.batch_axes, of_var(Var(BATCH, problem.batches))),
        (problem.row_axes, of_var(Var(ROW, problem.m))),
        (problem.column_axes, column),
    )
    binding: dict[Var, Index] = {}
    for axes, position in groups:
        extents = [a.extent for a in axes]
        binding.update(zip(axes, delinearize(position, extents), strict=True))
    return binding, chunk, lane


def assume_vectors(problem: Product, width: int, facts: Facts) -> None:
    """Add the divisibility that the epilogue's vector accesses rely on."""
    binding, _, lane = bind(problem, width)
    fusion = problem.epilogue.fusion
    for each in accesses(Lowering(fusion, problem.domain, binding)):
        access_class(each.address, each.conditions, lane, width, facts)
