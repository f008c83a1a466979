"""Scales of low-precision operands along K, and their zero points: addresses in memory."""

from __future__ import annotations

from fusec.dataclasses import dataclass, replace
from fusec.index.domain import Refusal
from fusec.ir.dim import Dim, dim
from fusec.ir.dtype import I8, U8
from fusec.ir.expression import Atom, Quotient, Var, of_var
from fusec.ir.graph import Fusion, Node, Value
from fusec.schedule.matmul.operands.addresses import ResolvedAddress

BIAS = 8
"""Subtracted from the unsigned value of four bits."""
PROMOTED = 128
"""Elements of K that are accumulated before the scale of 8-bit floats is applied."""


@dataclass(frozen=True)
class BlockScales:
    """The scales of an operand, one per `rows` of its rows and `group` elements of K (0: all of K).

    first: the address of the first one, in elements; row, depth: the strides to the next ones.
    """

    buffer: Value
    first: Dim
    rows: int
    row: Dim
    depth: Dim
    group: int


@dataclass(frozen=True)
class Zeros:
    """The zero points that are subtracted from an operand's integers before they are scaled.

    values: where they are in memory; packed: `row` or `depth`, along which a byte holds two 4-bit
    values, the first in the low bits; flipped: the inverted bits of such a value; added: the offset
    of zero points that are integers; raised: the offset of the operand's integers, which are
    converted around 0.
    """

    values: BlockScales
    packed: str = ""
    flipped: int = 0
    added: int = 0
    raised: int = 0


@dataclass(frozen=True)
class FoundZeros:
    """The same before the axes of addresses are known; packed: the axis."""

    values: ResolvedAddress
    packed: Var | None = None
    flipped: int = 0
    added: int = 0
    raised: int = 0


@dataclass(frozen=True)
class Found:
    """The address of an operand's values in memory, and of their scales.

    packed: the axis along which two 4-bit values share a byte, and whose address counts bytes;
    flipped: whether their highest bits are inverted (`Codes`); zeros: zero points that are
    subtracted first.
    """

    values: ResolvedAddress
    scales: ResolvedAddress | None = None
    packed: Var | None = None
    flipped: bool = False
    zeros: FoundZeros | None = None


def scales_of(
    found: ResolvedAddress | None, own: tuple[Var, ...], depth: Var
) -> BlockScales | Refusal | None:
    """Return scales as a kernel reads them, by an operand's own axis and K, or why it cannot.

    There is one per row, or per block of rows, and per block of elements of K.
    """
    if found is None:
        return None
    buffer, address = found
    axes = [a for a in own if a.extent != 1]
    strides: dict[Var, tuple[int, Dim]] = {}
    for atom, stride in address.terms:
        axis, count = _counted(atom)
        known = (axis == depth and count > 1) or axes == [axis]
        if axis is None or not known or axis in strides:
            because = f"`{buffer.name}` does not have one scale per block along K"
            return Refusal("operand", because)
        strides[axis] = (count, stride)
    rows, row = strides.get(axes[0], (1, dim(0))) if axes else (1, dim(0))
    group, deep = strides.get(depth, (0, dim(0)))
    return BlockScales(buffer, address.constant, rows, row, deep, group)


def zeros_of(found: FoundZeros | None, own: tuple[Var, ...], depth: Var) -> Zeros | Refusal | None:
    """Return the zero points of integers as a kernel reads them, or why it cannot."""
    if found is None:
        return None
    values = scales_of(found.values, own, depth)
    if values is None or isinstance(values, Refusal):
        return values
    packed = "" if found.packed is None else "depth" if found.packed == depth else "row"
    if packed == "depth":
        values = replace(values, group=values.group // 2)
    if packed == "row" and values.rows != 2:
        return Refusal("operand", f"`{values.buffer.name}` does not have one zero point per row")
    return Zeros(values, packed, found.flipped, found.added, found.raised)


def _counted(atom: Atom) -> tuple[Var | None, int]:
    """Return the axis that an atom indexes, and how many neighbours along it share an index."""
    if isinstance(atom, Var):
        return atom, 1
    if isinstance(atom, Quotient) and atom.divisor.is_const:
        for axis in atom.inner.variables:
            if atom.inner == of_var(axis):
                return axis, atom.divisor.value
    return None, 0


def is_byte(value: Value) -> bool:
    """Return whether a value consists of 8-bit integers."""
    return value.dtype in (I8, U8)


def multiplies(node: Node) -> bool:
    """Return whether a node multiplies two values."""
    return node.op.scales and node.op.commutative


def unrounded_operands(segment: Fusion) -> tuple[str, ...]:
    """Return the scaled 16-bit operands that GEMM kernels do not round, since they scale sums."""
    found: list[str] = []
    for product in (n for n in segment.nodes if n.op.family == "contraction"):
        for operand in product.inputs[:2]:
            node = segment.producer.get(operand)
            while node is not None and (node.op.access is not None or node.op.converts):
                node = segment.producer.get(node.inputs[0]) if node.inputs else None
            if node is not None and multiplies(node) and node.output.dtype.is_half:
                found.append(node.output.name)
    return tuple(dict.fromkeys(found))
