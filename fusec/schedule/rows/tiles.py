"""Tiles of consecutive rows that are staged in shared memory: which loads and stores, and shapes.

Short rows are contiguous and unaligned: a block that loads many of them at once can use whole
vectors, and accesses to shared memory may be as narrow as the rows require.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Any

from fusec.dataclasses import dataclass
from fusec.index.instances import Instance, Lowering
from fusec.ir.dim import dim
from fusec.ir.expression import Index, Var
from fusec.ir.graph import Value
from fusec.schedule.registers import most_elements
from fusec.schedule.rows.domain import Phases
from fusec.schedule.rows.parameters import MOST_TILE_ROWS, RowsParameters
from fusec.schedule.rows.problem import RowsProblem
from fusec.schedule.space import power_above, power_below
from fusec.schedule.strides import WARP
from fusec.segment.protocol import Refusal
from fusec.segment.traffic import SECTOR

COPY = 16
"""Bytes of a copy into shared memory."""
TILE_THREADS = 256
TILE_BYTES = 43 << 10
"""Most bytes of a block's tiles: five of them fit on an SM. For f16[3505668, 35], tiles of 9, 18
and 36 KB reach 0.71, 0.94 and 0.97 of a copy on an H200, as long as a thread has several rows."""
ROW_BYTES = 1024
"""Most bytes of a row that is loaded with its neighbours: longer rows fill cache lines themselves.
"""
SHORT_BYTES = 64
"""Bytes of a row that are too few for several threads with the widest vectors."""
THREAD_ELEMENTS = 32
"""Elements of a row per thread."""
BANKS, WORD = 32, 4
ELEMENT_STEPS, ROW_STEPS, SHUFFLE_STEPS = 8, 40, 8
"""Approximate instructions that a warp issues per element, per row, and per step of combining its
parts."""
TURN_STEPS = 4
"""Instructions that an SM issues per bank access: one per scheduler."""


@dataclass(frozen=True)
class TiledLoad:
    """A load that is staged in shared memory.

    columns: elements of a row; pitch: elements between rows there and, unless transposed, in
    memory; column_stride: elements between columns if the rows are contiguous, else 0; wide: of
    those, rows that one access loads; start: the first element of the first row that is copied;
    skip: how many of these come before it.
    """

    instance: Instance
    columns: int
    pitch: int
    column_stride: int
    wide: int
    start: int
    skip: int

    def elements(self, rows: int) -> int:
        """Return the elements of a tile, in whole copies."""
        return _whole(
            rows * self.pitch + self.skip, self.instance.dtype.size, not self.column_stride
        )


@dataclass(frozen=True)
class TiledStore:
    """An output that is staged in shared memory; pitch: elements between its rows."""

    value: Value
    pitch: int

    def elements(self, rows: int) -> int:
        """Return the elements of a tile, in whole copies."""
        return _whole(rows * self.pitch, self.value.dtype.size)


def _whole(elements: int, size: int, before: bool = True) -> int:
    """Return elements rounded up to whole copies; before: including those before unaligned runs."""
    whole = COPY // size
    return -(-(elements + (whole - 1 if before else 0)) // whole) * whole


@dataclass(frozen=True)
class Tiled:
    """The loads and stores of a problem that are staged in shared memory."""

    loads: tuple[TiledLoad, ...]
    stores: tuple[TiledStore, ...]

    def bytes(self, rows: int) -> int:
        """Return the bytes of all tiles with the given number of rows."""
        return sum(size for _, size in self.sizes(rows))

    def sizes(self, rows: int) -> list[tuple[TiledLoad | TiledStore, int]]:
        """Return the tiles and the bytes of each."""
        loads = [(i, i.elements(rows) * i.instance.dtype.size) for i in self.loads]
        return [*loads, *((s, s.elements(rows) * s.value.dtype.size) for s in self.stores)]

    @property
    def is_transposed(self) -> bool:
        """Return whether some load is strided along its columns."""
        return any(i.column_stride for i in self.loads)


def tiled(problem: RowsProblem, width: int) -> Tiled | Refusal:
    """Return what is staged in shared memory with vectors of a width, or why it cannot be."""
    if not problem.inner:
        return Refusal("tile", "columns are not contiguous")
    return tiled_in(problem, *problem.loops(width))


def tiled_in(
    problem: RowsProblem, lowering: Lowering, phases: Phases, loops: tuple[Var, Var, Var]
) -> Tiled | Refusal:
    """Return which of these instances are staged in shared memory, or why they cannot be.

    Loads of elements are contiguous along rows or along columns; stores are dense.
    """
    rule, columns, (row, chunk, lane) = "tile", problem.rows.columns, loops
    if not columns.is_const:
        return Refusal(rule, "tiled rows need a static number of columns")
    loads: list[TiledLoad] = []
    for load in dict.fromkeys(i for p in phases.loads for i in _ordered(p)):
        assert load.address is not None
        if row not in load.variables or not {chunk, lane} & load.variables:
            continue
        found = _tiled_load(problem, load, (row, chunk, lane))
        if found is None:
            return Refusal(rule, f"the rows of `{load.name}` are not contiguous")
        loads.append(found)
    stores: list[TiledStore] = []
    for output in problem.fusion.outputs:
        address = lowering.address(output.value, problem.fusion.effects.strides(output.value))
        conditions = lowering.stored_where(output.value, in_loop=True)
        if not {chunk, lane} & address.variables:
            continue
        pitch = _pitch(address, (row, chunk, lane))
        if conditions or pitch is None or pitch != columns.value or address.constant != 0:
            return Refusal(rule, f"the rows of `{output.value.name}` are not contiguous")
        stores.append(TiledStore(output.value, pitch))
    if not loads:
        return Refusal(rule, "no rows are loaded")
    return Tiled(tuple(loads), tuple(stores))


def tile_width(problem: RowsProblem) -> int:
    """Return the widest vectors of rows in tiles: for transposed rows a word of elements.

    Transposed rows have no vectors in global memory, but are contiguous in shared memory.
    """
    width = problem.vectors[0]
    found = tiled(problem, width)
    if width > 1 or isinstance(found, Refusal) or not found.is_transposed:
        return width
    size = min(i.instance.dtype.size for i in found.loads)
    word = max(1, min(WORD // size, most_elements(problem.fusion)))
    return gcd(word, *(i.pitch for i in found.loads), *(s.pitch for s in found.stores))


def _ordered(loads: Iterable[Instance]) -> list[Instance]:
    return sorted(loads, key=lambda i: (i.name, str(i.address)))


def _pitch(address: Index, loops: tuple[Var, Var, Var]) -> int | None:
    """Return the elements between rows with contiguous columns, None for others."""
    row, chunk, lane = loops
    known = dict(address.terms)
    pitch = known.pop(row, dim(0))
    whole = lane.extent if chunk.extent == 1 else dim(0)
    along = known.pop(lane, dim(1)), known.pop(chunk, whole)
    beside = not known and along == (dim(1), dim(lane.extent.value))
    return pitch.value if beside and pitch.is_const and pitch.value > 0 else None


def _tiled_load(
    problem: RowsProblem, load: Instance, loops: tuple[Var, Var, Var]
) -> TiledLoad | None:
    """Return how a load is staged in shared memory, or None if it cannot be."""
    address, columns = load.address, problem.rows.columns.value
    assert address is not None
    if load.gathered or load.conditions or not address.constant.is_const:
        return None
    size, start = load.dtype.size, address.constant.value
    pitch = _pitch(address, loops)
    if pitch is not None:
        skip = start % (COPY // size)
        fits = columns <= pitch and (pitch - columns) * size < SECTOR and start >= 0
        return TiledLoad(load, columns, pitch, 0, 1, start - skip, skip) if fits else None
    row, chunk, lane = loops
    known = dict(address.terms)
    rows, width = problem.rows.rows, lane.extent.value
    column_stride = known.get(lane if width > 1 else chunk)
    if (
        column_stride is None
        or not column_stride.is_const
        or not rows.is_const
        or column_stride.value < rows.value
    ):
        return None
    along = {lane: column_stride} if width > 1 else {}
    if chunk.extent != 1:
        along[chunk] = column_stride * width
    if known != {row: dim(1), **along}:
        return None
    wide = gcd(column_stride.value, rows.value, start, COPY // size)
    return TiledLoad(load, columns, columns, column_stride.value, wide, start, 0)


def check_tile(problem: RowsProblem, p: RowsParameters, shared: int) -> Refusal | None:
    """Return why a block cannot stage its rows together in shared memory, or None.

    shared: bytes of an SM.
    """
    found = tiled(problem, p.vector_width)
    if isinstance(found, Refusal):
        return found
    rule, rows = "tile_rows", p.tile_rows
    taken = _chunks(problem.rows.columns.value, p.vector_width, p.threads_x)
    if taken > THREAD_ELEMENTS:
        return Refusal(rule, f"a thread takes at most {THREAD_ELEMENTS} elements of a row")
    if p.threads_x > WARP or rows % p.threads_y:
        because = (
            f"{rows} rows are not a multiple of the rows per block, {p.threads_x} threads each"
        )
        return Refusal(rule, because)
    if found.is_transposed and p.threads != power_below(p.threads):
        return Refusal(rule, f"{p.threads} threads cannot process columns of {rows} adjacent rows")
    sizes = [i.instance.dtype.size for i in found.loads] + [
        s.value.dtype.size for s in found.stores
    ]
    if any(rows * size % COPY for size in sizes):
        return Refusal(rule, f"tiles of {rows} rows are not aligned to {COPY} bytes")
    if found.bytes(rows) > shared:
        return Refusal(
            rule, f"{rows} rows need {found.bytes(rows)} bytes of shared memory, an SM has {shared}"
        )
    return None


def tile_bytes(problem: RowsProblem, p: RowsParameters) -> int:
    """Return the bytes of shared memory that the rows of a block need together."""
    if not p.tile_rows:
        return 0
    found = tiled(problem, p.vector_width)
    assert not isinstance(found, Refusal), found
    return found.bytes(p.tile_rows)


def tile_shape(
    problem: RowsProblem, width: int, sms: int, *, shifted: bool | None = None
) -> dict[str, Any] | None:
    """Return the fields of a block that stages rows together, or None if there is no such block.

    shifted: whether rows would be peeled; if given, tiles are used only for rows that benefit.
    """
    found = tiled(problem, width)
    if isinstance(found, Refusal):
        return None
    if shifted is not None and not _gains(problem, found, shifted=shifted):
        return None
    return _shape(problem, found, width, sms)


def _gains(problem: RowsProblem, found: Tiled, *, shifted: bool) -> bool:
    """Return whether rows, or the accesses to them, are short enough to be staged together.

    width: of vectors of a row in memory; shifted: whether these are peeled to be wide.
    """
    columns = problem.rows.columns.value
    size, width = max(i.instance.dtype.size for i in found.loads), problem.vectors[0]
    if shifted or columns * size > ROW_BYTES:
        return False
    few = bool(found.stores) and columns * size <= SHORT_BYTES
    return found.is_transposed or width * size < COPY or few


def _shape(problem: RowsProblem, found: Tiled, width: int, sms: int) -> dict[str, Any] | None:
    """Return the shape with the fewest instructions per row, or None if no threads can hold it.

    sms: of the target; each has some tiles if there are enough rows.
    """
    columns = problem.rows.columns.value
    threads = [t for t in (1, 2, 4, 8, 16, 32) if _chunks(columns, width, t) <= THREAD_ELEMENTS]
    if not threads:
        return None
    threads_x = min(threads, key=lambda t: _steps(found, columns, width, t))
    rows = power_below(max(1, TILE_BYTES // found.bytes(64) * 64))
    if found.bytes(64) > TILE_BYTES:
        rows = power_below(TILE_BYTES * 64 // found.bytes(64))
    here = max(1, problem.rows.rows.evaluate(problem.hints))
    sizes = [i.instance.dtype.size for i in found.loads]
    sizes += [s.value.dtype.size for s in found.stores]
    least = max(COPY // min(sizes), WARP // threads_x)
    rows = max(least, min(rows, MOST_TILE_ROWS, power_above(-(-here // (4 * sms)))))
    return {
        "vector_width": width,
        "threads_x": threads_x,
        "threads_y": min(TILE_THREADS // threads_x, rows),
        "tile_rows": rows,
        "wide_index": problem.wide,
    }


def _chunks(columns: int, width: int, threads: int) -> int:
    """Return the elements of a row per thread."""
    return -(-columns // (width * threads)) * width


def _steps(found: Tiled, columns: int, width: int, threads: int) -> float:
    """Return the approximate instructions that a warp issues per row."""
    taken = -(-columns // (width * threads))
    ways = sum(
        conflicts(i.pitch, i.instance.dtype.size, width, threads) for i in found.loads
    ) + sum(conflicts(s.pitch, s.value.dtype.size, width, threads) for s in found.stores)
    steps = taken * (width * ELEMENT_STEPS + TURN_STEPS * ways) + ROW_STEPS
    return (steps + SHUFFLE_STEPS * (power_above(threads).bit_length() - 1)) * threads


def conflicts(pitch: int, size: int, width: int, threads: int) -> int:
    """Return the shared memory wavefronts of a warp's access with `threads` threads per row.

    pitch: elements between rows; size: bytes of one; width: elements of an access.
    """
    access = width * size
    at_once = min(WARP, BANKS * WORD // access)
    words: set[int] = set()
    for lane in range(at_once):
        first = (lane // threads * pitch + lane % threads * width) * size
        words.update(range(first // WORD, (first + access - 1) // WORD + 1))
    banks = [w % BANKS for w in words]
    return max(banks.count(b) for b in set(banks)) * (WARP // at_once)
