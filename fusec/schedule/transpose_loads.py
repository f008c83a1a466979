"""The loops of a transpose kernel's two sides, and its loads: through a tile, or as they lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fusec.index.instances import Instance, Lowering
from fusec.ir.dim import ceildiv, dim
from fusec.ir.expression import Var, of_var

if TYPE_CHECKING:
    from fusec.schedule.transpose import Crossing


def tiled_loads(lowering: Lowering, line: Mapping[Var, int], *across: Var) -> list[Instance]:
    """Return the loads of a lowering that go through the tile.

    They have unit stride along the line, of whose variables `line` has the multiples, and are not
    the same for all columns, over which `across` run.
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


def along_columns(lowering: Lowering, line: Var, column: Var, width: int) -> list[Instance]:
    """Return the loads that run along the columns and are read by vectors wherever they begin."""
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
