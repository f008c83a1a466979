"""Numbers for structures: pieces that would compile to the same kernel have equal numbers.

A piece has a number for its structure, and a list of the values that connect it to others. The
number of a union follows from the numbers of its pieces and from which of these values are equal:
in time proportional to the boundary, regardless of the size of the pieces.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from fusec.ir.graph import Node, Value
from fusec.ir.structure import input_kind, literal_kinds, selecting
from fusec.segment.groups import Groups
from fusec.segment.piece import Chosen, Piece


class Structures:
    """Interns nodes, values and pieces of one fusion."""

    def __init__(self, groups: Groups, numbers: dict[Hashable, int]) -> None:
        """Take the known numbers, of this fusion or of others with the same sizes."""
        self.groups = groups
        self._numbers = numbers
        self._nodes: dict[Node, tuple[int, tuple[Value, ...]]] = {}
        self._values: dict[Value, int] = {}
        self._selecting = selecting(groups.graph.fusion)

    def together(self, chosen: Chosen) -> int:
        """Return the structure number of the union of some pieces."""
        parts = sorted(chosen)
        for part in parts:
            if part.structure is None:
                self._name(part)
        if len(parts) == 1:
            return parts[0].structure or 0
        return self._intern(self._wiring(parts, chosen))

    def merge(self, chosen: Chosen) -> Piece:
        """Merge pieces into one, with the structure number of their union."""
        number = self.together(chosen)
        tied = dict.fromkeys(v for p in sorted(chosen) for v in p.boundary)
        piece = self.groups.merge(chosen)
        made, producer = set(piece.made), self.groups.graph.fusion.producer
        piece.structure = number
        piece.boundary = tuple(v for v in tied if v in made or producer.get(v) not in piece.nodes)
        return piece

    def _name(self, piece: Piece) -> None:
        """Number a piece by its nodes."""
        key, order = self.whole(frozenset({piece}))
        copied = {v for n in piece.members - piece.nodes for v in n.outputs}
        tied = {*piece.leaves, *piece.made, *copied}
        places = tuple(k for k, v in enumerate(order) if v in tied)
        piece.structure = self._intern(("piece", key, places))
        piece.boundary = tuple(order[k] for k in places)

    def _wiring(self, parts: list[Piece], chosen: Chosen) -> Hashable:
        number: dict[Value, int] = {}
        wires: list[Any] = ["wires"]
        groups = self.groups
        for part in parts:
            wires.append(part.structure)
            for value in part.boundary:
                wires.append(number.setdefault(value, len(number)))
            for value in part.made:
                wires.append(groups.is_read(value, chosen))
        return tuple(wires)

    def whole(self, chosen: Chosen) -> tuple[Hashable, list[Value]]:
        """Return the structure of a union of pieces, node by node, and its values in that order."""
        number: dict[Value, int] = {}
        key: list[Any] = ["whole"]
        for node in self.groups.members(chosen):
            kind, inputs = self._nodes.get(node) or self._node(node)
            key.append(kind)
            for value in inputs:
                place = number.get(value)
                if place is None:
                    number[value] = place = len(number)
                    key.append(self._leaf(value))
                key.append(place)
            for value in node.outputs:
                number[value] = len(number)
        key.append(None)
        outputs, effects = self.groups.graph.final, self.groups.graph.fusion.effects
        for value in self.groups.results(chosen):
            output = outputs.get(value)
            step = 0 if output is None else output.step
            key.append((number[value], self.groups.is_read(value, chosen), step))
            target = effects.into.get(value)
            if target is not None or (output is not None and output.stride_order):
                into = target and number.get(target.value, target.value.name)
                key.append((into, output and output.stride_order))
            placed = effects.placed(value) if output is None else output.strides
            if placed is not None:
                key.append(placed)
        return tuple(key), list(number)

    def _intern(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _node(self, node: Node) -> tuple[int, tuple[Value, ...]]:
        constants = literal_kinds(node, self._selecting)
        dims = tuple(v.type.dim for v in node.outputs)
        number = self._intern(("node", node.kind, constants, dims))
        known = self._nodes[node] = number, node.inputs
        return known

    def _leaf(self, value: Value) -> int:
        known = self._values.get(value)
        if known is None:
            fusion = self.groups.graph.fusion
            entry = fusion.input_of.get(value)
            if entry is None:
                type, strides = value.type, fusion.effects.strides(value)
                key = ("crossing", type.dtype.name, type.shape, type.dim, *strides)
            else:
                written = value.name in self.groups.graph.fusion.effects.overwritten
                key = ("input", input_kind(entry), value.type.dim, written)
            known = self._values[value] = self._intern(key)
        return known
