"""Operands of 8-bit floats times scales that vary along K: where the scales lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusec.index.domain import Refusal
from fusec.index.movement import pull, pull_elementwise
from fusec.ir.access import Coordinates
from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import F8E4M3, F8E5M2, F32
from fusec.ir.expression import Atom, Quotient, Var, of_var
from fusec.ir.graph import Fusion, Value
from fusec.schedule.matmul_located import Located, located

PROMOTED = 128
"""Elements of K whose products are summed before a scale is applied."""


@dataclass(frozen=True)
class BlockScales:
    """The f32 scales of an operand, one for `rows` of its rows and PROMOTED elements of K.

    first: the address of the first one, in elements; row, depth: the strides to the next ones.
    """

    buffer: Value
    first: Dim
    rows: int
    row: Dim
    depth: Dim


def located_or_scaled(
    fusion: Fusion, value: Value, at: Coordinates
) -> tuple[Located | Refusal, Located | None]:
    """Return where an operand lies, and the scales of its values, or why it is not in memory."""
    found = located(fusion, value, at)
    scaled = _scaled(fusion, value, at) if isinstance(found, Refusal) else None
    return (found, None) if scaled is None else scaled


def _scaled(fusion: Fusion, value: Value, at: Coordinates) -> tuple[Located, Located] | None:
    """Return where an operand's 8-bit floats lie, and the f32 scales that they are multiplied by.

    None where it is no such product, in f32, with movement alone behind it.
    """
    while value not in fusion.input_of:
        node = fusion.producer[value]
        if node.op.name == "mul" and node.output.dtype == F32:
            return _factors(fusion, node.operands, at)
        pulled = pull(node, at) if node.op.access is not None else None
        branch = pulled.branches[0] if pulled is not None and len(pulled.branches) == 1 else None
        if branch is None or branch.conditions or not isinstance(branch.operand, Value):
            return None
        value, at = branch.operand, branch.coordinates
    return None


def _factors(
    fusion: Fusion, operands: Sequence[object], at: Coordinates
) -> tuple[Located, Located] | None:
    values = [o for o in operands if isinstance(o, Value)]
    if len(values) != 2:
        return None
    found = [located(fusion, v, pull_elementwise(v, at)) for v in values]
    for codes, scales in (found, found[::-1]):
        if isinstance(codes, Refusal) or isinstance(scales, Refusal):
            return None
        if codes[0].dtype in (F8E4M3, F8E5M2) and scales[0].dtype == F32:
            return codes, scales
    return None


def scales_of(
    found: Located | None, own: tuple[Var, ...], depth: Var
) -> BlockScales | Refusal | None:
    """Return scales as a kernel reads them, by an operand's own axis and K, or why it cannot.

    There is one for each of its rows, or of blocks of them, and for each PROMOTED elements of K.
    """
    if found is None:
        return None
    buffer, address = found
    axes = [a for a in own if a.extent != 1]
    strides: dict[Var, tuple[int, Dim]] = {}
    for atom, stride in address.terms:
        axis, rows = _counted(atom)
        known = (axis == depth and rows == PROMOTED) or axes == [axis]
        if axis is None or not known or axis in strides:
            because = f"`{buffer.name}` has not one scale for each {PROMOTED} elements of K"
            return Refusal("operand", because)
        strides[axis] = (rows, stride)
    rows, row = strides.get(axes[0], (1, dim(0))) if axes else (1, dim(0))
    _, deep = strides.get(depth, (PROMOTED, dim(0)))
    return BlockScales(buffer, address.constant, rows, row, deep)


def _counted(atom: Atom) -> tuple[Var | None, int]:
    """Return the axis that an atom counts, and how many neighbours of it as one."""
    if isinstance(atom, Var):
        return atom, 1
    if isinstance(atom, Quotient) and atom.divisor.is_const:
        for axis in atom.inner.variables:
            if atom.inner == of_var(axis):
                return axis, atom.divisor.value
    return None, 0
