"""A segment as a transpose kernel sees it: the axes of its tiles."""

from __future__ import annotations

from collections.abc import Mapping

from fusec.dataclasses import dataclass
from fusec.index.domain import Domain
from fusec.ir.dim import product
from fusec.ir.expression import Index, Var, delinearize, of_var
from fusec.schedule.problem import Problem


@dataclass(frozen=True, eq=False)
class Crossing(Problem):
    """A segment and the axes of its tiles: loads are contiguous in `lines`, stores in `columns`.

    The axes of each side are everywhere contiguous with each other, as if they were one. sizes:
    bytes per element of each transposed load.
    """

    domain: Domain
    lines: tuple[Var, ...]
    columns: tuple[Var, ...]
    sizes: tuple[int, ...]

    @property
    def line(self) -> Var:
        """Return the positions of all lines as one loop."""
        return Var("line", product(a.extent for a in self.lines))

    @property
    def column(self) -> Var:
        """Return the positions of all columns as one loop."""
        return Var("column", product(a.extent for a in self.columns))

    @property
    def others(self) -> tuple[Var, ...]:
        """Return the remaining axes."""
        tile = {*self.lines, *self.columns}
        return tuple(a for a in self.domain.axes if a not in tile and a.extent != 1)

    def bind(self, line: Index, column: Index) -> Mapping[Var, Index]:
        """Return the axes in loop variables: `batch` for all but the given line and column."""
        batch = of_var(Var("batch", product(a.extent for a in self.others)))
        at = delinearize(batch, (a.extent for a in self.others))
        binding = dict(zip(self.others, at, strict=True))
        for axes, place in ((self.lines, line), (self.columns, column)):
            binding |= zip(axes, delinearize(place, (a.extent for a in axes)), strict=True)
        return {**{a: of_var(a) for a in self.domain.axes if a.extent == 1}, **binding}
