"""Equal blocks of a graph, as the layers of a model: each reads what the one before it makes.

A row is a node with its counterparts in the other blocks. Rows are found by walking along operands
and users from nodes that look alike, in all blocks at once: every operand is the counterpart in the
same block or in the one before, an input of each block's own, or a value that all blocks read. The
first and the last block may differ from the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fusec.ir.graph import Const, Fusion, Node, Value
from fusec.ir.structure import constant_kind, input_kind

LEAST_BLOCKS = 5
"""Blocks that are worth it: the first, the last, and one between them are searched."""
LEAST_ROWS = 8
"""Nodes of a block."""
ROUNDS = 4
"""Nodes around one, along a path, that look alike wherever it is a counterpart."""
MOST_STARTS = 12
"""Sets of nodes from which rows are looked for."""

Row = tuple[Node | None, ...]
"""The counterparts of a node, by block; None in the first or last one where there is none."""


@dataclass(frozen=True)
class Blocks:
    """Equal blocks: their nodes and their own inputs, by block."""

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
    """Return the blocks with most nodes that a fusion repeats, or None."""
    labels = _labels(fusion)
    found = (_Rows(fusion, labels).grown(nodes) for nodes in _starts(fusion, labels))
    blocks = [b for b in found if b is not None and len(b.rows) >= LEAST_ROWS]
    return max(blocks, key=lambda b: len(b.rows) * b.count, default=None)


def _labels(fusion: Fusion) -> dict[Node, int]:
    """Return a number for what each node is by itself."""
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


def _starts(fusion: Fusion, labels: Mapping[Node, int]) -> list[list[Node]]:
    """Return sets of nodes with surroundings that look alike, those of contractions first."""
    around: dict[Node, int] = dict(labels)
    producer = fusion.producer
    for _ in range(ROUNDS):
        numbers: dict[object, int] = {}
        now: dict[Node, int] = {}
        for node in fusion.nodes:
            made = (producer.get(v) for v in node.inputs)
            before = tuple(-1 if n is None else around[n] for n in made)
            after = tuple(
                sorted(around[u] for v in node.outputs for u in fusion.users.get(v, ()))
            )
            now[node] = numbers.setdefault((around[node], before, after), len(numbers))
        around = now
    alike: dict[int, list[Node]] = {}
    for node in fusion.nodes:
        alike.setdefault(around[node], []).append(node)
    large = [nodes for nodes in alike.values() if len(nodes) >= LEAST_BLOCKS]
    large.sort(key=lambda nodes: (nodes[0].op.family != "contraction", -len(nodes)))
    return large[:MOST_STARTS]


class _Rows:
    """Rows on their way, with the place of each node that stands in one."""

    def __init__(self, fusion: Fusion, labels: Mapping[Node, int]) -> None:
        self.fusion = fusion
        self.labels = labels
        self.rows: list[Row] = []
        self.place: dict[Node, tuple[int, int]] = {}
        self.inputs: dict[tuple[Value | None, ...], None] = {}

    def grown(self, start: Sequence[Node]) -> Blocks | None:
        """Return the blocks around nodes of which each is to stand in one; None if they differ."""
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
        producer, entries = self.fusion.producer, self.fusion.input_of
        if values[0] in entries:
            kind = input_kind(entries[values[0]])
            alike = [v in entries and input_kind(entries[v]) == kind for v in values]
            first, last = (
                v if v in entries and input_kind(entries[v]) == kind else None for v in ends
            )
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
        final = self.fusion.output_of
        kinds = {
            tuple(v in final and (final[v].alias, final[v].stride_order) for v in n.outputs)
            for n in row[1:-1]
            if n is not None
        }
        return len(kinds) == 1

    def _follow_users(self, row: Row) -> None:
        """Add the rows of the nodes that read a row, where it is clear which correspond."""
        first = row[1]
        assert first is not None
        for k in range(len(first.outputs)):
            users = [{} if n is None else self._users(n.outputs[k]) for n in row]
            for kind, alone in users[1].items():
                nodes = [u.get(kind) for u in users]
                inner = [n for n in nodes[1:-1] if n is not None and n not in self.place]
                if alone is not None and len(set(inner)) == len(row) - 2:
                    self._add_with_ends(inner, (nodes[0], nodes[-1]))

    def _users(self, value: Value) -> dict[object, Node | None]:
        """Return the users of a value by what they are and where they read it; None if several."""
        found: dict[object, Node | None] = {}
        for user in self.fusion.users.get(value, ()):
            places = tuple(k for k, o in enumerate(user.operands) if o is value)
            kind = self.labels[user], places
            found[kind] = None if kind in found else user
        return found


def _operand(node: Node | None, k: int) -> Value | None:
    operand = None if node is None else node.operands[k]
    return operand if isinstance(operand, Value) else None
