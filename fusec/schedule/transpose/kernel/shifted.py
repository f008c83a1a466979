"""The statements of transposes through tiles with unaligned lines and columns."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.index.access import Facts
from fusec.ir.dim import product
from fusec.ir.expression import Var
from fusec.kernel.ctext import dim_text, identifier, storage_type
from fusec.kernel.lowering.across import ask_inside, load_across, place_of
from fusec.kernel.lowering.emit import Emitter
from fusec.kernel.lowering.nest import Alias, Scope, named
from fusec.kernel.lowering.phases import uses_column
from fusec.kernel.lowering.stores import plan_stores
from fusec.kernel.names import Names, parameter_names
from fusec.kernel.nodes import (
    Anywhere,
    Assign,
    Declare,
    Element,
    Evaluate,
    Expression,
    Name,
    Pointer,
    Statement,
    Type,
    call,
    item,
    vector_of,
)
from fusec.schedule.plan import Kernel
from fusec.schedule.transpose.family import TransposePlan
from fusec.schedule.transpose.loads import (
    along_columns,
    matched,
    read_lowering,
    tiled_loads,
    write_lowering,
)

ELEMENTS, RUN, AHEAD = 0, 1, 2
"""The phases of an output's elements, of the start of its run, and of prefetches."""


@dataclass(frozen=True)
class ShiftedTile:
    """A tile in shared memory: array, element type, and how elements of a tensor are copied there.

    copy_whole: copies a vector if it is within the tensor, and returns whether it is;
    copy_elements: copies those elements that are; run: a pointer to the first one; step: elements
    between columns there. pitch, first, place: the variables of the distance between columns in the
    tile, the start of its first one, and the start of a thread's vector.
    """

    name: str
    type: Type
    copy_whole: Statement
    copy_elements: Statement
    run: Anywhere
    step: Expression
    pitch: str
    first: str
    place: str


@dataclass(frozen=True, kw_only=True)
class ShiftedNodes:
    """Tiles of lines by columns, of one output.

    lines, columns: extents; setup: statements once per block; read: statements before an element of
    a tile is read; side: vectors of a line that a warp writes; line: statements before the run of a
    line, `target`; write: those of an element, which store it in the vector `value` of elements of
    `type`. arrays, ahead_line, inside, ahead: for loads that are contiguous along the columns: the
    arrays of a thread's vectors, the statements before their addresses, the tests whether they are
    within their tensors, and the loads.
    """

    side: int
    lines: Expression
    columns: Expression
    setup: tuple[Statement, ...]
    read: tuple[Statement, ...]
    tiles: tuple[ShiftedTile, ...]
    arrays: tuple[Statement, ...]
    ahead_line: tuple[Statement, ...]
    inside: tuple[Statement, ...]
    ahead: tuple[Statement, ...]
    line: tuple[Statement, ...]
    write: tuple[Statement, ...]
    type: Type
    target: Anywhere
    value: str

    @property
    def write_uses_column(self) -> bool:
        """Return whether the written values depend on the column index."""
        return uses_column(self.write)


def nodes_of(plan: TransposePlan, kernel: Kernel) -> ShiftedNodes:
    """Return the statements of a transpose kernel with peeled vectors."""
    names = parameter_names(kernel.argument_names)
    reader, tiles = _reader(plan, names)
    writer, target, value = _writer(plan, names, tiles)
    (output,) = plan.fusion.outputs
    setup = [line for e in (reader, writer) for s in ("kernel", "batch") for line in e.take(0, s)]
    return ShiftedNodes(
        side=_side(plan),
        lines=dim_text(plan.problem.line.extent),
        columns=dim_text(plan.problem.column.extent),
        setup=tuple(setup),
        read=reader.take(0, "element"),
        tiles=tiles,
        arrays=writer.take(AHEAD, "kernel"),
        ahead_line=writer.take(AHEAD, "element"),
        inside=writer.take(AHEAD, "inside"),
        ahead=writer.take(AHEAD, "ahead"),
        line=writer.take(RUN, "element"),
        write=writer.take(ELEMENTS, "element"),
        type=storage_type(output.value.dtype),
        target=Anywhere(target),
        value=value,
    )


def _side(plan: TransposePlan) -> int:
    """Return how many vectors of a line a warp writes.

    In shared memory the distance between them is 16 bytes times the pitch of the columns: if that
    is odd, eight of them have no bank conflict; else more lines, each with another start, are
    better.
    """
    p, crossing = plan.parameters, plan.problem
    lowering, (column, line, lane) = read_lowering(crossing, 1)
    for output in crossing.fusion.outputs:
        lowering.at_home(output.value)
    steps = (
        i.address.coefficient(column)
        for i in tiled_loads(lowering, {line: 1, lane: 1}, column)
        if i.address is not None
    )
    odd = all(s is not None and s.is_const and s.value % 2 for s in steps)
    return min(p.tile_columns // p.write_width, 8 if odd else 4)


def _emitter(plan: TransposePlan, names: Names, outer: Var, inner: Var, text: str) -> Emitter:
    """Return the emitter of separate elements; text: the name of the inner variable."""
    crossing = plan.problem
    batch = Var("batch", product(a.extent for a in crossing.others))
    scopes = (
        Scope("kernel", frozenset(), per_phase=False),
        Scope("batch", frozenset({batch}), per_phase=False),
        Scope("element", frozenset({outer, inner})),
    )
    return Emitter(
        (*scopes, Scope("lane", frozenset())), names, Facts(plan.fusion.hints),
        aliases={inner: Alias(text)}, wide=plan.parameters.wide_index,
        symbols=named(lines=crossing.line.extent, columns=crossing.column.extent),
        stored_under="lane / kSide >= tile_lines",
    )  # fmt: skip


def _reader(plan: TransposePlan, names: Names) -> tuple[Emitter, tuple[ShiftedTile, ...]]:
    """Return the tiles and the addresses of the elements of their columns."""
    lowering, (column, line, lane) = read_lowering(plan.problem, 1)
    for output in plan.fusion.outputs:
        lowering.at_home(output.value)
    emitter = _emitter(plan, names, column, line, "line")
    tiles: list[ShiftedTile] = []
    for load in tiled_loads(lowering, {line: 1, lane: 1}, column):
        assert load.address is not None
        step = load.address.coefficient(column)
        assert step is not None
        name = names.fresh(f"{identifier(load.name)}_tile", "tile")
        own = (names.fresh(f"{name}_{word}", word) for word in ("pitch", "first", "place"))
        to = Pointer(Name(name), Name("from") + "tile_line")
        source = place_of(emitter, plan.fusion, load, 0)
        whole, elements = (
            call(f"fusec::{function}", to, *source, about=["kReadVec"])
            for function in ("copy_vector", "copy_elements")
        )
        copies = Assign(Name("are_whole"), whole, "&="), Evaluate(elements)
        with emitter.indexed_by(load.gathered):
            run = emitter.pointer(load.name, load.address, 0)
        by = dim_text(step, wide=emitter.wide)
        tiles.append(ShiftedTile(name, storage_type(load.dtype), *copies, Anywhere(run), by, *own))
    return emitter, tuple(tiles)


def _writer(
    plan: TransposePlan, names: Names, tiles: tuple[ShiftedTile, ...]
) -> tuple[Emitter, Pointer, str]:
    """Return the emitter of an element, the pointer to a line's run, and the vector's name."""
    lowering, (line, column, lane) = write_lowering(plan.problem, 1)
    emitter = _emitter(plan, names, line, column, "column")
    (store,) = plan_stores(lowering, plan.fusion.outputs, emitter.store_kind)
    emitter.check_store(store.output.value.name, store.kind)
    assert not store.conditions, "runs of lines are stored without a test"
    reads = read_lowering(plan.problem, 1)
    reads[0].at_home(store.output.value)
    pairs = matched(plan.problem, reads, (lowering, (line, column, lane)))
    assert pairs is not None
    for tile, (_, load) in zip(tiles, pairs, strict=True):
        at = Name(tile.place) + Name("v") * tile.pitch
        emitter.cached[load] = Element(Name(tile.name), at)
    for load in along_columns(lowering, line, column, plan.parameters.write_width):
        name = names.fresh(f"{load.name}_ahead", "ahead")
        kind, vector = vector_of(storage_type(load.dtype), "kWriteVec"), item(name, "i")
        emitter.add(AHEAD, "kernel", Declare(kind, name, (Name("kWrites"),)))
        about = place_of(emitter, plan.fusion, load, AHEAD)
        emitter.add(AHEAD, "inside", ask_inside(about, "kWriteVec"))
        emitter.add(AHEAD, "ahead", Assign(vector, load_across(about, "kWriteVec")))
        emitter.cached[load] = item(vector, "v")
    emitter.count([store.instance])
    target = emitter.pointer(store.buffer, store.address, RUN)
    value = names.fresh(f"{store.output.value.name}_vec", "vec")
    element = emitter.to_storage(store.instance, store.output.value.dtype, ELEMENTS)
    emitter.add(ELEMENTS, "element", Assign(item(value, "v"), element))
    return emitter, target, value
