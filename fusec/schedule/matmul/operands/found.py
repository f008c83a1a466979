"""Finds the operands of GEMMs in memory, including those that are scaled when they are read."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.index.domain import Refusal
from fusec.index.movement import pull, pull_elementwise
from fusec.ir.access import Coordinates
from fusec.ir.dtype import F8E4M3, F8E5M2, F32, I8
from fusec.ir.expression import Var
from fusec.ir.graph import Fusion, Node, Value
from fusec.schedule.matmul.operands.addresses import resolve_address
from fusec.schedule.matmul.operands.block_scales import Found, multiplies


def find_operand(
    fusion: Fusion, value: Value, at: Coordinates, own: tuple[Var, ...], depth: Var
) -> Found | Refusal:
    """Return the address of an operand, or of its low-precision values and their scales.

    own: the axes of its rows.
    """
    found = resolve_address(fusion, value, at)
    if not isinstance(found, Refusal):
        return Found(found)
    return _scaled(fusion, value, at, (*own, depth)) or found


def _scaled(fusion: Fusion, value: Value, at: Coordinates, axes: tuple[Var, ...]) -> Found | None:
    """Return the values and scales of an operand that is their product, through movement only."""
    made = _made(fusion, value, at)
    if made is None or not multiplies(made[0]):
        return None
    node, at = made
    is_float = node.output.dtype == F32 or node.output.dtype.is_half
    return _factors(fusion, node, at, axes) if is_float else None


def _made(fusion: Fusion, value: Value, at: Coordinates) -> tuple[Node, Coordinates] | None:
    """Return the node that computes a value, through movement, and its coordinates."""
    while value not in fusion.input_of:
        node = fusion.producer[value]
        if node.op.access is None:
            return node, at
        branches = pull(node, at).branches
        branch = branches[0] if len(branches) == 1 else None
        if branch is None or branch.conditions or not isinstance(branch.operand, Value):
            return None
        value, at = branch.operand, branch.coordinates
    return None


def _factors(fusion: Fusion, node: Node, at: Coordinates, axes: tuple[Var, ...]) -> Found | None:
    """Return the factors of a multiplication if one of them is scales.

    8-bit floats are scaled in f32, like their sums; integers in the 16-bit floats that they are
    converted to.
    """
    from fusec.schedule.matmul.operands.packed import (
        find_integers,  # evaluates operations: not needed at startup
    )

    kind = node.output.dtype
    for values, scales in (node.operands, node.operands[::-1]):
        if not isinstance(values, Value) or not isinstance(scales, Value):
            return None
        by = resolve_address(fusion, scales, pull_elementwise(scales, at))
        if isinstance(by, Refusal) or by[0].dtype != kind:
            continue
        place = pull_elementwise(values, at)
        codes = resolve_address(fusion, values, place)
        if isinstance(codes, Refusal):
            made = find_integers(fusion, values, place, axes) if kind.is_half else None
            if made is not None:
                return replace(made, scales=by)
        elif codes[0].dtype in ((I8,) if kind.is_half else (F8E4M3, F8E5M2)):
            return Found(codes, by)
    return None
