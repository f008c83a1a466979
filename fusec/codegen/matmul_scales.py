"""The lines of a matrix product that define scales and zero points of its operands along K."""

from __future__ import annotations

from fusec.ir.dtype import BF16
from fusec.kernel.ctext import dim_text, storage_type
from fusec.schedule.matmul_block_scales import BIAS, BlockScales
from fusec.schedule.matmul_choice import MatmulParameters
from fusec.schedule.matmul_problem import Product

_LARGE = {True: 128, False: 1024}
"""The number whose last bit is worth 1 (weights.cuh): of bf16, and of f16."""
_MOST_ADDED = 64
"""What zero points may have added besides, so that halves are exact."""


def lift(problem: Product) -> int:
    """Return what is added to zero points where weights remain last bits of a large number, else 0.

    Both have 4 bits: one subtraction then takes both off.
    """
    b = problem.b
    if b.zeros is None or not (b.packed and b.zeros.packed):
        return 0
    own = BIAS - b.zeros.raised
    large = _LARGE[problem.dtype == BF16]
    return large + own if abs(b.zeros.added + own) <= _MOST_ADDED else 0


def scales_of(problem: Product) -> tuple[str, ...]:
    """Return the lines that define the scales of both operands, where some vary along K."""
    if not problem.scales:
        return ()
    sides = (("a", problem.a, "tile_m, M"), ("b", problem.b, "tile_n, N"))
    lines: list[str] = []
    for name, operand, place in sides:
        found = operand.scales
        if found is not None:
            kind, values = _block_scales(found, place)
            lines.append(f"const {kind} {name}_scales = {values};")
        elif not problem.has_converted_weights:
            lines.append(f"const fusec::Unscaled {name}_scales;")
        zeros = operand.zeros
        if zeros is not None:
            kind, values = _block_scales(zeros.values, place)
            halved = [2 if zeros.packed == axis else 1 for axis in ("row", "depth")]
            added = zeros.added + lift(problem)
            how = f"{halved[0]}, {halved[1]}, {zeros.flipped}, {added}"
            held = f"{name}_zero_values"
            lines.append(f"const {kind} {held} = {values};")
            lines.append(f"const auto {name}_zeros = fusec::zero_points<{how}>({held});")
    return tuple(lines)


def _block_scales(found: BlockScales, place: str) -> tuple[str, str]:
    """Return the type of scales and its members, from the first row or column of a tile on."""
    numbers = (dim_text(d, wide=True).at_least(12) for d in (found.first, found.row, found.depth))
    first, row, depth = map(str, numbers)
    kind = f"fusec::BlockScales<{found.rows}, {storage_type(found.buffer.dtype)}, Index>"
    start = found.buffer.name if found.first == 0 else f"{found.buffer.name} + {first}"
    return kind, f"{{{start}, {place}, {row}, {depth}}}"


def scaled_by(problem: Product, p: MatmulParameters) -> str:
    """Return the scales of wgmma's rows and columns as further arguments of the loop."""
    if p.converted:
        scales = "fusec::Unscaled{}" if problem.b.scales is None else "b_scales"
        return f", {scales}, " + ("fusec::Unscaled{}" if problem.b.zeros is None else "b_zeros")
    if not problem.scales:
        return ""
    return ", b_scales, a_scales" if p.swapped else ", a_scales, b_scales"
