"""Operands of random products: ragged extents, and layouts of every alignment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusec.ir.dim import Dim, dim, product
from fusec.ir.dtype import BF16, F16, F32, F64, DType
from fusec.ir.graph import Value
from tools.entries import draw_input
from tools.sketch import Sketch

SMALL = tuple(range(1, 10))
TILES = (16, 32, 64, 64, 128, 128, 192, 256)
"""Extents of tiles, the frequent ones more than once."""
ALIGNED = (8, 16, 24, 32, 40, 48, 64, 64, 72, 96, 104, 128, 128, 136, 192, 200, 256)
"""Extents of which rows of 16-bit elements begin at 16 bytes."""
PRODUCT_DTYPES = {BF16: 55, F16: 25, F32: 15, F64: 5}


def ragged(sketch: Sketch) -> int:
    """Return an extent from 1 to 9, or one of a tile, one less or one more."""
    if sketch.chance(0.25):
        return sketch.pick(SMALL)
    return sketch.pick(TILES) + sketch.pick([-1, 0, 0, 1])


def mostly_aligned(sketch: Sketch, share: float) -> int:
    """Return an extent that is aligned with a probability, and ragged else."""
    return sketch.pick(ALIGNED) if sketch.chance(share) else ragged(sketch)


def named(sketch: Sketch, name: str, size: int) -> Dim:
    """Return an extent as a constant, or now and then as a dim of the file."""
    if sketch.chance(0.8):
        return dim(size)
    return sketch.builder.declare_dim(sketch.builder.fresh_name(name), size)


def draw_operand(
    sketch: Sketch, dtype: DType, shape: Sequence[Dim], name: str, *, dense: float = 0.0
) -> Value:
    """Declare a tensor: dense, turned, with a padded or unaligned pitch, or laid out at random.

    dense: the share of operands that are dense whatever else may be.
    """
    rank, name = len(shape), sketch.builder.fresh_name(name)
    if sketch.chance(dense):
        return sketch.builder.input(name, dtype, shape)
    kind = sketch.weighed({"dense": 55, "turned": 15, "padded": 10, "unaligned": 10, "any": 10})
    if kind == "any":
        return draw_input(sketch, name, dtype, shape)
    options: dict[str, Any] = {}
    if rank > 1 and kind == "turned":
        options["stride_order"] = sketch.rng.sample(range(rank), rank)
    elif rank > 1 and kind == "padded":
        options["contiguity"] = [True] * (rank - 2) + [False, True]
    elif rank > 1 and kind == "unaligned":
        options["strides"] = _with_pitch(shape, shape[-1] + sketch.pick([1, 2, 3, 5]))
    return sketch.builder.input(name, dtype, shape, **options)


def _with_pitch(shape: Sequence[Dim], pitch: Dim) -> list[Dim]:
    """Return the strides of a tensor whose rows are `pitch` elements apart."""
    outer = [product(shape[k + 1 : -1]) * pitch for k in range(len(shape) - 1)]
    return [*outer, dim(1)]
