"""The loops of a transpose kernel's two sides, and its loads: through a tile, or directly."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.index.instances import Instance, Lowering
from fusec.ir.dim import ceildiv, dim
from fusec.ir.expression import Index, Var, index, of_var
from fusec.schedule.transpose.problem import Crossing

Lowered = tuple[Lowering, tuple[Var, Var, Var]]
"""A side of a kernel: the lowering of its outputs, and its loops."""
PLACES = 7
"""Positions of a tile at which the addresses of both sides are compared."""


def tiled_loads(lowering: Lowering, line: Mapping[Var, int], *across: Var) -> list[Instance]:
    """Return the loads of a lowering that go through the tile.

    They have unit stride along the line, given by the multiples of its variables in `line`, and
    vary with the columns, over which `across` run.
    """
    steps = {v: by for v, by in line.items() if v.extent != 1}
    found = {
        i
        for i in lowering.made.values()
        if i.kind == "load"
        and i.address is not None
        and all(i.address.coefficient(v) == by for v, by in steps.items())
        and any(i.address.coefficient(a) != 0 for a in across)
    }
    return sorted(found, key=lambda i: (i.name, str(i.address)))


def matched(
    crossing: Crossing, reads: Lowered, writes: Lowered
) -> list[tuple[Instance, Instance]] | None:
    """Return each tiled load in the loops of the reads and in those of the writes.

    None if these have other loads: a quotient or a remainder may hide from one of them that an
    address has unit stride along the line.
    """
    (read, (column, chunk, lane)), (write, (line, *across)) = reads, writes
    width = lane.extent.value
    left = tiled_loads(write, {line: 1}, *across)
    pairs: list[tuple[Instance, Instance]] = []
    for load in tiled_loads(read, {chunk: width, lane: 1}, column):
        same = (w for w in left if w.name == load.name and _agree(crossing, load, w, reads, writes))
        found = next(same, None)
        if found is None:
            return None
        left.remove(found)
        pairs.append((load, found))
    return None if left else pairs


def _agree(
    crossing: Crossing,
    read: Instance,
    write: Instance,
    reads: Lowered,
    writes: Lowered,
) -> bool:
    """Return whether two loads of a tensor read the same elements at some positions of the tile."""
    assert read.address is not None
    assert write.address is not None
    hints = crossing.hints
    extents = [v.extent.evaluate(hints) for v in (crossing.line, crossing.column)]
    for step in range(PLACES):
        line, column = (step * prime % n for prime, n in zip((7919, 104729), extents, strict=True))
        first = _place(read.address, reads[1], (column, line), step, hints)
        other = _place(write.address, writes[1], (line, column), step, hints)
        if first != other:
            return False
    return True


def _place(
    address: Index,
    loops: tuple[Var, Var, Var],
    at: tuple[int, int],
    step: int,
    sizes: Mapping[str, int],
) -> object:
    """Return an address at a position of the outer loop and of the inner one's vectors."""
    outer, chunk, lane = loops
    width = lane.extent.value
    others = {v: index(step % v.extent.evaluate(sizes)) for v in address.variables}
    own = {outer: index(at[0]), chunk: index(at[1] // width), lane: index(at[1] % width)}
    place = address.substitute({**others, **own})
    return place.constant.evaluate(sizes) if place.is_const else str(place)


def along_columns(lowering: Lowering, line: Var, column: Var, width: int) -> list[Instance]:
    """Return the loads that are contiguous along columns and read with vectors at any alignment."""
    found = {
        i
        for i in lowering.made.values()
        if i.kind == "load"
        and i.address is not None
        and not (i.conditions or i.gathered)
        and i.address.coefficient(column) == 1
        and i.address.coefficient(line) not in (None, 1)
        and i.dtype.size * width >= 4
    }
    return sorted(found, key=lambda i: (i.name, str(i.address)))


def write_lowering(crossing: Crossing, width: int) -> tuple[Lowering, tuple[Var, Var, Var]]:
    """Return the lowering of the stores: variables line, chunk and lane (of columns)."""
    line = Var("line", crossing.line.extent)
    chunk = Var("chunk", ceildiv(crossing.column.extent, width))
    lane = Var("v", dim(width))
    binding = crossing.bind(of_var(line), of_var(chunk) * width + of_var(lane))
    return Lowering(crossing.fusion, crossing.domain, binding), (line, chunk, lane)


def read_lowering(crossing: Crossing, width: int) -> tuple[Lowering, tuple[Var, Var, Var]]:
    """Return the lowering of the transposed loads: variables column, chunk and lane (of lines)."""
    column = Var("column", crossing.column.extent)
    chunk = Var("chunk", ceildiv(crossing.line.extent, width))
    lane = Var("v", dim(width))
    binding = crossing.bind(of_var(chunk) * width + of_var(lane), of_var(column))
    return Lowering(crossing.fusion, crossing.domain, binding), (column, chunk, lane)
