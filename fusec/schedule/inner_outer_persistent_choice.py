"""Chooses the shape of a row kernel with column accumulators from its registers and bytes in flight."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusec.index.access import Facts, vector_base
from fusec.index.expression import Var
from fusec.index.instances import Instance, Lowering
from fusec.ir.graph import Node
from fusec.schedule.common import needs_wide_index
from fusec.schedule.inner_outer_persistent_split import Split, instances_under
from fusec.schedule.rows import vector_width
from fusec.segment.protocol import Refusal
from fusec.target import Target

REGISTERS = 168
"""Registers per thread, beyond which too few warps are left to hide latencies."""
OWN_REGISTERS = 40
"""Registers for addresses, loop variables and the values of one vector in the making."""
BYTES_IN_FLIGHT = 40 << 10
"""Bytes per SM that keep an H200's memory busy (about 25 KB), with some to spare."""
FINISH_THREADS = 256
"""Threads per block of a finish kernel."""
COPY_SIZES = (4, 8, 16, 32, 64)
"""Bytes of a vector that asynchronous copies can bring."""


@dataclass(frozen=True)
class InnerOuterParameters:
    """The choices of a row kernel with column accumulators.

    threads_x: threads per row; threads_y: rows at a time; chunks: vectors of a row per thread; tiles: blocks
    that share a row (1 where a row is reduced); ranges: ranges of rows in each group; range_rows: rows of
    a range; blocks: blocks per SM; stages: slots of the ring of rows in shared memory (0: no ring);
    constants: where what depends on the column alone stays: `values`, `vectors` (as loaded) or `memory`;
    row: where a row stays between phases: `registers` or `ring`.
    """

    vector_width: int
    threads_x: int
    threads_y: int
    chunks: int
    tiles: int
    ranges: int
    range_rows: int
    blocks: int
    stages: int
    constants: str
    row: str
    wide_index: bool


@dataclass(frozen=True)
class FinishShape:
    """How a finish kernel adds up the partial rows of one column set.

    ranges: partial rows of each group; threads_x: columns of a block; threads_y: partial rows side by side.
    """

    column_set: int
    ranges: int
    threads_x: int
    threads_y: int


@dataclass(frozen=True)
class FinishParameters:
    """The choices of a finish kernel: threads per block, and for each column set their shape."""

    threads: int
    shapes: tuple[FinishShape, ...]


@dataclass(frozen=True)
class Work:
    """What the main kernel does with each vector, for a vector width.

    ring: row vectors that asynchronous copies can bring; kept: other row vectors; constants: the largest
    values that depend on the column but not on the row; vectors: the loads behind them.
    """

    ring: tuple[Instance, ...]
    kept: tuple[Instance, ...]
    constants: tuple[Instance, ...]
    vectors: tuple[Instance, ...]


def roots_of(split: Split, lowering: Lowering) -> list[Instance]:
    """Return what the main kernel computes: inputs of its reductions, and outputs."""
    nodes = [n for n in split.main.nodes if n in split.domain.reduced]
    values = [n.inputs[0] for n in nodes] + [o.value for o in split.main.outputs]
    return [lowering.at_home(v) for v in values]


def work_of(split: Split, lowering: Lowering, width: int) -> Work:
    """Return the loads and the column constants of the main kernel."""
    row, chunk, lane = split.bands.variables(width)
    columns = frozenset({chunk, lane})
    roots = roots_of(split, lowering)
    ring: list[Instance] = []
    kept: list[Instance] = []
    for instance in instances_under(_inputs_too(roots)):
        if instance.kind != "load" or not instance.variables & columns:
            continue
        if row not in instance.variables or not _is_whole(split, instance, lane, width):
            continue
        copies = not instance.conditions and width * instance.dtype.size in COPY_SIZES
        (ring if copies else kept).append(instance)
    constants = _constants(_inputs_too(roots), row, columns)
    behind = [i for i in instances_under(constants) if i.kind == "load" and i.variables & columns]
    vectors = [i for i in behind if _is_whole(split, i, lane, width)]
    order = _by_name
    return Work(
        tuple(sorted(ring, key=order)),
        tuple(sorted(kept, key=order)),
        tuple(constants),
        tuple(sorted(vectors, key=order)),
    )


def _by_name(instance: Instance) -> tuple[str, str]:
    return instance.name, str(instance.address)


def _inputs_too(roots: Iterable[Instance]) -> list[Instance]:
    """Return the roots and the inputs of the reductions below them."""
    found = list(roots)
    for instance in instances_under(found):
        if instance.kind == "reduced":
            found += [o for o in instance.operands if o not in found]
    return found


def _is_whole(split: Split, load: Instance, lane: Var, width: int) -> bool:
    assert load.address is not None
    if width == 1:
        return True
    facts = Facts(split.main.hints)
    return vector_base(load.address, load.conditions, lane, width, facts) is not None


def _constants(roots: Iterable[Instance], row: Var, columns: frozenset[Var]) -> list[Instance]:
    """Return the largest instances that depend on a column and not on the row, in a fixed order."""
    found: dict[Instance, None] = {}
    seen: set[Instance] = set()
    stack = list(roots)
    while stack:
        instance = stack.pop()
        if instance in seen:
            continue
        seen.add(instance)
        fixed = row not in instance.variables and bool(instance.variables & columns)
        if fixed and instance.kind in ("load", "op", "select"):
            found[instance] = None
        elif instance.kind != "reduced":
            stack.extend(instance.operands)
    return sorted(found, key=lambda i: (i.name, str(i.address)))


@dataclass(frozen=True)
class _Shape:
    threads_x: int
    threads_y: int
    chunks: int
    tiles: int
    constants: str
    row: str
    registers: int


def choose(split: Split, target: Target) -> InnerOuterParameters | Refusal:
    """Return the parameters of the main kernel, or why no shape of it fits into the registers."""
    width = vector_width(split.main, split.domain, split.bands, Facts(split.main.hints))
    work = work_of(split, Lowering(split.main, split.domain, split.bands.bind(width)), width)
    shape = _shape(split, work, width, target)
    if shape is None:
        return Refusal("registers", "a row and its column accumulators do not fit into a block")
    threads = shape.threads_x * shape.threads_y
    blocks = max(1, min(target.registers // (threads * shape.registers), target.threads // threads))
    blocks = min(blocks, 8)
    slot = sum(width * i.dtype.size for i in work.ring) * threads * shape.chunks
    stages, blocks = _stages(slot, blocks, target)
    ranges, rows = _ranges(split, work, shape, blocks, target)
    wide, _ = needs_wide_index(split.main)
    return InnerOuterParameters(
        width, shape.threads_x, shape.threads_y, shape.chunks, shape.tiles, ranges, rows, blocks,
        stages, shape.constants, shape.row if stages else "registers", wide,
    )  # fmt: skip


def _shape(split: Split, work: Work, width: int, target: Target) -> _Shape | None:
    vectors = -(-split.bands.columns.value // width)
    if not split.row_sums:
        return _tiled(split, work, width, vectors)
    if vectors <= 64:
        threads = max(4, 1 << (vectors - 1).bit_length())
        candidates = [(1, threads)] if threads <= 32 else [(1, 64)]
    else:
        shared = [(c, -(-vectors // (32 * c)) * 32) for c in (1, 2, 3, 4, 5, 6, 8)]
        candidates = sorted((p for p in shared if p[1] <= 1024), key=lambda p: p[1] > 512)
    for constants, row in (
        ("values", "registers"), ("vectors", "registers"), ("memory", "registers"), ("memory", "ring"),
    ):  # fmt: skip
        for chunks, threads in candidates:
            rows = max(1, 128 // threads) if threads <= 32 else 1
            registers = _registers(split, work, chunks * width, constants, row)
            if registers <= min(REGISTERS, target.registers // (threads * rows)):
                return _Shape(threads, rows, chunks, 1, constants, row, registers)
    return None


def _tiled(split: Split, work: Work, width: int, vectors: int) -> _Shape | None:
    """Return the shape where no row is reduced: narrow tiles of columns, many rows at a time."""
    threads = min(32, 1 << (vectors - 1).bit_length())
    for constants in ("values", "vectors", "memory"):
        registers = _registers(split, work, width, constants, "registers")
        if registers <= REGISTERS:
            rows = (256 if registers <= 128 else 128) // threads
            tiles = -(-vectors // threads)
            return _Shape(threads, rows, 1, tiles, constants, "registers", registers)
    return None


def _registers(split: Split, work: Work, elements: int, constants: str, row: str) -> int:
    """Return an estimate of the registers per thread, in multiples of 8."""
    words = sum(_words(n) for s in split.sets for n in s.nodes)
    if constants == "values":
        words += sum(max(1, i.dtype.compute.size // 4) for i in work.constants)
    total = OWN_REGISTERS + words * elements
    if constants == "vectors":
        total += sum(i.dtype.size for i in work.vectors) * elements // 4
    stays = work.kept if row == "ring" else (*work.ring, *work.kept)
    total += sum(i.dtype.size for i in stays) * elements // 4
    return -(-total // 8) * 8


def _words(node: Node) -> int:
    return max(1, node.output.dtype.compute.size // 4)


def _stages(slot: int, blocks: int, target: Target) -> tuple[int, int]:
    """Return the slots of the ring of rows, and the blocks per SM that its shared memory leaves room for."""
    if not slot:
        return 0, blocks
    room = target.shared - (8 << 10)
    while blocks > 1 and 2 * slot * blocks > room:
        blocks -= 1
    if 2 * slot > room:
        return 0, blocks
    wanted = 1 + -(-BYTES_IN_FLIGHT // (slot * blocks))
    return max(2, min(wanted, 6, room // (slot * blocks))), blocks


def _ranges(
    split: Split, work: Work, shape: _Shape, blocks: int, target: Target
) -> tuple[int, int]:
    """Return the ranges of a group and their rows: the split that loads the busiest SM least."""
    height, groups = split.bands.height.value, split.bands.groups.value
    row = max(1, sum(i.dtype.size for i in (*work.ring, *work.kept)))
    partial = sum(4 * _words(n) for s in split.sets for n in s.nodes)
    overhead = 2 * partial / row + 4  # in rows: a partial is written and read; the pipeline fills
    step = shape.threads_y
    best: tuple[float, int, int] | None = None
    most = max(1, 2 * blocks * target.sms // (groups * shape.tiles) + 1)
    for wanted in range(1, min(most, max(1, height // (4 * step))) + 1):
        rows = -(-height // (wanted * step)) * step
        ranges = -(-height // rows)
        per_sm = -(-ranges * groups * shape.tiles // target.sms)
        idle = 1 + 0.2 * max(0.0, 1 - per_sm / blocks)
        cost = per_sm * (rows + overhead) * idle
        if best is None or cost < best[0]:
            best = (cost, ranges, rows)
    assert best is not None
    return best[1], best[2]


def choose_finish(split: Split, ranges: int) -> FinishParameters:
    """Return the parameters of the finish kernel; `ranges` are those of the smallest set's groups."""
    shapes: list[FinishShape] = []
    for number, each in reversed(list(enumerate(split.sets))):  # the longest sums begin first
        if each.finish.outputs:
            total = ranges * split.bands.groups.value // each.bands.groups.value
            # Eight additions in a row hide the latency of their loads; 8 columns are a sector.
            rows = min(FINISH_THREADS // 8, 1 << max(0, (total // 8).bit_length() - 1))
            shapes.append(FinishShape(number, total, FINISH_THREADS // rows, rows))
    return FinishParameters(FINISH_THREADS, tuple(shapes))
