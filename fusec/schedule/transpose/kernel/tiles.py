"""The statements of transposes through tiles of lines and columns."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.ir.dim import product
from fusec.ir.expression import Var
from fusec.kernel.ctext import dim_text, identifier, storage_type
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Alias, Scope, named
from fusec.kernel.lowering.stores import emit_store, plan_stores
from fusec.kernel.names import Names, parameter_names
from fusec.kernel.nodes import Expression, Statement, Type, item
from fusec.schedule.plan import Kernel
from fusec.schedule.transpose.family import TransposePlan
from fusec.schedule.transpose.loads import matched, read_lowering, tiled_loads, write_lowering
from fusec.schedule.transpose.problem import Crossing


@dataclass(frozen=True)
class TileLoad:
    """A tile in shared memory: array, element type, and the load of a vector along lines.

    read, taken: the arrays of a thread's vectors along lines, and along columns; at: the index of
    one.
    """

    name: str
    type: Type
    load: Expression
    read: str
    taken: str
    at: str


@dataclass(frozen=True, kw_only=True)
class TransposeNodes:
    """Tiles of lines by columns.

    lines, columns: extents; setup: statements once per block; read: statements before the tile
    loads of one column; write: the stores of one vector of columns of a line.
    """

    lines: Expression
    columns: Expression
    setup: tuple[Statement, ...]
    read: tuple[Statement, ...]
    tiles: tuple[TileLoad, ...]
    write: tuple[Statement, ...]


def nodes_of(plan: TransposePlan, kernel: Kernel) -> TransposeNodes:
    """Return the statements of a transpose kernel."""
    names = parameter_names(kernel.argument_names)
    reader, tiles, read = _reader(plan, names)
    write, setup = _writer(plan, names, tiles)
    return TransposeNodes(
        lines=dim_text(plan.problem.line.extent),
        columns=dim_text(plan.problem.column.extent),
        setup=(*reader.take(0, "kernel"), *reader.take(0, "batch"), *setup),
        read=read,
        tiles=tiles,
        write=write,
    )


def _scopes(crossing: Crossing, outer: Var, chunk: Var, lane: Var) -> tuple[Scope, ...]:
    batch = Var("batch", product(a.extent for a in crossing.others))
    return (
        Scope("kernel", frozenset(), per_phase=False),
        Scope("batch", frozenset({batch}), per_phase=False),
        Scope("vector", frozenset({outer, chunk})),
        Scope("lane", frozenset({lane})),
    )


def _reader(
    plan: TransposePlan, names: Names
) -> tuple[Emitter, tuple[TileLoad, ...], tuple[Statement, ...]]:
    """Return the tiles and how they are loaded, lane by lane along the lines."""
    p, crossing = plan.parameters, plan.problem
    lowering, (column, chunk, lane) = read_lowering(crossing, p.read_width)
    for output in plan.fusion.outputs:
        lowering.at_home(output.value)
    emitter = Emitter(
        _scopes(crossing, column, chunk, lane), names, Facts(plan.fusion.hints),
        lane=lane if p.read_width > 1 else None, width=p.read_width,
        aliases={chunk: Alias("line", p.read_width)}, wide=p.wide_index, width_name="kReadVec",
        symbols=named(lines=crossing.line.extent, columns=crossing.column.extent),
    )  # fmt: skip
    tiles: list[TileLoad] = []
    for load in tiled_loads(lowering, {chunk: p.read_width, lane: 1}, column):
        text = emitter.load_vector(load, 0)
        name = names.fresh(f"{identifier(load.name)}_tile", "tile")
        held = [names.fresh(f"{name}_{word}", word) for word in ("lines", "columns", "at")]
        tiles.append(TileLoad(name, storage_type(load.dtype), text, *held))
    return emitter, tuple(tiles), emitter.take(0, "vector")


def _writer(
    plan: TransposePlan,
    names: Names,
    tiles: tuple[TileLoad, ...],
) -> tuple[tuple[Statement, ...], tuple[Statement, ...]]:
    """Return the statements of one vector of columns."""
    p, crossing = plan.parameters, plan.problem
    lowering, (line, chunk, lane) = write_lowering(crossing, p.write_width)
    emitter = Emitter(
        _scopes(crossing, line, chunk, lane), names, Facts(plan.fusion.hints),
        lane=lane if p.write_width > 1 else None, width=p.write_width,
        aliases={chunk: Alias("column", p.write_width)}, wide=p.wide_index, width_name="kWriteVec",
        symbols=named(columns=crossing.column.extent, lines=crossing.line.extent),
        stored_under="line >= lines",
    )  # fmt: skip
    plans = plan_stores(lowering, plan.fusion.outputs, emitter.store_kind)
    reads = read_lowering(crossing, p.read_width)
    for output in plan.fusion.outputs:
        reads[0].at_home(output.value)
    pairs = matched(crossing, reads, (lowering, (line, chunk, lane)))
    assert pairs is not None
    for tile, (_, load) in zip(tiles, pairs, strict=True):
        emitter.cached[load] = item(tile.taken, "i", emitter.element_of_vector)
    emitter.count(s.instance for s in plans)
    for store in plans:
        emit_store(emitter, store, 0)
    return emitter.statements(0), (*emitter.take(0, "kernel"), *emitter.take(0, "batch"))
