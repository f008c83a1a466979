"""Weights of 8 and 4 bits: whether operations on bytes make them, and from where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from fusec.index.movement import pull, pull_elementwise
from fusec.ir.access import Coordinates
from fusec.ir.evaluate import (
    Array,
    apply_reference,
    constant,
    convert_operand,
    evaluate_node,
    settle,
)
from fusec.ir.expression import Index, Var, linearize, of_var
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.schedule.matmul_located import Located

MOST_CONSTANTS = 256
"""Elements of a tensor of constants that is evaluated."""
BIAS = 8
"""What is taken off the unsigned number that four bits are."""
_BYTES = np.arange(256, dtype=np.uint8)
_HALVES = [(_BYTES & 15).astype(np.int64), (_BYTES >> 4).astype(np.int64)]

_Table = tuple[Located | None, Array]


@dataclass(frozen=True)
class Codes:
    """Bytes that are weights: of 8 bits, or two of 4 bits, the first in the low bits.

    place: where they lie; the address counts bytes along K. flipped: whether the highest bit of a
    weight is set where that of 8 bits in two's complement, or of 4 bits and BIAS, is not.
    """

    place: Located
    packed: bool
    flipped: bool


def find_codes(fusion: Fusion, value: Value, at: Coordinates, depth: Var) -> Codes | None:
    """Return the bytes that a value is made of along `depth`, one or two to each.

    Whatever the operations are, they are evaluated for each byte. None where they make anything
    else of it than small integers around 0.
    """
    whole = _table(fusion, value, at)
    if whole is not None and whole[0] is not None:
        for flipped, wanted in ((False, _BYTES.view(np.int8)), (True, _BYTES - 128.0)):
            if np.array_equal(whole[1], wanted):
                return Codes(whole[0], packed=False, flipped=flipped)
    if not depth.extent.is_const or depth.extent.value % 2:
        return None
    byte = Var("byte", depth.extent // 2)
    places = [_placed(at, {depth: of_var(byte) * 2 + half}) for half in range(2)]
    first, second = (_table(fusion, value, place) for place in places)
    if first is None or second is None or first[0] is None or first[0] != second[0]:
        return None
    buffer, address = first[0]
    for flipped in (False, True):
        halves = [(half ^ BIAS if flipped else half) - BIAS for half in _HALVES]
        if all(np.array_equal(t[1], h) for t, h in zip((first, second), halves, strict=True)):
            place = (buffer, address.substitute({byte: of_var(depth)}))
            return Codes(place, packed=True, flipped=flipped)
    return None


def _placed(at: Coordinates, values: dict[Var, Index]) -> Coordinates:
    return tuple(c.substitute(values) for c in at)


def _table(fusion: Fusion, operand: Operand, at: Coordinates) -> _Table | None:
    """Return an operand's value for each byte at one address; of constants without an address."""
    if isinstance(operand, Const):
        return None, constant(operand)
    if operand in fusion.input_of:
        if operand.dtype.bits != 8 or not operand.dtype.is_integer:
            return None
        address = linearize(at, fusion.input_of[operand].strides)
        return (operand, address), _BYTES.view(operand.dtype.numpy)
    node = fusion.producer[operand]
    if node.op.access is not None:
        branch = _branch(node, at)
        return None if branch is None else _table(fusion, *branch)
    if node.op.family == "factory":
        return _constant(node, at)
    if node.op.family != "pointwise" or len(node.outputs) > 1:
        return None
    parts = [_table(fusion, o, pull_elementwise(o, at)) for o in node.operands]
    return None if any(p is None for p in parts) else _applied(node, [p for p in parts if p])


def _branch(node: Node, at: Coordinates) -> tuple[Operand, Coordinates] | None:
    """Return what a movement reads at some coordinates, where that is one operand's element."""
    held = [
        b
        for b in pull(node, at).branches
        if not any(c.position.is_const and not c.is_true for c in b.conditions)
    ]
    if len(held) != 1 or not all(c.is_true for c in held[0].conditions):
        return None
    return held[0].operand, held[0].coordinates


def _constant(node: Node, at: Coordinates) -> _Table | None:
    """Return an element of a small tensor that is made of constants."""
    extents = [e.value for e in node.output.shape if e.is_const]
    if node.inputs or len(extents) < node.output.rank or prod(extents) > MOST_CONSTANTS:
        return None
    if not all(c.is_const for c in at):
        return None
    (made,) = evaluate_node(node, {}, {})
    return None, np.asarray(made[tuple(c.constant.value for c in at)])


def _applied(node: Node, parts: Sequence[_Table]) -> _Table | None:
    """Return a pointwise node's value for each byte."""
    places = {place for place, _ in parts if place is not None}
    if len(places) > 1:
        return None
    arrays = [
        convert_operand(o, table, dtype)
        for o, (_, table), dtype in zip(node.operands, parts, node.compute_dtypes, strict=True)
    ]
    (result,) = apply_reference(node.op, arrays, node.attributes)
    return next(iter(places), None), settle(node, node.output, result)
