"""Equal blocks of a graph, such as the layers of a model: each reads results of the previous one.

A row consists of a node and its counterparts in the other blocks. Rows are found by walking along
operands and users in all blocks at once, starting from nodes that look alike. Every operand must be
the counterpart in the same or the previous block, an input or scalar of the block, or a value that
all blocks read. The first and the last block may differ from the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fusec.dataclasses import dataclass
from fusec.ir.graph import Const, Fusion, Node, Value
from fusec.ir.structure import constant_kind, input_kind
from fusec.properties import cached_property

LEAST_BLOCKS = 5
"""Minimum number of blocks that pays off: the first, the last, and one between them are
searched."""
LEAST_ROWS = 8
"""Minimum number of nodes per block."""
ROUNDS = 4
"""Radius, in edges, of the neighbourhood that must look alike for nodes to be counterparts."""
MOST_STARTS = 12
"""Maximum number of sets of nodes from which rows are grown."""

Row = tuple[Node | None, ...]
"""The counterparts of a node, by block; None in the first or last one where there is none."""


@dataclass(frozen=True)
class Blocks:
    """Equal blocks: their nodes, and each block's own inputs and scalars, by block."""

    rows: tuple[Row, ...]
    inputs: tuple[tuple[Value | None, ...], ...]

    @property
    def count(self) -> int:
        """Return the number of blocks."""
        return len(self.rows[0])

    @cached_property
    def place(self) -> Mapping[str, tuple[int, int]]:
        """Return the row and the block of each node, by its first result."""
        return {
            node.output.name: (row, block)
            for row, nodes in enumerate(self.rows)
            for block, node in enumerate(nodes)
            if node is not None
        }


def find_blocks(fusion: Fusion) -> Blocks | None:
    """Return the largest blocks that a fusion repeats, or None."""
    labels = _labels(fusion)
    around = _surroundings(fusion, labels)
    found = (_Rows(fusion, labels, around).grown(nodes) for nodes in _starts(fusion, around))
    blocks = [b for b in found if b is not None and len(b.rows) >= LEAST_ROWS]
    return max(blocks, key=lambda b: len(b.rows), default=None)


def _labels(fusion: Fusion) -> dict[Node, int]:
    """Return a number for each node that identifies its kind, constants and result types."""
    numbers: dict[object, int] = {}
    return {
        node: numbers.setdefault(
            (
                node.kind,
                tuple(constant_kind(o) if isinstance(o, Const) else None for o in node.operands),
                tuple(v.type for v in node.outputs),
            ),
            len(numbers),
        )
        for node in fusion.nodes
    }


def _surroundings(fusion: Fusion, labels: Mapping[Node, int]) -> Mapping[Node, int]:
    """Return a number for each node that identifies it together with its neighbourhood."""
    around: Mapping[Node, int] = labels
    producer = fusion.producer
    for _ in range(ROUNDS):
        numbers: dict[object, int] = {}
        now: dict[Node, int] = {}
        for node in fusion.nodes:
            made = (producer.get(v) for v in node.inputs if v.shape)
            before = tuple(-1 if n is None else around[n] for n in made)
            users = (u for v in node.outputs for u in fusion.users.get(v, ()))
            after = tuple(sorted(around[u] for u in users))
            now[node] = numbers.setdefault((around[node], before, after), len(numbers))
        around = now
    return around


def _starts(fusion: Fusion, around: Mapping[Node, int]) -> list[list[Node]]:
    """Return sets of nodes with surroundings that look alike, those of contractions first."""
    alike: dict[int, list[Node]] = {}
    for node in fusion.nodes:
        alike.setdefault(around[node], []).append(node)
    large = [nodes for nodes in alike.values() if len(nodes) >= LEAST_BLOCKS]
    large.sort(key=lambda nodes: (nodes[0].op.family != "contraction", -len(nodes)))
    return large[:MOST_STARTS]


class _Rows:
    """Rows under construction, with the row and block of each node that belongs to one."""

    def __init__(
        self, fusion: Fusion, labels: Mapping[Node, int], around: Mapping[Node, int]
    ) -> None:
        self.fusion = fusion
        self.labels = labels
        self.around = around
        self.rows: list[Row] = []
        self.place: dict[Node, tuple[int, int]] = {}
        self.inputs: dict[tuple[Value | None, ...], None] = {}

    def grown(self, start: Sequence[Node]) -> Blocks | None:
        """Return the blocks grown from one node per block; None if they differ."""
        self._add(tuple(start))
        at = 0
        while at < len(self.rows):
            row, at = self.rows[at], at + 1
            if not (self._follow_operands(row) and self._has_equal_outputs(row)):
                return None
            self._follow_users(row)
        return Blocks(tuple(self.rows), tuple(self.inputs))

    def _add(self, row: Row) -> None:
        for block, node in enumerate(row):
            if node is not None:
                self.place[node] = len(self.rows), block
        self.rows.append(row)

    def _follow_operands(self, row: Row) -> bool:
        """Return whether the operands of a row correspond; new ones become rows."""
        inner = [n for n in row[1:-1] if n is not None]
        for k, operand in enumerate(inner[0].operands):
            values = [n.operands[k] for n in inner]
            if isinstance(operand, Const) or all(v is operand for v in values):
                continue
            ends = (_operand(row[0], k), _operand(row[-1], k))
            own = tuple(v for v in values if isinstance(v, Value))
            if len(set(own)) < len(inner) or not self._correspond(own, ends):
                return False
        return True

    def _correspond(
        self, values: tuple[Value, ...], ends: tuple[Value | None, Value | None]
    ) -> bool:
        producer = self.fusion.producer
        kind = self._given(values[0])
        if kind is not None:
            alike = [self._given(v) == kind for v in values]
            first, last = (v if v is not None and self._given(v) == kind else None for v in ends)
            self.inputs[(first, *values, last)] = None
            return all(alike)
        made = [producer.get(v) for v in values]
        nodes = [n for n in made if n is not None]
        if len(nodes) < len(values):
            return False
        result = nodes[0].outputs.index(values[0])
        if any(n.outputs.index(v) != result for n, v in zip(nodes, values, strict=True)):
            return False
        places = [self.place.get(n) for n in nodes]
        if places[0] is not None:
            row, block = places[0]
            return block <= 1 and places == [(row, block + k) for k in range(len(nodes))]
        if any(p is not None for p in places) or len({self.labels[n] for n in nodes}) > 1:
            return False
        outer = (None if v is None else producer.get(v) for v in ends)
        self._add_with_ends(nodes, outer)
        return True

    def _given(self, value: Value) -> object:
        """Return the key of an input, or of a scalar outside of blocks; None for others."""
        entry = self.fusion.input_of.get(value)
        if entry is not None:
            return input_kind(entry)
        is_outside = self.fusion.producer[value] not in self.place
        return value.dtype if is_outside and not value.shape else None

    def _add_with_ends(self, nodes: Sequence[Node], outer: Iterable[Node | None]) -> None:
        label = self.labels[nodes[0]]
        first, last = (
            n if n is not None and self.labels[n] == label and n not in self.place else None
            for n in outer
        )
        taken = set(nodes)
        first, last = (None if n in taken else n for n in (first, last))
        self._add((first, *nodes, last if last is not first else None))

    def _has_equal_outputs(self, row: Row) -> bool:
        """Return whether all blocks store the same of a row."""
        final, into = self.fusion.output_of, self.fusion.effects.into
        kinds = {
            tuple(v in final and (into.get(v), final[v].stride_order) for v in n.outputs)
            for n in row[1:-1]
            if n is not None
        }
        return len(kinds) == 1

    def _follow_users(self, row: Row) -> None:
        """Add the rows of the nodes that read a row, where it is clear which correspond."""
        first = row[1]
        assert first is not None
        for k in range(len(first.outputs)):
            users = [self._users(n, k, self.around) for n in row]
            outer = [self._users(n, k, self.labels) for n in (row[0], row[-1])]
            for kind, alone in users[1].items():
                inner = [u.get(kind) for u in users[1:-1]]
                nodes = [n for n in inner if n is not None and n not in self.place]
                if alone is not None and len(set(nodes)) == len(inner):
                    ends = [u.get((self.labels[alone], kind[1])) for u in outer]
                    self._add_with_ends(nodes, ends)

    def _users(
        self, node: Node | None, result: int, numbers: Mapping[Node, int]
    ) -> dict[tuple[int, tuple[int, ...]], Node | None]:
        """Return the users of a result by their numbers and where they read it; None if several."""
        found: dict[tuple[int, tuple[int, ...]], Node | None] = {}
        value = None if node is None else node.outputs[result]
        for user in () if value is None else self.fusion.users.get(value, ()):
            places = tuple(k for k, o in enumerate(user.operands) if o is value)
            kind = numbers[user], places
            found[kind] = None if kind in found else user
        return found


def _operand(node: Node | None, k: int) -> Value | None:
    operand = None if node is None else node.operands[k]
    return operand if isinstance(operand, Value) else None
