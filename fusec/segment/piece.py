"""A group of nodes during a search."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.ir.graph import Node, Value


@dataclass(frozen=True)
class Fragment:
    """Nodes for a new piece: the nodes that it owns, and the ones that it recomputes."""

    owned: frozenset[Node]
    again: frozenset[Node]


class Piece:
    """A group of nodes during a search; it dies when it is merged into another.

    nodes: those that it owns. members: these, and the copies that it computes for itself. leaves:
    the values that it reads. made: results of its own nodes that others read or that are outputs.
    first: the position of its first node, which orders pieces. structure: a number that pieces of
    the same structure share; `boundary`: the values that connect it to others. owned: its nodes,
    including those without any needed result; again: nodes of others that it recomputes although
    the graph does not copy them. fixed: it is not merged; pinned: because a pin fixes it; only: the
    only scheduler to call, if any. host: its group at the host level.
    """

    __slots__ = (
        "after",
        "again",
        "alive",
        "before",
        "boundary",
        "first",
        "fixed",
        "host",
        "into",
        "leaves",
        "made",
        "members",
        "nodes",
        "only",
        "owned",
        "pinned",
        "rank",
        "sets",
        "structure",
    )  # fmt: skip

    def __init__(self, nodes: set[Node], members: set[Node], leaves: dict[Value, None]) -> None:
        """Take its nodes and the values that it reads; edges and ranks are set later."""
        self.nodes = nodes
        self.owned = nodes
        self.again: frozenset[Node] = frozenset()
        self.only: str | None = None
        self.members = members
        self.leaves = leaves
        self.made: list[Value] = []
        self.before: dict[Piece, None] = {}
        self.after: dict[Piece, None] = {}
        self.first = 0
        self.host = 0
        self.rank = 0
        self.alive = True
        self.fixed = False
        self.pinned = False
        self.sets = any(n.op.ends_segment for n in nodes)
        self.into: Piece | None = None
        self.structure: int | None = None
        self.boundary: tuple[Value, ...] = ()

    def __lt__(self, other: Piece) -> bool:
        return (self.host, self.first) < (other.host, other.first)


Chosen = frozenset[Piece]
