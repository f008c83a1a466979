"""Graphs of equal blocks: three of the blocks are searched, and the others are segmented alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import Unsupported
from fusec.ir.graph import Fusion, Node, Operand, Value
from fusec.ops.names import fresh_name
from fusec.segment.blocks import Blocks, find_blocks
from fusec.segment.canonical import as_defined, canonical
from fusec.segment.cheap import find_copied
from fusec.segment.resume import Resume, Seed, resume_without
from fusec.segment.segmented import Decision, SegmentedFusion

LARGE = 512
"""Number of nodes up to which a graph is searched as a whole."""

Search = Callable[[Fusion], SegmentedFusion]
Continue = Callable[[Fusion, Resume], SegmentedFusion]


def segment_blocks(fusion: Fusion, search: Search, resume: Continue) -> SegmentedFusion | None:
    """Return the segments of a large fusion of equal blocks, or None if it must be searched whole.

    search: of a fusion with three of the blocks; resume: of the whole one, from known segments.
    """
    if len(fusion.nodes) <= LARGE or not _is_plain(fusion):
        return None
    blocks = find_blocks(fusion)
    small = None if blocks is None else without_blocks(fusion, blocks)
    if blocks is None or small is None:
        return None
    try:
        expanded = _Expansion(fusion, blocks, search(small)).made()
        return None if expanded is None else resume(*expanded)
    except Unsupported:
        return None


def _is_plain(fusion: Fusion) -> bool:
    """Return whether no pins or schedules name single values, and no inputs are written."""
    named = fusion.pins or fusion.schedules or fusion.shardings or fusion.phases
    return not (named or fusion.mesh or fusion.effects.writers or fusion.boundaries == "explicit")


def without_blocks(fusion: Fusion, blocks: Blocks) -> Fusion | None:
    """Return the fusion with the first two blocks and the last one.

    None if a node outside the blocks reads from the others.
    """
    last = blocks.count - 2
    dropped = {n: k for row in blocks.rows for k, n in enumerate(row) if 2 <= k <= last}
    stand_in = {
        v: w
        for row in blocks.rows
        for old, new in ((row[last], row[1]),)
        if old is not None and new is not None
        for v, w in zip(old.outputs, new.outputs, strict=True)
    }
    kept: list[Node] = []
    for node in fusion.nodes:
        if node in dropped:
            continue
        made = [fusion.producer.get(v) for v in node.inputs]
        if any(n in dropped and dropped[n] != last for n in made):
            return None
        if any(n in dropped for n in made):
            operands = tuple(stand_in.get(o, o) if isinstance(o, Value) else o
                             for o in node.operands)  # fmt: skip
            node = replace(node, operands=operands)
        kept.append(node)
    outputs = tuple(o for o in fusion.outputs if fusion.producer.get(o.value) not in dropped)
    read = {v for n in kept for v in n.inputs} | {o.value for o in outputs}
    inputs = tuple(i for i in fusion.inputs if i.value in read)
    return replace(fusion, inputs=inputs, nodes=tuple(kept), outputs=outputs)


Key = tuple[int, int]
"""A node of a block: its row, or the row from which it was created, and its number among those."""


@dataclass(frozen=True)
class _Cloned:
    """A block that was not searched: its nodes, and their names by the searched block's."""

    nodes: list[Node]
    names: Mapping[str, str]
    values: Mapping[Value, Value]


class _Expansion:
    """Inserts the blocks that were not searched."""

    def __init__(self, fusion: Fusion, blocks: Blocks, found: SegmentedFusion) -> None:
        self.fusion = fusion
        self.blocks = blocks
        self.found = found
        self.last = blocks.count - 1
        self.block: dict[str, int] = {}
        self.key: dict[str, Key] = {}
        self.named: dict[tuple[Key, int], Node] = {}
        made: dict[tuple[int, int], int] = {}
        for node in found.fusion.nodes:
            name = node.output.name
            place = blocks.place.get(name)
            number = 0
            if place is None:
                place = blocks.place.get(node.origin)
                if place is None:
                    continue
                number = made[place] = made.get(place, 0) + 1
            self.key[name], self.block[name] = (place[0], number), place[1]
            self.named[self.key[name], place[1]] = node
        self.names = fusion.names | found.fusion.names

    def made(self) -> tuple[Fusion, Resume] | None:
        """Return the redefined whole fusion and its segments; None if they cannot be derived."""
        own = [n for n in self.found.fusion.nodes if self.block.get(n.output.name) == 1]
        clones: list[_Cloned] = []
        for block in range(2, self.last):
            clone = self._clone(own, block, clones)
            if clone is None:
                return None
            clones.append(clone)
        latest = clones[-1].values
        nodes = [n for c in clones for n in c.nodes]
        for node in self.found.fusion.nodes:
            block = self.block.get(node.output.name)
            if block not in (0, 1) and any(v in latest for v in node.inputs):
                operands = tuple(latest.get(o, o) if isinstance(o, Value) else o
                                 for o in node.operands)  # fmt: skip
                node = replace(node, operands=operands)
            nodes.append(node)
        nodes = [*self._scalars(nodes), *nodes]
        as_defined_ = self.found.fusion.as_defined
        whole = replace(self.fusion, nodes=tuple(nodes), as_defined=as_defined_)
        if any(o.value not in whole.producer and o.value not in whole.input_of
               for o in whole.outputs):  # fmt: skip
            return None
        whole = as_defined(canonical(whole), self.fusion)
        uncopied = self.found.uncopied
        cloned = (c.names[n] for n in uncopied for c in clones if n in c.names)
        seeds = tuple(self._seeds(clones))
        return whole, Resume(seeds, self._decisions(), uncopied.union(cloned))

    def _scalars(self, nodes: Iterable[Node]) -> list[Node]:
        """Return the scalar nodes that the other blocks read and that no searched block has."""
        made = {v for n in nodes for v in n.outputs}
        left = [v for n in nodes for v in n.inputs if v not in made]
        found: list[Node] = []
        while left:
            value = left.pop()
            node = self.fusion.producer.get(value)
            if value not in made and node is not None:
                made.update(node.outputs)
                found.append(node)
                left.extend(node.inputs)
        return found

    def _clone(self, own: list[Node], block: int, before: list[_Cloned]) -> _Cloned | None:
        """Return copies of the searched inner block's nodes for another block."""
        values: dict[Value, Value] = {}
        names: dict[str, str] = {}
        inputs = {row[1]: row[block] for row in self.blocks.inputs if row[1] is not None}
        nodes: list[Node] = []
        for node in own:
            row, number = self.key[node.output.name]
            original = self.blocks.rows[row][block]
            assert original is not None
            for k, value in enumerate(node.outputs):
                if number:
                    name = fresh_name(self.names, f"{original.output.name}_{node.op.name}")
                    values[value] = Value(name, value.type)
                else:
                    own_value = original.outputs[k]
                    is_same = own_value.type == value.type
                    values[value] = own_value if is_same else Value(own_value.name, value.type)
            names[node.output.name] = values[node.output].name
        for node in own:
            operands: list[Operand] = []
            for operand in node.operands:
                if not isinstance(operand, Value):
                    operands.append(operand)
                    continue
                found = values.get(operand) or inputs.get(operand)
                found = found or self._of_block_before(operand, before)
                if found is None:
                    return None
                operands.append(found)
            outputs = tuple(values[v] for v in node.outputs)
            origin = self.blocks.rows[self.key[node.output.name][0]][block]
            assert origin is not None
            origin_name = origin.output.name if self.key[node.output.name][1] else ""
            nodes.append(
                replace(node, operands=tuple(operands), outputs=outputs, span=origin.span,
                        origin=origin_name)
            )  # fmt: skip
        return _Cloned(nodes, names, values)

    def _of_block_before(self, value: Value, before: list[_Cloned]) -> Value | None:
        """Return the previous block's counterpart of the first's value; shared ones stay."""
        maker = self.found.fusion.producer.get(value)
        if maker is None or maker.output.name not in self.block:
            return value
        inner = self.named.get((self.key[maker.output.name], 1))
        if self.block[maker.output.name] != 0 or inner is None:
            return None
        result = inner.outputs[maker.outputs.index(value)]
        return before[-1].values[result] if before else result

    def _seeds(self, clones: list[_Cloned]) -> Iterable[Seed]:
        """Yield the segments that were found, and those of the other blocks."""
        taken: set[str] = set()
        fusion = self.found.fusion
        copied = {n.output.name for n in find_copied(fusion) if n.output not in fusion.output_of}
        copied -= self.found.uncopied
        for seed in resume_without(self.found, ()).seeds:
            own = Seed(seed.owned - copied, seed.again - copied)
            every = self._places({self.block.get(n) for n in own.owned | own.again})
            for number, places in enumerate(every):
                mine, again = own.owned, own.again
                if number:  # nodes outside the blocks belong to one of them
                    mine = own.owned & self.block.keys()
                    again |= own.owned - mine
                owned = self._moved(mine, places, clones)
                if owned and owned.isdisjoint(taken):
                    taken |= owned
                    yield Seed(owned, self._moved(again, places, clones))

    def _places(self, blocks: Collection[int | None]) -> list[Mapping[int, int]]:
        """Return the blocks into which a segment of some blocks is copied, including itself.

        A segment of all three searched blocks, such as a kernel that does not depend on blocks, is
        copied into three blocks at a time, and separately into each block that remains.
        """
        last, inner = self.last, range(2, self.last)
        same = {0: 0, 1: 1, last: last}
        if 1 not in blocks:
            return [same]
        if 0 in blocks and last in blocks:
            whole = len(inner) // 3 * 3
            threes = [{0: k, 1: k + 1, last: k + 2} for k in inner[:whole:3]]
            return [same, *threes, *({1: k} for k in inner[whole:])]
        if last in blocks:
            return [{1: last - 1, last: last}]
        if 0 in blocks:
            return [same, *({0: k - 1, 1: k} for k in inner)]
        return [same, *({1: k} for k in inner)]

    def _moved(
        self, names: Iterable[str], places: Mapping[int, int], clones: list[_Cloned]
    ) -> frozenset[str]:
        """Return the names of the corresponding nodes in other blocks; those of no block stay."""
        found: set[str] = set()
        for name in names:
            if name not in self.block:
                found.add(name)
                continue
            place = places.get(self.block[name])
            inner = self.named.get((self.key[name], 1))
            if place == self.block[name]:
                found.add(name)
            elif place is not None and inner is not None:
                at = inner.output.name
                found.add(at if place == 1 else clones[place - 2].names[at])
        return frozenset(found)

    def _decisions(self) -> tuple[Decision, ...]:
        count, size = self.blocks.count, len(self.blocks.rows)
        because = f"{count} equal blocks of {size} operations: three of them are searched"
        first = next(n for row in self.blocks.rows for n in row if n is not None)
        kept = resume_without(self.found, ()).decisions
        return (Decision("repeat", (first.output.name,), because), *kept)
