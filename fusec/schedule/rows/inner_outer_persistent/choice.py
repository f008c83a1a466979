"""Chooses the shape of a row kernel with column accumulators by registers and bytes in flight."""

from __future__ import annotations

import math
from typing import ClassVar

from fusec.dataclasses import dataclass, replace
from fusec.index.access import Facts
from fusec.ir.graph import Node
from fusec.schedule.blocks import VECTOR_WIDTH, BlockParameters
from fusec.schedule.common import needs_wide_index
from fusec.schedule.grid_methods import COLUMN_METHODS
from fusec.schedule.rows.domain import vector_width
from fusec.schedule.rows.inner_outer_persistent.split import Split
from fusec.schedule.rows.inner_outer_persistent.work import Work, work_of
from fusec.schedule.space import (
    COUNTS,
    POWERS,
    THREADS,
    Field,
    power_above,
    power_below,
)
from fusec.segment.protocol import Refusal
from fusec.target import Target

REGISTERS = 168
"""Registers per thread beyond which too few warps are left to hide latencies."""
OWN_REGISTERS = 44
"""Registers for addresses, loop variables and the values of one vector being computed."""
WARPS = 16
"""Warps per SM that hide each other's instruction latency."""
STAYS = (
    ("values", "registers"),
    ("vectors", "registers"),
    ("memory", "registers"),
    ("memory", "ring"),
)
"""Where column constants and rows are kept, from the fastest to the fewest registers."""
EQUAL = 0.035
"""The relative difference of costs that is not significant."""
OVERLAPPING = COLUMN_METHODS["overlap"].capability
"""The least compute capability for a kernel that starts before the previous one has ended (PTX
griddepcontrol)."""
FINISH_THREADS = 256
"""Threads per block of a finish kernel."""


@dataclass(frozen=True, kw_only=True)
class InnerOuterParameters(BlockParameters):
    """The schedule parameters of a row kernel with column accumulators.

    chunks: vectors of a row per thread; tiles: blocks that share a row (1 if rows are reduced);
    range_rows: rows of a range.
    """

    chunks: int
    tiles: int
    ranges: int = 1
    range_rows: int = 0
    blocks: int = 0
    stages: int = 0
    constants: str
    row: str
    grid_reduce: str

    @property
    def elements(self) -> int:
        """Return the elements of a row per thread."""
        return self.chunks * self.vector_width

    free: ClassVar = (
        VECTOR_WIDTH,
        Field("threads_x", THREADS, "threads per row"),
        Field("threads_y", POWERS, "rows at a time"),
        Field(
            "ranges", COUNTS, "ranges of rows in each group, each with its own partial column sums"
        ),
        Field("blocks", range(1, 33), "blocks per SM"),
        Field("stages", (0, 2, 3, 4, 5, 6), "rows in the shared-memory ring; 0: no ring"),
        Field(
            "constants",
            ("values", "vectors", "memory"),
            "where tensors that depend on the column only are kept: converted (`values`), "
            "as loaded (`vectors`), or in global `memory`",
        ),
        Field("row", ("registers", "ring"), "where a row is kept between phases"),
        Field(
            "grid_reduce",
            tuple(COLUMN_METHODS),
            "how the column sums of the ranges are added (`docs/grid-reduce.md`)",
        ),
    )


@dataclass(frozen=True)
class FinishShape:
    """How a finish kernel adds the partial rows of one column set.

    ranges: partial rows of each group; threads_x: columns of a block; threads_y: partial rows that
    are added in parallel.
    """

    column_set: int
    ranges: int
    threads_x: int
    threads_y: int


@dataclass(frozen=True)
class FinishParameters:
    """The parameters of a finish kernel: threads per block, and the shape for each column set."""

    threads: int
    shapes: tuple[FinishShape, ...]

    def seconds(self, target: Target) -> float:
        """Return the seconds in which threads add the partial rows after their first."""
        further = max(((s.ranges - 1) // s.threads_y for s in self.shapes), default=0)
        return target.cost.grid_reduce.part_seconds * further


def default_parameters(split: Split, target: Target) -> InnerOuterParameters | Refusal:
    """Return the parameters of the main kernel, or why no shape of it fits in registers."""
    width = widest(split)
    work, vectors = work_of(split, width), -(-split.bands.columns.value // width)
    method = "overlap" if target.capability >= OVERLAPPING else "kernel"
    wide, best = needs_wide_index(split.main)[0], dict[InnerOuterParameters, float]()
    for constants, row in STAYS:
        for x, y, chunks, tiles in _candidates(split, vectors):
            shape = InnerOuterParameters(
                vector_width=width, threads_x=x, threads_y=y, chunks=chunks, tiles=tiles,
                constants=constants, row=row, grid_reduce=method, wide_index=wide,
            )  # fmt: skip
            shape = _resident(split, work, shape, target)
            if shape is not None:
                best.setdefault(shape, _row_cycles(split, work, shape))
        if best:
            break
    if not best:
        return Refusal("registers", "a row and its column accumulators do not fit in a block")
    shape = min(best, key=lambda p: best[p])
    ranges, rows = _ranges(split, work, shape, target)
    return replace(shape, ranges=ranges, range_rows=rows)


def widest(split: Split) -> int:
    return vector_width(split.main, split.domain, split.bands, Facts(split.main.hints))


def _candidates(split: Split, vectors: int) -> list[tuple[int, int, int, int]]:
    """Return threads per row, rows at a time, vectors per thread, and blocks per row."""
    if not split.row_sums:
        threads = min(32, power_above(vectors))
        tiles = -(-vectors // threads)
        return [(threads, 256 // threads, 1, tiles), (threads, 128 // threads, 1, tiles)]
    if vectors <= 32:
        threads = max(4, power_above(vectors))
        return [(threads, 128 // threads, 1, 1)]
    found: dict[tuple[int, int, int, int], None] = {}
    for chunks in range(1, 9):
        threads = -(-vectors // (32 * chunks)) * 32
        if 64 <= threads <= 1024:
            found[(threads, 1, chunks, 1)] = None
    return list(found)


def _resident(
    split: Split, work: Work, shape: InnerOuterParameters, target: Target
) -> InnerOuterParameters | None:
    """Return the shape with as many blocks per SM as it needs and fit; None if none fits."""
    needed = registers(split, work, shape)
    warps = shape.threads // 32
    blocks = 0
    while blocks < 8 and needed <= register_limit(warps * (blocks + 1), target):
        blocks += 1
    if not blocks or needed > REGISTERS:
        return None
    blocks = min(blocks, target.threads // shape.threads)
    memory, latency = _memory_cycles(work, split, target), _latency(split, work, shape)
    blocks = max(1, min(blocks, math.ceil(3 * latency * shape.tiles / (memory * shape.threads_y))))
    slot = sum(i.dtype.size for i in work.ring) * shape.threads * shape.elements
    stages, blocks = _stages(slot, blocks, target)
    if shape.row == "ring" and not stages:
        return None
    return replace(shape, blocks=blocks, stages=stages)


def register_limit(warps: int, target: Target) -> int:
    """Return the registers per thread with which that many warps fit on an SM."""
    # Each quarter of an SM has its own registers.
    return target.registers // 4 // (32 * -(-warps // 4)) // 8 * 8


def _instructions(split: Split, work: Work, elements: int) -> float:
    """Return the approximate instructions of a thread for one row."""
    columns = frozenset(split.bands.reduced)
    homes = split.domain.homes
    busy = [
        n
        for n in split.main.nodes
        if n.op.family == "pointwise"
        and not n.op.converts
        and n.output in homes
        and homes[n.output].variables & columns
    ]
    sums = len(split.row_sums) + len(split.column_nodes)
    each = 2 * len(work.ring) + sum(max(1.0, n.op.cost.flops) for n in busy) + sums / 2
    return 60 + each * elements


def _latency(split: Split, work: Work, shape: InnerOuterParameters) -> float:
    """Return the approximate cycles of one block for its concurrent rows, alone on an SM."""
    barriers = 500 if shape.threads_x > 32 else 300
    return barriers + 2 * _instructions(split, work, shape.elements)


def _memory_cycles(work: Work, split: Split, target: Target) -> float:
    """Return the approximate cycles in which an SM's share of the bandwidth moves one row."""
    row = sum(i.dtype.size for i in (*work.ring, *work.kept))
    row += sum(o.value.dtype.size for o in split.main.outputs)
    return max(1.0, row * split.bands.columns.value / target.cost.rows.bytes_per_cycle)


def _row_cycles(split: Split, work: Work, shape: InnerOuterParameters) -> float:
    """Return the approximate cycles of an SM per row, bound by latency or by instruction issue."""
    waiting = _latency(split, work, shape) * shape.tiles / (shape.blocks * shape.threads_y)
    warps = shape.threads_x * shape.tiles / 32
    issuing = warps * _instructions(split, work, shape.elements) / 4
    idle = max(0.0, WARPS - shape.threads * shape.blocks / 32) / (2 * WARPS)
    return max(waiting, issuing) * (1 + idle)


def registers(split: Split, work: Work, p: InnerOuterParameters) -> int:
    """Return the estimated registers per thread, in multiples of 8."""
    words = sum(_words(n) for n in split.column_nodes)
    if p.constants == "values":
        words += sum(max(1, i.dtype.compute.size // 4) for i in work.constants)
    total = OWN_REGISTERS + words * p.elements
    if p.constants == "vectors":
        total += sum(i.dtype.size for i in work.vectors) * p.elements // 4
    stays = work.kept if p.row == "ring" else (*work.ring, *work.kept)
    total += sum(i.dtype.size for i in stays) * p.elements // 4
    return -(-total // 8) * 8


def _words(node: Node) -> int:
    return max(1, node.output.dtype.compute.size // 4)


def _stages(slot: int, blocks: int, target: Target) -> tuple[int, int]:
    """Return the stages of the ring of rows, and the blocks per SM that they allow."""
    if not slot:
        return 0, blocks
    room = target.shared - (8 << 10)
    while blocks > 1 and 2 * slot * blocks > room:
        blocks -= 1
    if 2 * slot > room:
        return 0, blocks
    wanted = 1 + -(-target.cost.rows.bytes_in_flight // (slot * blocks))
    return max(2, min(wanted, 6, room // (slot * blocks))), blocks


def _ranges(
    split: Split, work: Work, shape: InnerOuterParameters, target: Target
) -> tuple[int, int]:
    """Return the ranges of a group and their rows: the split that minimizes the busiest SM's work.

    Among nearly equal splits, the one with the fewest ranges, and so the fewest partial sums.
    """
    height, groups = split.bands.height.value, split.bands.groups.value
    row = max(1, sum(i.dtype.size for i in (*work.ring, *work.kept)))
    partial = sum(4 * _words(n) for n in split.column_nodes)
    overhead = 2 * partial / row + 4  # in rows: a partial is written and read; the pipeline fills
    step = shape.threads_y
    found: list[tuple[float, int, int, int]] = []
    most = max(1, 2 * shape.blocks * target.sms // (groups * shape.tiles) + 1)
    for wanted in range(1, min(most, max(1, height // (4 * step))) + 1):
        rows = -(-height // (wanted * step)) * step
        ranges = -(-height // rows)
        per_sm = -(-ranges * groups * shape.tiles // target.sms)
        idle = 1 + target.cost.rows.missing_blocks_penalty * max(0.0, 1 - per_sm / shape.blocks)
        found.append((per_sm * (rows + overhead) * idle, per_sm * rows, ranges, rows))
    least, load, _, _ = min(found)
    return next(
        (ranges, rows)
        for cost, own, ranges, rows in found
        if cost <= least * (1 + EQUAL) and own <= load
    )


def finish_of(split: Split, ranges: int) -> FinishParameters:
    """Return the finish kernel's parameters; `ranges` are those of the smallest set's groups."""
    shapes: list[FinishShape] = []
    for number, each in reversed(list(enumerate(split.sets))):  # the longest sums begin first
        if each.finish.outputs:
            total = ranges * split.bands.groups.value // each.bands.groups.value
            # Eight consecutive additions hide the latency of their loads; 8 columns are a sector.
            rows = min(FINISH_THREADS // 8, power_below(total // 8))
            shapes.append(FinishShape(number, total, FINISH_THREADS // rows, rows))
    return FinishParameters(FINISH_THREADS, tuple(shapes))
