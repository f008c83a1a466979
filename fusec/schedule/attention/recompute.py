"""Attention scores that the forward and the backward each compute, rather than store and read.

If a fusion has both, their scores are one value. As long as it is shared, no segment contains an
attention without half of the other, with tensors of an element per query and key in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir.graph import Fusion, Node, Operand, Value
from fusec.ir.roles import Combine
from fusec.ops.acts import Act, act_of
from fusec.passes.rewrite import Rewriter, Rule
from fusec.segment.protocol import Redefinition
from fusec.segment.views import may_be_view


def recomputed_scores(fusion: Fusion, product: Node) -> tuple[Redefinition, ...]:
    """Return the redefinitions that recompute scores for exponentials of another softmax.

    product: the GEMM of queries and keys.
    """
    powers = [n for n in fusion.nodes if act_of(n.op) is Act.EXPONENTIATE]
    differences = [fusion.producer.get(n.inputs[0]) for n in powers if n.inputs]
    made = {v: n for n in fusion.nodes for v in n.outputs}
    cone = _made_of(fusion, product)
    again: list[str] = []
    has_softmax = False
    for node in differences:
        if node is None or act_of(node.op) is not Act.SUBTRACT or len(node.inputs) != 2:
            continue
        scores, less = node.inputs
        if scores not in cone:
            continue
        if _is_maximum(made, less, scores):
            has_softmax = True
        else:
            again.append(node.output.name)
    if not has_softmax or not again:
        return ()
    because = f"`{again[0]}` belongs to an attention backward, which recomputes its scores"
    name = product.output.name
    return (Redefinition("scores_again", name, because, _rule(name, tuple(again)), whole=True),)


def _made_of(fusion: Fusion, product: Node) -> set[Value]:
    """Return the values that are computed elementwise from a GEMM's result."""
    found = set(product.outputs)
    for node in fusion.nodes:
        follows = node.op.family == "pointwise" or node.op.access is not None
        if follows and found.intersection(node.inputs):
            found.update(node.outputs)
    return found


def _is_maximum(made: dict[Value, Node], value: Value, scores: Value) -> bool:
    """Return whether a value is the maximum of scores, or its replacement where it is infinite."""
    node = made.get(value)
    while node is not None and (node.op.access is not None or act_of(node.op) is Act.SELECT):
        tensors = [v for v in node.inputs if not v.is_scalar]
        node = made.get(tensors[-1]) if tensors else None
    return node is not None and node.op.combine is Combine.MAXIMUM and scores in node.inputs


def _rule(name: str, again: Sequence[str]) -> Rule:
    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        if node.output.name not in again:
            return None
        copies: dict[Value, Operand] = {}
        scores = _copied(node, work, node.operands[0], name, copies)
        if scores is None:
            return None
        return work.become(node, node.op.name, [scores, node.operands[1]])

    return rule


def _copied(
    near: Node, work: Rewriter, operand: Operand, name: str, copies: dict[Value, Operand]
) -> Operand | None:
    """Return a copy of a value and its producers down to the named GEMM; None if not derived from
    it.
    """
    producer = work.producer.get(operand) if isinstance(operand, Value) else None
    if producer is None or not isinstance(operand, Value):
        return None
    if operand in copies:
        return copies[operand]
    operands: list[Operand] = list(producer.operands)
    if producer.output.name != name:
        parts = [_copied(near, work, o, name, copies) for o in operands]
        if all(part is None for part in parts):
            return None
        operands = [o if part is None else part for o, part in zip(operands, parts, strict=True)]
    else:
        operands = [_seen_again(near, work, o) for o in operands]
    results = work.add_all(near, producer.op, operands, producer.attributes)
    copies.update(zip(producer.outputs, results, strict=True))
    return copies[operand]


def _seen_again(near: Node, work: Rewriter, operand: Operand) -> Operand:
    """Return an operand through its own copies of views and casts, to fuse into its segment."""
    producer = work.producer.get(operand) if isinstance(operand, Value) else None
    if producer is None or not (may_be_view(producer) or producer.op.converts):
        return operand
    operands = [_seen_again(near, work, o) for o in producer.operands]
    (result,) = work.add_all(near, producer.op, operands, producer.attributes)
    return result
