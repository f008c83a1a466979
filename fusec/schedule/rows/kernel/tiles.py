"""Tiles of rows in shared memory, which the threads of a block process together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from fusec.dataclasses import dataclass, replace
from fusec.ir.dim import dim
from fusec.ir.expression import Var, of_var
from fusec.kernel.arrays import SharedArray
from fusec.kernel.ctext import identifier, storage_type
from fusec.kernel.facts import mentions
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.phases import Phase
from fusec.kernel.lowering.stores import StorePlan
from fusec.kernel.names import camel
from fusec.kernel.nodes import Assign, Evaluate, Name, Pointer, Statement, call
from fusec.schedule.rows.domain import PhasedPlan
from fusec.schedule.rows.parameters import RowsParameters
from fusec.schedule.rows.problem import RowsProblem
from fusec.schedule.rows.tiles import COPY, TiledLoad, TiledStore, tiled_in
from fusec.segment.protocol import Refusal

R = TypeVar("R", bound=RowsParameters)

FIRST, ROWS = Name("first_row"), Name("tile_rows")


@dataclass(frozen=True)
class RowTile:
    """The rows of a block in shared memory.

    rows: how many; loads: the copies into the tile; stores: those of computed rows to memory;
    shared: the arrays; uses_row: whether a row's global index is needed, not only its index in the
    tile.
    """

    rows: int
    loads: tuple[Statement, ...]
    stores: tuple[Statement, ...]
    shared: tuple[SharedArray, ...]
    uses_row: bool = True

    def read_by(self, phases: Iterable[Phase]) -> RowTile:
        """Return the same for phases, which may need only a row's index in the tile."""
        return replace(self, uses_row=mentions((line for p in phases for line in p.lines), "row"))


def slot_of(rows: int) -> Var:
    """Return the variable of a row's index in its tile."""
    return Var("slot", dim(rows))


def tile_of(
    emitter: Emitter, plan: PhasedPlan[RowsProblem, R], plans: tuple[StorePlan, ...]
) -> tuple[RowTile | None, tuple[StorePlan, ...]]:
    """Return the tile whose rows a block stages, if it does, and the stores into it.

    The emitter reads tiled loads from there.
    """
    rows = plan.parameters.tile_rows
    if not rows:
        return None, plans
    tiles = tiled_in(plan.problem, plan.lowering, plan.phases, plan.loops)
    assert not isinstance(tiles, Refusal), tiles
    _, chunk, lane = plan.loops
    column = of_var(chunk) * lane.extent + of_var(lane)
    brought, left = list[Statement](), list[Statement]()
    shared: list[SharedArray] = []
    found, offset = plans, 0
    for each, size in tiles.sizes(rows):
        loaded = isinstance(each, TiledLoad)
        source = each.instance.name if loaded else each.value.name
        dtype = each.instance.dtype if loaded else each.value.dtype
        name = emitter.names.fresh(f"{source}_tile", "tile")
        place = emitter.names.fresh(f"k{camel(name)}", "offset")
        shared.append(SharedArray(name, storage_type(dtype), place, offset, vectors=False))
        offset += size
        at = of_var(slot_of(rows)) * each.pitch + column
        if loaded:
            brought.append(_load(each, name, rows))
            emitter.tiles[each.instance] = (name, at + each.skip)
        else:
            lies, leave = _leave(each, name, found, rows)
            brought.append(lies)
            left.append(leave)
            found = tuple(
                replace(p, address=at, buffer=name) if p.output.value is each.value else p
                for p in found
            )
    return RowTile(rows, tuple(brought), tuple(left), tuple(shared)), found


def _load(load: TiledLoad, tile: str, rows: int) -> Statement:
    """Return the statement that loads a tile."""
    first = FIRST if load.column_stride else FIRST * load.pitch
    run = Pointer(Name(identifier(load.instance.name)), first + load.start if load.start else first)
    if load.column_stride:
        about = "kThreads", "kTileRows", load.columns, load.pitch, load.wide
        return Evaluate(
            call("fusec::load_tile_transposed", tile, run, load.column_stride, ROWS, about=about)
        )
    count, spare = ROWS * load.pitch, load.pitch - load.columns - load.skip
    if spare:
        count = count - spare if spare > 0 else count + -spare
    about = "kThreads", load.elements(rows)
    return Assign(Name(tile), call("fusec::load_tile_rows", tile, run, count, about=about))


def _leave(
    store: TiledStore, tile: str, plans: tuple[StorePlan, ...], rows: int
) -> tuple[Statement, Statement]:
    """Return the statement that aligns a tile like its destination, and the one that stores it."""
    (plan,) = (p for p in plans if p.output.value is store.value)
    run = Pointer(Name(identifier(plan.buffer)), FIRST * store.pitch)
    shift = call("fusec::shift_of", run, about=(COPY // store.value.dtype.size,))
    about = "kThreads", store.elements(rows)
    leave = call("fusec::store_tile_rows", run, tile, ROWS * store.pitch, about=about)
    return Assign(Name(tile), shift, "+="), Evaluate(leave)
