"""The statements that define scales and zero points of a GEMM's operands along K."""

from __future__ import annotations

from fusec.ir.dtype import BF16
from fusec.kernel.ctext import dim_text, storage_type
from fusec.kernel.lowering.products import INDEX, integer
from fusec.kernel.nodes import (
    AUTO,
    Braced,
    Let,
    Name,
    Pointer,
    Statement,
    Type,
    call,
    operand,
)
from fusec.schedule.matmul.operands.block_scales import BIAS, BlockScales
from fusec.schedule.matmul.problem import Product

ZERO_POINTS = "ZeroPoints"
UNSCALED = Type("fusec::Unscaled")
_LARGE = {True: 128, False: 1024}
"""The number whose last mantissa bit is worth 1 (weights.cuh), for bf16 and for f16."""
_MOST_ADDED = 64
"""Most that zero points may have added to that, so that 16-bit floats are exact."""


def lift(problem: Product) -> int:
    """Return the offset of zero points if weights stay in the low bits of a large number, else 0.

    Both have 4 bits, so one subtraction removes both.
    """
    b = problem.b
    if b.zeros is None or not (b.packed and b.zeros.packed):
        return 0
    own = BIAS - b.zeros.raised
    large = _LARGE[problem.dtype == BF16]
    return large + own if abs(b.zeros.added + own) <= _MOST_ADDED else 0


def scales_of(problem: Product) -> tuple[Statement, ...]:
    """Return the statements that define the scales of both operands, if some vary along K."""
    if not problem.scales:
        return ()
    sides = (("a", problem.a, ("tile_m", "M")), ("b", problem.b, ("tile_n", "N")))
    lines: list[Statement] = []
    for name, side, place in sides:
        found = side.scales
        if found is not None:
            lines.append(_block_scales(f"{name}_scales", found, place))
        elif not problem.has_converted_weights:
            lines.append(Let(UNSCALED, f"{name}_scales", None))
        zeros = side.zeros
        if zeros is not None:
            assert side is problem.b
            held, policy = f"{name}_zero_values", [ZERO_POINTS] if zero_points(problem) else []
            lines.append(_block_scales(held, zeros.values, place))
            points = call("fusec::zero_points", held, about=policy)
            lines.append(Let(AUTO, f"{name}_zeros", points))
    return tuple(lines)


def zero_points(problem: Product) -> tuple[Statement, ...]:
    """Return the overrides of fusec::PlainZeroPoints for the zero points of B; A has none."""
    zeros = problem.b.zeros
    if zeros is None:
        return ()
    rows, groups = (2 if zeros.packed == axis else 1 for axis in ("row", "depth"))
    added = zeros.added + lift(problem)
    members = (
        (rows > 1, integer("kRowsOfByte", rows, "zero points of two rows per byte")),
        (
            groups > 1,
            integer("kGroupsOfByte", groups, "zero points of two groups per byte"),
        ),
        (zeros.flipped != 0, integer("kFlip", zeros.flipped, "mask of inverted bits")),
        (added != 0, integer("kAdded", added, "added to each zero point")),
    )
    return tuple(member for differs, member in members if differs)


def _block_scales(name: str, found: BlockScales, place: tuple[str, str]) -> Statement:
    """Return the definition of scales, starting at the first row or column of a tile.

    place: that row or column, and their number.
    """
    first, row, depth = (dim_text(d, wide=True) for d in (found.first, found.row, found.depth))
    types = (operand(found.rows), storage_type(found.buffer.dtype), INDEX)
    start = Pointer(Name(found.buffer.name), first)
    members = Braced(None, (start, *map(Name, place), row, depth))
    return Let(Type("fusec::BlockScales", types), name, members)
