"""Redefinitions of a GEMM: split K, a slice of the result, and aligned operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.ir.dim import ceildiv, dim
from fusec.ir.dtype import F32
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.passes.rewrite import Rewriter, Rule
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.hopper import SplitKParameters
from fusec.schedule.matmul.operands.access import CHUNK_BYTES, is_vector
from fusec.schedule.matmul.parts import InParts
from fusec.schedule.matmul.portable import MmaParameters, SimtParameters
from fusec.schedule.matmul.problem import Product
from fusec.schedule.redefinitions import slice_before_product, splits_of_depth
from fusec.segment.protocol import Redefinition
from fusec.segment.redefine import LEAST_GAIN
from fusec.target import Target


@dataclass(frozen=True)
class Estimated:
    """A GEMM's own plan: its predicted seconds, launch included, and its parameters."""

    seconds: float
    parameters: MatmulParameters

    @property
    def splits(self) -> bool:
        """Return whether it splits K."""
        return isinstance(self.parameters, SplitKParameters) and self.parameters.splits > 1


def definitions_of_product(
    segment: Fusion,
    fusion: Fusion,
    product: Product | None,
    own_plan: Estimated | None,
    target: Target,
) -> tuple[Redefinition, ...]:
    """Return the redefinitions of the GEMM of a segment of `fusion`.

    Split K is skipped if the GEMM's own plan already splits it, or costs no more than a lower bound
    of the redefinition: each is segmented again.
    """
    node = next((n for n in segment.nodes if n.op.family == "contraction"), None)
    if node is None:
        return ()
    # Before segmentation, a fusion's own node stands for the segment's.
    own = fusion.producer.get(node.output)
    if own is None:
        own = next((n for n in fusion.nodes if n.output.name == node.output.name), node)
    first = slice_before_product(fusion, own)
    if product is not None:
        first = (*first, *aligned_copies(product, own))
        first = (*first, *(copies_along_depth(product, own) if target.has_wgmma else ()))
    tiles = 1
    for extent in node.output.shape:
        tiles *= -(-extent.evaluate(segment.hints) // 128)
    if tiles >= target.sms:
        return first
    results = {o.value.name for o in fusion.outputs}
    is_last = all(o.value.name in results for o in segment.outputs)
    if own_plan is not None and own_plan.splits and is_last:
        return first

    def may_pay(parts: int) -> bool:
        if own_plan is None or product is None:
            return True
        is_fed = not isinstance(own_plan.parameters, (MmaParameters, SimtParameters))
        split = InParts(node, segment, product, is_fed, alone=is_last)
        return split.least_seconds(parts, target) <= own_plan.seconds * (1 - LEAST_GAIN)

    return (*first, *splits_of_depth(own, tiles, target.sms, fusion.hints, may_pay))


def aligned_copies(product: Product, node: Node) -> tuple[Redefinition, ...]:
    """Return the redefinition that copies unaligned operands into rows aligned to 16 bytes.

    Bulk copies require that. A separate kernel writes rows of whole chunks, and the GEMM reads them
    in place, without the padding.
    """
    if product.dtype in (None, F32) or product.is_converted or product.cuts or product.computed:
        return ()
    facts = Facts(product.epilogue.fusion.hints)
    odd = [o for o in (product.a, product.b) if not is_vector(o, facts)]
    if not odd or any(o.buffer.rank < 2 for o in odd):
        return ()
    names = tuple(dict.fromkeys(o.buffer.name for o in odd))
    which = " and ".join(f"`{name}`" for name in names)
    because = (
        f"rows of {which} are unaligned; the rows of an aligned copy begin at multiples of "
        f"{CHUNK_BYTES} bytes"
    )
    rule = _copy_rule(node.output.name, names)
    return (Redefinition("aligned", node.output.name, because, rule),)


def copies_along_depth(product: Product, node: Node) -> tuple[Redefinition, ...]:
    """Return the redefinition that copies TF32 operands into K-major, aligned rows.

    wgmma requires that. A separate kernel writes them, and the GEMM reads the copies.
    """
    if product.dtype != F32 or product.cuts:
        return ()
    facts = Facts(product.epilogue.fusion.hints)
    both = (product.a, product.b)
    sides = [s for s, o in enumerate(both) if not (o.k_major and is_vector(o, facts))]
    if not sides:
        return ()
    names = " and ".join(dict.fromkeys(f"`{both[s].buffer.name}`" for s in sides))
    because = (
        f"wgmma needs TF32 operands contiguous along K, with rows aligned to {CHUNK_BYTES} bytes; "
    )
    because += f"copies of {names} have that layout"
    rule = _along_depth_rule(node.output.name, sides)
    return (Redefinition("along_k", node.output.name, because, rule),)


def _along_depth_rule(name: str, sides: Sequence[int]) -> Rule:
    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        if node.output.name != name or node.op.product is None:
            return None
        operands = list(node.operands)
        for side in sides:
            operand = operands[side]
            few = work.source(operand, "tf32")
            value = operand if few is None else few.operands[0]
            if not isinstance(value, Value):
                return None
            is_last = side == 0 or node.op.product.transposed or value.rank == 1
            turn = {"dims": (*range(value.rank - 2), value.rank - 1, value.rank - 2)}
            if not is_last:
                value = work.add(node, "permute", [value], turn)
            value = _aligned(work, node, value)
            if not is_last:
                value = work.add(node, "permute", [value], turn)
            operands[side] = work.add(node, "tf32", [value])
        return work.become(node, node.op.name, operands, node.attributes)

    return rule


def _copy_rule(name: str, buffers: Sequence[str]) -> Rule:
    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        if node.output.name != name or node.op.product is None:
            return None
        copied: dict[str, Value] = {}
        operands = [_copied(o, work, node, buffers, copied) for o in node.operands[:2]]
        if set(copied) != set(buffers):
            return None
        return work.become(node, node.op.name, [*operands, *node.operands[2:]], node.attributes)

    return rule


def _copied(
    operand: Operand, work: Rewriter, node: Node, buffers: Sequence[str], copied: dict[str, Value]
) -> Operand:
    """Return an operand that is read from the copies of some buffers, with the same permutation."""
    permuted = work.source(operand, "permute")
    if permuted is not None:
        source = permuted.operands[0]
        inner = _copied(source, work, node, buffers, copied)
        if inner is source:
            return operand
        return work.add(node, "permute", [inner], permuted.attributes)
    if not isinstance(operand, Value) or operand.name not in buffers:
        return operand
    if operand.name not in copied:
        copied[operand.name] = _aligned(work, node, operand)
    return copied[operand.name]


def _aligned(work: Rewriter, node: Node, value: Value) -> Value:
    """Return a copy of a value whose rows are padded to whole chunks, as a view without padding."""
    columns, by = value.shape[-1], CHUNK_BYTES // value.dtype.size
    if Facts.proven(columns, by):
        return work.add(node, "segment_set", [value])
    more = ceildiv(columns, by) * by - columns
    widths: Mapping[str, object] = {"pad_widths": (*[dim(0)] * (2 * value.rank - 1), more)}
    padded = work.add(node, "pad", [value, Const(0, value.dtype)], widths)
    stored = work.add(node, "segment_set", [padded])
    whole = {
        "start_indices": (dim(0),) * value.rank,
        "end_indices": value.shape,
        "strides": (1,) * value.rank,
    }
    return work.add(node, "slice", [stored], whole)
