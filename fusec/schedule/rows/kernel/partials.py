"""Partial results of reductions that several blocks share."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.kernel.lowering.accumulators import Accumulator
from fusec.kernel.nodes import (
    THREAD_X,
    THREAD_Y,
    Element,
    Expression,
    Name,
    Pointer,
    Type,
    Unary,
    call,
)

SPLIT = Name("split")
"""The index of a block among those that share a result."""


@dataclass(frozen=True)
class Partial:
    """A reduction whose partial results pass through a workspace.

    name: the pointer to them; element: a thread's part combined with that of one block. stored: the
    type in which memory holds them; layout: the device type that defines how a bulk copy combines
    them, empty if none does.
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
        """Return a thread's part combined with those of the previous blocks."""
        return self.part.joined(Unary("*", Name(self.name)))

    def taken(self, *, last_turn: bool) -> Expression:
        """Return the parts that bulk copies have combined, which resets them in memory.

        last_turn: combined with a thread's own part.
        """
        first = Pointer(Name(self.name), THREAD_X * "kVec" if self.part.array else THREAD_Y)
        take = "fusec::combine_last" if last_turn else "fusec::take_combined"
        return call(take, first, self.part.part, about=(self.layout,))
