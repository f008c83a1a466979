"""The frozen view that the reduction templates read."""

from __future__ import annotations

from dataclasses import dataclass

from fusec.codegen.row_tiles import RowTile
from fusec.codegen.views import KernelView
from fusec.kernel.accumulators import Accumulator
from fusec.kernel.arrays import SharedArray
from fusec.kernel.nodes import (
    THREAD_X,
    THREAD_Y,
    Element,
    Expression,
    Name,
    Pointer,
    Statement,
    Type,
    Unary,
    call,
)
from fusec.kernel.phases import Phase

SPLIT = Name("split")
"""The number of a block among those that share a result."""


@dataclass(frozen=True)
class Partial:
    """A reduction whose partial results pass through a workspace.

    name: the pointer to them; element: a thread's part combined with that of one block. stored: the
    type in which memory holds them; layout: the name of the device type that tells how a bulk copy
    combines them, empty where none does.
    """

    part: Accumulator
    workspace: str
    name: str
    stored: Type
    layout: str = ""

    @property
    def element(self) -> Expression:
        """Return a thread's part combined with that of one block."""
        place = SPLIT * "width" if self.part.array else SPLIT
        return self.part.combined(Element(Name(self.name), place))

    @property
    def in_turn(self) -> Expression:
        """Return a thread's part combined with those of the blocks before."""
        return self.part.joined(Unary("*", Name(self.name)))

    def taken(self, *, last_turn: bool) -> Expression:
        """Return the parts that bulk copies have combined, of which memory then has none left.

        last_turn: combined with a thread's own part.
        """
        first = Pointer(Name(self.name), THREAD_X * "kVec" if self.part.array else THREAD_Y)
        take = "fusec::combine_last" if last_turn else "fusec::take_combined"
        return call(take, first, self.part.part, about=(self.layout,))


@dataclass(frozen=True, kw_only=True)
class ReductionView(KernelView):
    """One sweep over the reduced axes, then the results.

    rows, columns: extents, of the loop and of the vectors (inner: results x reduced,
    outer: reduced x results); sweep: the accumulation; named: the declarations of what it
    comes to; results: what is computed and stored from that; fan: of how many blocks one combines
    the partial results; in_bulk: whether bulk copies combine them in memory; turns: whether blocks
    combine theirs one after the other; block_results: how many a block has;
    at_once: whether all vectors of a thread are loaded together; split: the block's number among
    those that share a result; first_row: of a thread that takes columns; arrived: the counters of
    the blocks that have left their partial results; shifted: where the first vector of a row
    begins, if they are; ends: the declarations of a thread's elements beside them; tile: the rows
    that a block takes in turns, if it does; shared: their arrays.
    across: whether vectors of columns are read wherever they begin; ahead:
    how many vectors of a row that blocks share are loaded before the first of them is used.
    """

    index_type: Type
    threads_x: int
    threads_y: int
    vector_width: int
    at_once: bool
    unrolled: int
    splits: int
    fan: int
    in_bulk: bool
    turns: bool
    block_results: Expression
    split: Expression
    first_row: Expression
    rows: Expression
    columns: Expression
    sweep: Phase
    named: tuple[Statement, ...]
    results: Phase
    partials: tuple[Partial, ...]
    arrived: str
    shifted: Expression | None
    ends: tuple[Statement, ...]
    tile: RowTile | None
    shared: tuple[SharedArray, ...]
    across: bool
    ahead: int
