"""The rows of a block: one for each thread or line of threads, or in turns out of shared memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fusec.codegen.phases import Phase
from fusec.codegen.views import SharedArray, StorePlan
from fusec.ir.dim import dim
from fusec.ir.expression import Var, of_var
from fusec.kernel.ctext import identifier, storage_type
from fusec.kernel.emit import Emitter
from fusec.kernel.facts import mentions
from fusec.kernel.nodes import Statement
from fusec.schedule.row_tiles import COPY, Tiled, TiledLoad, TiledStore

PAST_THE_END = (
    "Rows past the end repeat the last one, so that every thread takes part in the reductions."
)


@dataclass(frozen=True)
class TurnsOfRows:
    """How a thread comes by its rows.

    begin: the lines before a row is worked on, of which the last declares it; end: those after it;
    shared: the tiles of rows.
    """

    begin: tuple[Statement, ...]
    end: tuple[Statement, ...] = ()
    shared: tuple[SharedArray, ...] = ()

    def beside(self, phases: Iterable[Phase]) -> TurnsOfRows:
        """Return the same, without the number of the row if phases need only its place."""
        lines = (line for p in phases for line in p.lines)
        named = not self.shared or mentions(lines, "row")
        return self if named else replace(self, begin=self.begin[:-1])


def slot_of(rows: int) -> Var:
    """Return the variable of a row's place in its tile."""
    return Var("slot", dim(rows))


def turns_of_rows(wide: bool, *, several: bool = True) -> TurnsOfRows:
    """Return one turn, for a row of the thread's own; several: whether a block has more than one.

    wide: whether indices have 64 bits.
    """
    kind = "fusec::i64" if wide else "int"
    if not several:
        return TurnsOfRows((f"const {kind} row = blockIdx.x;",))
    return TurnsOfRows(
        (
            f"// {PAST_THE_END}",
            f"const {kind} row_of_thread = "
            f"blockIdx.x * static_cast<{kind}>(kThreadsY) + threadIdx.y;",
            "const bool is_row = row_of_thread < rows;",
            f"const {kind} row = is_row ? row_of_thread : rows - 1;",
        )
    )


def turns_of_tile(
    emitter: Emitter,
    tiles: Tiled,
    rows: int,
    plans: tuple[StorePlan, ...],
    loops: tuple[Var, Var, Var],
) -> tuple[TurnsOfRows, tuple[StorePlan, ...]]:
    """Return the turns by which a block takes the rows of a tile, and the stores into tiles.

    The emitter reads what comes by tiles from there. loops: row, chunk and lane.
    """
    kind = "fusec::i64" if emitter.wide else "int"
    _, chunk, lane = loops
    column = of_var(chunk) * lane.extent + of_var(lane)
    brought, left = list[str](), list[str]()
    shared: list[SharedArray] = []
    found, offset = plans, 0
    for each, size in tiles.sizes(rows):
        loaded = isinstance(each, TiledLoad)
        source = each.instance.name if loaded else each.value.name
        dtype = each.instance.dtype if loaded else each.value.dtype
        name = emitter.names.fresh(f"{source}_tile", "tile")
        place = "k" + "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        place = emitter.names.fresh(place, "offset")
        shared.append(SharedArray(name, storage_type(dtype), place, offset, vectors=False))
        offset += size
        at = of_var(slot_of(rows)) * each.pitch + column
        if loaded:
            brought.append(_bring(each, name, rows))
            emitter.tiles[each.instance] = (name, at + each.skip)
        else:
            lies, leave = _leave(each, name, found, rows)
            brought.append(lies)
            left.append(leave)
            found = tuple(
                replace(p, address=at, buffer=name) if p.output.value is each.value else p
                for p in found
            )
    begin = (
        f"constexpr int kTileRows = {rows};",
        "// One bulk copy loads all rows of the block; threads read them in shared memory.",
        f"const {kind} first_row = blockIdx.x * static_cast<{kind}>(kTileRows);",
        "const int tile_rows = rows - first_row < kTileRows ? rows - first_row : kTileRows;",
        *brought,
        "fusec::rows_arrived();",
        "#pragma unroll 1",
        "for (int turn = threadIdx.y; turn < kTileRows; turn += kThreadsY) {",
        f"// {PAST_THE_END}",
        "const bool is_row = turn < tile_rows;",
        "const int slot = is_row ? turn : tile_rows - 1;",
        f"const {kind} row = first_row + slot;",
    )
    end = ("}", *(("__syncthreads();", *left) if left else ()))
    return TurnsOfRows(begin, end, tuple(shared)), found


def _bring(load: TiledLoad, name: str, rows: int) -> str:
    """Return the line that brings a tile."""
    start = f" + {load.start}" if load.start else ""
    source = identifier(load.instance.name)
    if load.apart:
        about = f"kThreads, kTileRows, {load.columns}, {load.pitch}, {load.wide}"
        run = f"{source} + first_row{start}"
        return f"fusec::bring_turned<{about}>({name}, {run}, {load.apart}, tile_rows);"
    run = f"{source} + first_row * {load.pitch}{start}"
    spare = load.pitch - load.columns - load.skip
    beside = f" - {spare}" if spare > 0 else f" + {-spare}" if spare else ""
    count = f"tile_rows * {load.pitch}{beside}"
    brought = f"fusec::bring_rows<kThreads, {load.elements(rows)}>({name}, {run}, {count})"
    return f"{name} = {brought};"


def _leave(
    store: TiledStore, name: str, plans: tuple[StorePlan, ...], rows: int
) -> tuple[str, str]:
    """Return the line that lays out a tile as its place in memory, and that which stores it."""
    (plan,) = (p for p in plans if p.output.value is store.value)
    run = f"{identifier(plan.buffer)} + first_row * {store.pitch}"
    about = f"kThreads, {store.elements(rows)}"
    return (
        f"{name} += fusec::shift_of<{COPY // store.value.dtype.size}>({run});",
        f"fusec::leave_rows<{about}>({run}, {name}, tile_rows * {store.pitch});",
    )
