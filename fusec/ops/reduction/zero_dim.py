"""Scans and sorts of 0-dim tensors: those of a row of one element, as in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.diagnostics import FusecError
from fusec.ir.graph import Operand
from fusec.ir.op import OpDef
from fusec.ops.builder.arguments import size_argument

if TYPE_CHECKING:
    from fusec.ops.builder.build import GraphBuilder

Slots = Sequence[Sequence[Operand] | None]


def is_one_element(op: OpDef, slots: Slots) -> bool:
    """Return whether an operation along a dim is called on a 0-dim tensor."""
    first = slots[0] if slots else None
    return op.family in ("scan", "sort") and bool(first) and first[0].type.shape == ()


def of_one_element(
    builder: GraphBuilder, op: OpDef, slots: Slots, attributes: Mapping[str, Any]
) -> tuple[Operand, ...]:
    """Return the 0-dim results of the operation on a row of one element; dim is 0 or -1."""
    if "k" in attributes and size_argument(op.name, "k", attributes["k"]) != 1:
        raise FusecError(f"k of `{op.name}` of a 0-dim tensor is {attributes['k']}, it must be 1")
    first = slots[0]
    assert first
    row = builder.apply("broadcast", first[0], is_broadcast_dim=[True])
    others = [None if slot is None else slot[0] for slot in slots[1:]]
    results = builder.call(op.name, [row, *others], attributes)
    return tuple(builder.apply("squeeze", r, dims=[0]) for r in results)
