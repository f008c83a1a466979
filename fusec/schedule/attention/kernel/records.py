"""What the kernels of attention are made of: graphs of scores and of results, ends of rows."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.kernel.nodes import Expression, Pointer, Statement


@dataclass(frozen=True)
class GraphNodes:
    """What happens to `width` neighbouring results of a product in a row, held in `acc`.

    The lines may use the row `m`, the first column `n`, and `batch` where there are several. Loads
    and stores run once; statements run for each i < width, where the column is `n + i`.
    stored_under: the test for rows and columns that are stored, where there are others.
    """

    width: int
    loads: tuple[Statement, ...]
    statements: tuple[Statement, ...]
    stores: tuple[Statement, ...]
    stored_under: Expression | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether results stay as they are."""
        return not (self.loads or self.statements or self.stores)


@dataclass(frozen=True)
class ScoresNodes:
    """The scores of a query, and of neighbouring keys.

    lines: what all have in common; scale: what they are to be multiplied by; graph: what becomes of
    them, in place; seen: the same where no mask says otherwise, if that differs; reads: whether
    memory is read for each query or key.
    """

    lines: tuple[Statement, ...]
    scale: Expression
    graph: GraphNodes
    seen: GraphNodes | None = None
    reads: bool = False


@dataclass(frozen=True)
class RowNodes:
    """The end of a query's row, from its largest score `top` and its sum of exponentials `total`.

    lines: what it has besides; stores: what of that is stored, where `test` holds; factor: what its
    sums are multiplied by; reads: whether memory is read for it.
    """

    lines: tuple[Statement, ...]
    stores: tuple[Statement, ...]
    test: Expression
    factor: Expression
    reads: bool


@dataclass(frozen=True)
class ElementNodes:
    """What becomes of one element: lines, and the value that they end in."""

    lines: tuple[Statement, ...]
    value: Expression


@dataclass(frozen=True)
class ResultNodes:
    """A result: the rows that it is of, its sums, the constant of their features, their graph."""

    name: str
    sums: str
    features: str
    output: GraphNodes


@dataclass(frozen=True)
class RowsNodes:
    """Where rows of an operand begin: lines before the pointer, and the pointer."""

    lines: tuple[Statement, ...]
    pointer: Pointer


@dataclass(frozen=True, kw_only=True)
class FusedNodes:
    """What every kernel of attention has.

    config: the members of its `Config`. constants: declarations of the sizes M, N and batches.
    bounds: lines that narrow `seen`.
    """

    config: tuple[Statement, ...]
    constants: tuple[Statement, ...]
    bounds: tuple[Statement, ...]
