"""The views of attention kernels: graphs of scores and of results, and ends of rows."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.kernel.nodes import Expression, Pointer, Statement


@dataclass(frozen=True)
class GraphNodes:
    """The graph on `width` neighbouring results of a GEMM in a row, held in `acc`.

    The lines may use the row `m`, the first column `n`, and `batch` if there are several. Loads and
    stores run once; statements run for each i < width, where the column is `n + i`. stored_under:
    the bounds test of rows and columns, if needed.
    """

    width: int
    loads: tuple[Statement, ...]
    statements: tuple[Statement, ...]
    stores: tuple[Statement, ...]
    stored_under: Expression | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether the graph has nothing to compute or store."""
        return not (self.loads or self.statements or self.stores)


@dataclass(frozen=True)
class ScoresNodes:
    """The scores of a query, and of neighbouring keys.

    lines: statements common to all; scale: the factor of all scores; graph: the operations on them,
    in place; seen: the same without masks, if that differs; reads: whether memory is read for each
    query or key.
    """

    lines: tuple[Statement, ...]
    scale: Expression
    graph: GraphNodes
    seen: GraphNodes | None = None
    reads: bool = False


@dataclass(frozen=True)
class RowNodes:
    """The end of a query's row, from its largest score `top` and its sum of exponentials `total`.

    lines: its further statements; stores: the stores of their results, if `test` holds; factor: the
    factor of its accumulators; reads: whether memory is read for it.
    """

    lines: tuple[Statement, ...]
    stores: tuple[Statement, ...]
    test: Expression
    factor: Expression
    reads: bool


@dataclass(frozen=True)
class ElementNodes:
    """The computation of one element: lines, and the resulting value."""

    lines: tuple[Statement, ...]
    value: Expression


@dataclass(frozen=True)
class ResultNodes:
    """A result: the name of its rows, its accumulators, the constant of its features, its graph."""

    name: str
    sums: str
    features: str
    output: GraphNodes


@dataclass(frozen=True)
class RowsNodes:
    """The start of an operand's rows: lines before the pointer, and the pointer."""

    lines: tuple[Statement, ...]
    pointer: Pointer


@dataclass(frozen=True, kw_only=True)
class FusedNodes:
    """The statements that every attention kernel has.

    config: the members of its `Config`. constants: declarations of the sizes M, N and batches.
    bounds: lines that narrow `seen`.
    """

    config: tuple[Statement, ...]
    constants: tuple[Statement, ...]
    bounds: tuple[Statement, ...]
