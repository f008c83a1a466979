"""GEMMs with a small M: B is streamed, each of its elements read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from fusec.dataclasses import dataclass
from fusec.ir.dim import Dim, dim
from fusec.schedule.matmul.choice import LACKING, ONLY_SLICES, Factors, Lacking, MatmulParameters
from fusec.schedule.matmul.limits import ACROSS_PART, COLUMNS, PART, ROWS, WARPS, WEIGHT_PART
from fusec.schedule.matmul.operands.operand import Operand
from fusec.schedule.matmul.problem import Product
from fusec.schedule.space import COUNTS
from fusec.segment.protocol import Refusal
from fusec.target import Target

PARTS = (1, 2, 4)
"""Stages: chunks of a warp that are in flight."""
MOST_ROWS = 8
"""Most rows of A for which the kernel is compared with others."""
MOST_WEIGHTED_ROWS = 16
"""The same for converted weights, if another kernel can convert them too."""
FEWEST_ROWS = 2
"""Most rows of A for which tiles of weights have the fewest columns."""
MOST_WORDS = 104
"""Most words of loads in flight and of accumulators that a thread can hold."""
MOST_SUMS = 1024
"""Most elements of a tile, which each warp stores to shared memory."""


def no_vector(problem: Product, *, chunked: bool) -> str:
    """Return why B cannot be streamed, or an empty string if it can.

    chunked: whether contiguous runs of both operands are whole 16-byte chunks.
    """
    if problem.is_converted and not problem.has_converted_weights:
        names = " and ".join(dict.fromkeys(str(o.buffer.dtype) for o in (problem.a, problem.b)))
        return f"the streaming kernel does not convert {names} operands"
    if problem.cuts:
        return "the streaming kernel does not support groups"
    streamed = () if problem.has_converted_weights else (problem.b,)
    along = next((o for o in (problem.a, *streamed) if not _is_along_k(o)), None)
    if along is not None:
        return f"`{along.buffer.name}` is not contiguous along K"
    return "" if chunked else "the rows of an operand are not a multiple of 16 bytes"


def _is_along_k(operand: Operand) -> bool:
    return operand.k_major and operand.is_dense


@dataclass(frozen=True)
class GemvParameters(MatmulParameters):
    """The kernel for small M, which streams B: `gemv` in files."""

    kernel: ClassVar[str] = "gemv"
    tile: ClassVar[Mapping[str, int]] = {"tile_k": WARPS * PART}
    tile_columns: ClassVar[tuple[int, ...]] = COLUMNS
    most_splits: ClassVar[int] = COUNTS[-1]
    loads_chunks: ClassVar[bool] = True
    lacking: ClassVar[Mapping[str, Lacking]] = {
        **LACKING, "cluster_k": Lacking(1, "splits", ONLY_SLICES)
    }  # fmt: skip

    @classmethod
    def depth(cls, problem: Factors, rows: int) -> int:
        """Return the elements of K per step: one chunk of each warp."""
        if problem.has_converted_weights:
            return WARPS * (WEIGHT_PART if problem.is_b_k_major else ACROSS_PART)
        return super().depth(problem, rows)

    @classmethod
    def tile_of(cls, problem: Factors, rows: int) -> dict[str, Any]:
        """Return the fields that follow from the operands and the rows of a tile."""
        return {**super().tile_of(problem, rows), "converted": problem.has_converted_weights}

    @property
    def words_in_flight(self) -> int:
        """Return the operand words in flight per thread."""
        if self.converted:
            parts = self.tile_k // WARPS
            return (2 * self.tile_m + self.tile_n) * parts // WEIGHT_PART * self.stages
        return (self.tile_m + self.tile_n) * self.stages

    @property
    def accumulators(self) -> int:
        """Return the accumulators per thread: each warp has a whole tile."""
        return self.tile_m * self.tile_n // 32

    @property
    def resident(self) -> int:
        """Return the blocks per SM that the kernel is compiled for, by registers per thread."""
        held = self.words_in_flight + self.accumulators
        return next((n for n, most in ((4, 32), (3, 40)) if held <= most), 2)

    @property
    def has_stages(self) -> bool:
        """Return whether the kernel supports this number of stages."""
        return self.stages in PARTS

    def grid(self, tiles: Dim, target: Target) -> tuple[Dim, Dim, Dim]:
        """Return the blocks along each axis: those that split K of a tile along the second."""
        return tiles, dim(self.splits), dim(1)

    @property
    def part_of_k(self) -> tuple[int, int]:
        """Return the elements of K that a warp accumulates per step, and the number of warps."""
        return self.tile_k // WARPS * self.stages, WARPS

    @property
    def splitters(self) -> str:
        """Return what splits K of a tile, or an empty string if the kernel takes no such count."""
        return "blocks" if self.splits > 1 else ""


def no_gemv(p: GemvParameters, problem: Product) -> Refusal | None:
    """Return why the kernel cannot partition the GEMM this way, or None."""
    if p.converted and problem.b.packed == "row" and p.tile_n < COLUMNS[-1]:
        because = f"with {p.tile_n} packed columns, a lane would load less than a word"
        return Refusal("tile", because)
    if p.tile_m not in ROWS:
        return Refusal(
            "tile", f"kernel `gemv` does not support tile_m {p.tile_m}; it supports 8, 16, 32"
        )
    if not p.has_stages:
        return Refusal("stages", f"kernel `gemv` supports 1, 2 or 4 stages, not {p.stages}")
    if p.tile_m * p.tile_n > MOST_SUMS:
        because = f"{p.tile_m} x {p.tile_n} partial sums per warp; shared memory has {MOST_SUMS}"
        return Refusal("tile", because)
    held = p.words_in_flight + p.accumulators
    if held > MOST_WORDS:
        return Refusal(
            "stages", f"a thread would need {held} words for loads in flight and accumulators"
        )
    return None


def vector_shapes(rows: int, *, converted: bool) -> Iterator[tuple[int, int, int]]:
    """Yield rows and columns of tiles, and stages, for a number of rows of A.

    Wider tiles and more stages were never faster, from 33 to 470 MB of B (H200). For converted
    weights, registers hold a single load in flight, and with more columns the rows of A are read
    less often from L2 or L1: 8 and 16 rows took 25.1 and 25.4 us with 32 columns, 29.7 and 29.1
    with 16 (8192 x 8192 8-bit weights, H200), one row 25.4 and 24.1.
    """
    tile = next((r for r in ROWS if r >= rows), ROWS[-1])
    wider = converted and FEWEST_ROWS < rows <= ROWS[1]
    for stages in PARTS[: 1 if converted else 2]:
        yield tile, COLUMNS[wider], stages


def across_shapes(rows: int) -> Iterator[tuple[int, int, int]]:
    """Yield the same for N-major weights; a lane loads eight columns of them."""
    tile, stages = (ROWS[0], PARTS[1]) if rows <= ROWS[0] else (ROWS[1], PARTS[0])
    yield tile, COLUMNS[-1], stages
