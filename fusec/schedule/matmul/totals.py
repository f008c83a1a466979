"""Reductions of a GEMM's results in its own kernel, tile by tile; another kernel finishes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass, replace
from fusec.ir.dim import Dim, ceildiv, dim, product
from fusec.ir.dtype import F32
from fusec.ir.expression import contiguous_strides
from fusec.ir.graph import Const, Fusion, Node, Operand, Output, Value, needed_nodes
from fusec.ir.roles import Combine
from fusec.ops.movement.access import PAD, RESHAPE
from fusec.passes.rewrite import Rewriter, Rule
from fusec.schedule.orders import PlannedOrder, PlannedStage
from fusec.segment.protocol import Redefinition

if TYPE_CHECKING:
    from fusec.schedule.matmul.problem import Product

COLUMNS, ROWS = 32, 16
"""How many results of a row and of a column a warp reduces to one."""
_QUAD, _LANES = 4, 8
"""Lanes that hold a row's results, in pairs, and those that hold a column's."""
MOST_ROW_TOTALS = 2
"""Most reductions of one GEMM's results: three were never faster than rereading them (H200)."""
IDENTITIES = {Combine.SUM: 0.0, Combine.MAXIMUM: -inf, Combine.MINIMUM: inf}
"""The supported reductions and their identity elements."""


@dataclass(frozen=True)
class Total:
    """A reduction of a value computed from each result, `value`, to one per `block`.

    result: the output that it is, or is copied to; along_row: of COLUMNS neighbours in a row, else
    of ROWS in a column; lead: number of dims before those of the rows, if columns are reduced.
    """

    node: Node
    value: Value
    result: Value
    along_row: bool
    lead: int = 0

    @property
    def order(self) -> PlannedOrder:
        """Return the summation order of the kernel (summed_pairs.cuh)."""
        if self.along_row:
            return PlannedOrder((PlannedStage(dim(COLUMNS // _QUAD), 2, _QUAD, 2),))
        return PlannedOrder((PlannedStage(dim(ROWS // _LANES), 3, _LANES),))


def find_totals(fusion: Fusion) -> tuple[Total, ...]:
    """Return the reductions of a segment that can be computed in tiles and are outputs."""
    found = (_total(fusion, node) for node in fusion.nodes if node.op.family == "reduction")
    return tuple(each for each in found if each is not None)


def _total(fusion: Fusion, node: Node) -> Total | None:
    result = node.output
    users = fusion.users.get(result, ())
    if len(users) == 1 and users[0].op.ends_segment and result not in fusion.output_of:
        result = users[0].output
    if node.op.combine not in IDENTITIES or result not in fusion.output_of:
        return None
    if result in fusion.effects.into:
        return None
    source, dims = node.inputs[0], tuple[int, ...](node.attributes["dims"])
    if {source.dtype, node.output.dtype} != {F32} or len(dims) != 1:
        return None
    if fusion.effects.strides(result) != contiguous_strides(result.shape):
        return None
    blocks = fusion.producer.get(source)
    along_row = dims[0] == source.rank - 1
    block = COLUMNS if along_row else ROWS
    if blocks is None or blocks.op.access is not RESHAPE or source.shape[dims[0]] != block:
        return None
    if dims[0] < source.rank - 2:
        return None
    value, lead = blocks.inputs[0], source.rank - 3
    padded = fusion.producer.get(value)
    if padded is not None and padded.op.access is PAD:
        (filled,) = padded.operands[1:] or (Const(0, F32),)
        if not isinstance(filled, Const) or filled.value != IDENTITIES[node.op.combine]:
            return None
        widths = list(padded.attributes["pad_widths"])
        widths.pop(2 * value.rank - (1 if along_row else 3))
        if any(width != 0 for width in widths):
            return None
        value = padded.inputs[0]
        flat = fusion.producer.get(value)
        if not along_row and flat is not None and flat.op.access is RESHAPE:
            if value.shape[:lead] != flat.inputs[0].shape[:lead]:
                return None
            value = flat.inputs[0]
    if along_row:
        expected = (*value.shape[:-1], ceildiv(value.shape[-1], COLUMNS), dim(COLUMNS))
    else:
        rows = product(value.shape[lead:-1])
        expected = (*value.shape[:lead], ceildiv(rows, ROWS), dim(ROWS), *value.shape[-1:])
    return Total(node, value, result, along_row, lead) if source.shape == expected else None


def without_totals(fusion: Fusion, totals: Iterable[Total]) -> Fusion:
    """Return a segment whose outputs are the operands of its totals instead of the totals."""
    reduced = {t.result: t.value for t in totals}
    others = [o for o in fusion.outputs if o.value not in reduced]
    stored = {o.value for o in others}
    others += [Output(v) for v in dict.fromkeys(reduced.values()) if v not in stored]
    nodes = needed_nodes(fusion.nodes, [o.value for o in others])
    return replace(fusion, nodes=tuple(nodes), outputs=tuple(others), pins=())


def totals_in_tiles(fusion: Fusion, found: Product) -> tuple[Redefinition, ...]:
    """Return the redefinition that reduces the results of a GEMM of `fusion` in its own kernel.

    The GEMM kernel reduces COLUMNS of a row, or ROWS of a column, to one number; another kernel
    reduces these. One redefinition covers all reductions that can be computed this way.
    """
    node = next((n for n in fusion.nodes if n.output.name == found.node.output.name), None)
    if node is None or len(found.column_axes) != 1 or found.cuts or found.staged_width == 1:
        return ()
    lead = len(found.batch_axes)
    rows = frozenset(range(lead, node.output.rank - 1))
    chosen: dict[str, bool] = {}
    for reader, source in fusion.readers(node.output, lambda n: n.op.family == "pointwise"):
        if not _may_be_total(reader, source, node.output):
            continue
        dims = frozenset[int](reader.attributes["dims"])
        if node.output.rank - 1 in dims or rows <= dims:
            chosen[reader.output.name] = node.output.rank - 1 in dims
    if not 0 < len(chosen) <= MOST_ROW_TOTALS:
        return ()
    names = ", ".join(f"`{name}`" for name in chosen)
    parts = {True: f"{COLUMNS} columns of a row", False: f"{ROWS} rows of a column"}
    each = " and ".join(parts[along] for along in dict.fromkeys(chosen.values()))
    because = f"the GEMM kernel reduces {each} for {names}; its results are not read again"
    rule = _rule(chosen, lead)

    def meant(segment: Fusion) -> bool:
        made = any(n.op.family == "contraction" for n in segment.nodes)
        return made and len(find_totals(segment)) == len(chosen)

    return (Redefinition("in_epilogue", next(iter(chosen)), because, rule, meant),)


def _may_be_total(reader: Node, source: Value, result: Value) -> bool:
    if reader.op.family != "reduction" or reader.op.combine not in IDENTITIES:
        return False
    kinds = (source.dtype, reader.output.dtype)
    return source.shape == result.shape and all(d == F32 or d.is_half for d in kinds)


def _rule(chosen: Mapping[str, bool], lead: int) -> Rule:
    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        along_row = chosen.get(node.output.name)
        if along_row is None or node.op.combine not in IDENTITIES:
            return None
        (value,), dims = node.inputs, frozenset[int](node.attributes["dims"])
        if value.dtype != F32:
            value = work.add(node, "cast", [value], {"dtype": F32})
        if along_row:
            blocks = _in_blocks(work, node, value, value.rank - 1, COLUMNS)
        else:
            rows = product(value.shape[lead:-1])
            shape = (*value.shape[:lead], rows, *value.shape[-1:])
            blocks = _in_blocks(work, node, value, lead, ROWS, shape)
            dims = frozenset(d for d in dims if d < lead) | {lead}
        at = (blocks.rank - (1 if along_row else 2),)
        part = work.add(node, node.op.name, [blocks], {"dims": at})
        stored = work.add(node, "segment_set", [part])
        over = {"dims": tuple(sorted(dims))}
        if node.output.dtype == F32:
            return work.become(node, node.op.name, [stored], over)
        total = work.add(node, node.op.name, [stored], over)
        return work.become(node, "cast", [total], {"dtype": node.output.dtype})

    return rule


def _in_blocks(
    work: Rewriter,
    node: Node,
    value: Value,
    axis: int,
    block: int,
    shape: tuple[Dim, ...] | None = None,
) -> Value:
    """Return a value, of `shape`, with an axis in blocks, the last one padded with the identity."""
    shape = shape or value.shape
    extent, count = shape[axis], ceildiv(shape[axis], block)
    if extent != count * block:
        if shape != value.shape:
            value = work.add(node, "reshape", [value], {"new_shape": shape})
        widths = [dim(0)] * (2 * len(shape))
        widths[2 * axis + 1] = count * block - extent
        assert node.op.combine is not None
        filled = Const(IDENTITIES[node.op.combine], F32)
        value = work.add(node, "pad", [value, filled], {"pad_widths": tuple(widths)})
    new = (*shape[:axis], count, dim(block), *shape[axis + 1 :])
    return work.add(node, "reshape", [value], {"new_shape": new})
