"""Compute equal expressions once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, cast

from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.passes.merge_reshapes import is_output_of_output
from fusec.passes.rewrite import Rewriter, rewrite

"""Copies are explicit, as outputs or as boundaries."""


def share_expressions(fusion: Fusion) -> Fusion:
    """Replace a node by an earlier one with the same operation, operands and attributes.

    Nodes of different pinned segments stay separate: sharing could make them depend on each other.
    """
    seen: dict[Hashable, Node] = {}
    number: dict[Value, int] = {}

    def rule(node: Node, work: Rewriter) -> Sequence[Operand] | None:
        if node.op.copies or is_output_of_output(node, work):
            return None
        operands = [_operand(o, number) for o in node.operands]
        if node.op.commutative:
            operands.sort(key=str)
        attributes = tuple((k, _frozen(node.attributes[k])) for k in sorted(node.attributes))
        pin = work.pin_of.get(node.output.name)
        first = seen.setdefault((node.op.name, tuple(operands), attributes, pin), node)
        same = all(a.type == b.type for a, b in zip(first.outputs, node.outputs, strict=True))
        return first.outputs if same and first is not node else None

    return rewrite(fusion, rule)


def _operand(operand: Operand, number: dict[Value, int]) -> Hashable:
    if isinstance(operand, Const):
        return operand
    return number.setdefault(operand, len(number))


def _frozen(value: Any) -> Hashable:
    if isinstance(value, tuple):
        return tuple(_frozen(item) for item in cast("tuple[Any, ...]", value))
    # repr distinguishes 0.0 from -0.0.
    return repr(value) if isinstance(value, float) else value
