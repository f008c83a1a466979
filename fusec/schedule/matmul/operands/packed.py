"""8-bit and 4-bit weights: recognizes operations on bytes that compute them, and their address."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from fusec.dataclasses import dataclass, replace
from fusec.index.domain import Refusal
from fusec.index.movement import pull, pull_elementwise
from fusec.ir.access import Coordinates
from fusec.ir.dim import dim
from fusec.ir.dtype import F32, F64, I8, U8
from fusec.ir.evaluate import (
    Array,
    apply_reference,
    constant,
    convert_operand,
    evaluate_node,
    settle,
)
from fusec.ir.expression import Index, Quotient, Var, linearize, of_var
from fusec.ir.graph import Const, Fusion, Node, Operand, Value
from fusec.schedule.matmul.operands.addresses import ResolvedAddress, resolve_address
from fusec.schedule.matmul.operands.block_scales import BIAS, Found, FoundZeros, is_byte

MOST_CONSTANTS = 256
"""Most elements of a tensor of constants that is evaluated."""
MOST = 256
"""Up to here all 16-bit float types represent every integer."""
_RANGES = {I8: (-128, 127), U8: (0, 255)}
_BYTES = np.arange(256, dtype=np.uint8)
_HALVES = [(_BYTES & 15).astype(np.int64), (_BYTES >> 4).astype(np.int64)]

_Table = tuple[ResolvedAddress | None, Array]


@dataclass(frozen=True)
class Codes:
    """Bytes that hold weights: one of 8 bits, or two of 4 bits, the first in the low bits.

    place: where they are in memory; the address counts bytes along the axis `packed`, if there is
    one. flipped: whether the highest bit of a weight is inverted compared with 8-bit two's
    complement, or 4 bits and BIAS; raised: the offset that is added to such an integer.
    """

    place: ResolvedAddress
    packed: Var | None
    flipped: bool
    raised: int = 0


def find_integers(
    fusion: Fusion, value: Value, at: Coordinates, axes: tuple[Var, ...]
) -> Found | None:
    """Return the bytes that a value is computed from, with zero points if it is a difference.

    axes: of the rows, and K last.
    """
    codes = _codes(fusion, value, at, axes)
    if codes is not None and codes.raised == 0:
        return Found(codes.place, packed=codes.packed, flipped=codes.flipped)
    made = _difference(fusion, value, at)
    if made is None:
        return None
    node, at = made
    first, second = node.operands
    if not isinstance(first, Value) or not isinstance(second, Value):
        return None
    codes = _codes(fusion, first, pull_elementwise(first, at), axes)
    zeros = _zeros(fusion, node, second, pull_elementwise(second, at), axes)
    if codes is None or zeros is None:
        return None
    if zeros.values[0].dtype.is_half:
        zeros = replace(zeros, raised=codes.raised)
    else:
        zeros = replace(zeros, added=zeros.added - codes.raised)
        least, most = (0, 15) if zeros.packed else _RANGES[zeros.values[0].dtype]
        if least + zeros.added < -MOST or most + zeros.added > MOST:
            return None
    return Found(codes.place, packed=codes.packed, flipped=codes.flipped, zeros=zeros)


def _difference(fusion: Fusion, value: Value, at: Coordinates) -> tuple[Node, Coordinates] | None:
    """Return the subtraction that a value is, through movement and casts, and its coordinates.

    Differences of 8-bit integers are exact in all types in between, and rounded once.
    """
    final = value.dtype
    while value not in fusion.input_of:
        node = fusion.producer[value]
        kind = value.dtype
        if kind not in (final, F32, F64) and (kind.kind != "int" or kind.bits == 8):
            return None
        if node.op.access is not None:
            branch = _branch(node, at)
            if branch is None or not isinstance(branch[0], Value):
                return None
            value, at = branch[0], branch[1]
        elif node.op.converts and isinstance(node.operands[0], Value):
            value = node.operands[0]
        else:  # x - 0 is x; no other number is neutral
            return (node, at) if node.op.neutral == (None, 0) else None
    return None


def _zeros(
    fusion: Fusion, node: Node, value: Value, at: Coordinates, axes: tuple[Var, ...]
) -> FoundZeros | None:
    """Return the zero points of a subtraction: 16-bit floats, or 8- or 4-bit integers."""
    found = resolve_address(fusion, value, at)
    if not isinstance(found, Refusal):
        kind = found[0].dtype
        is_known = is_byte(found[0]) or (kind.is_half and kind == node.output.dtype)
        return FoundZeros(found) if is_known else None
    *own, depth = axes
    group = _group(at, depth)
    if group > 1 and depth.extent.divide(group) is not None:
        part = Var("part", depth.extent // group)
        counted = of_var(part) * group + of_var(Var("within", dim(group)))
        codes = _codes(fusion, value, _placed(at, {depth: counted}), (*own, part))
    else:
        part, group = depth, 1
        codes = _codes(fusion, value, at, tuple(own))
    if codes is None or codes.packed is None:
        return None
    buffer, address = codes.place
    whole = {codes.packed: of_var(codes.packed) // 2}
    address = address.substitute(whole).substitute({part: of_var(depth) // group})
    packed = depth if codes.packed == part else codes.packed
    flipped = BIAS if codes.flipped else 0
    return FoundZeros((buffer, address), packed, flipped, codes.raised - BIAS)


def _group(at: Coordinates, depth: Var) -> int:
    """Return how many elements of K share the same coordinates; 0 if none or several do."""
    found = {
        atom.divisor.value
        for place in at
        for atom, _ in place.terms
        if isinstance(atom, Quotient) and atom.inner == of_var(depth) and atom.divisor.is_const
    }
    return found.pop() if len(found) == 1 else 0


def _codes(fusion: Fusion, value: Value, at: Coordinates, axes: tuple[Var, ...]) -> Codes | None:
    """Return the bytes that a value is computed from: one each, or one per two along an axis.

    All operations are evaluated for each byte, so any combination is recognized. None if the
    results are not neighbouring integers.
    """
    whole = _table(fusion, value, at)
    if whole is not None and whole[0] is not None:
        for flipped, wanted in ((False, _BYTES.view(np.int8)), (True, _BYTES - 128.0)):
            raised = _above(whole[1], wanted)
            if raised is not None:
                return Codes(whole[0], None, flipped, raised)
    for axis in axes:
        if axis.extent.is_const and axis.extent.value % 2 == 0:
            found = _nibbles(fusion, value, at, axis)
            if found is not None:
                return found
    return None


def _nibbles(fusion: Fusion, value: Value, at: Coordinates, axis: Var) -> Codes | None:
    """Return the bytes that hold two neighbours along an axis."""
    byte = Var("byte", axis.extent // 2)
    places = [_placed(at, {axis: of_var(byte) * 2 + half}) for half in range(2)]
    first, second = (_table(fusion, value, place) for place in places)
    if first is None or second is None or first[0] is None or first[0] != second[0]:
        return None
    buffer, address = first[0]
    for flipped in (False, True):
        halves = [(half ^ BIAS if flipped else half) - BIAS for half in _HALVES]
        low, high = (_above(t[1], h) for t, h in zip((first, second), halves, strict=True))
        if low is not None and low == high:
            place = (buffer, address.substitute({byte: of_var(axis)}))
            return Codes(place, axis, flipped, low)
    return None


def _above(found: Array, wanted: Array) -> int | None:
    """Return the constant integer difference of two tables; None if it varies."""
    more = np.asarray(found, np.float64) - np.asarray(wanted, np.float64)
    raised = float(more[0])
    return int(raised) if raised.is_integer() and bool(np.all(more == raised)) else None


def _placed(at: Coordinates, values: dict[Var, Index]) -> Coordinates:
    return tuple(c.substitute(values) for c in at)


def _table(fusion: Fusion, operand: Operand, at: Coordinates) -> _Table | None:
    """Return an operand's value for each byte at one address; constants have no address."""
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
    """Return what a movement reads at some coordinates, if that is one operand's element."""
    held = [
        b
        for b in pull(node, at).branches
        if not any(c.position.is_const and not c.is_true for c in b.conditions)
    ]
    if len(held) != 1 or not all(c.is_true for c in held[0].conditions):
        return None
    return held[0].operand, held[0].coordinates


def _constant(node: Node, at: Coordinates) -> _Table | None:
    """Return an element of a small tensor that is computed from constants."""
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
