"""A fusion for an exact search: nodes and values as bits, and their least costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fusec.ir.graph import Fusion, Node, Output, Value
from fusec.properties import cached_property
from fusec.segment.cheap import find_copied, is_injective
from fusec.segment.floor import Floor
from fusec.segment.segmented import extract
from fusec.segment.views import may_be_view, rearranges

THOROUGH = 12
"""Nodes up to which every value may be stored between segments; above, only the useful ones."""


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Space:
    """Nodes with a tensor result, in order; scalars are computed wherever they are needed.

    Values that may be stored between segments are `storable`: in small fusions all; in larger ones
    not those that are cheap to recompute, and of elementwise chains only the smaller end.
    """

    def __init__(self, fusion: Fusion, thorough: bool | None = None) -> None:
        """Take a fusion as the search partitions it: in canonical order, hazards resolved."""
        self.fusion = fusion
        self.nodes = tuple(n for n in fusion.nodes if not all(v.is_scalar for v in n.outputs))
        self.number = {n: k for k, n in enumerate(self.nodes)}
        inputs = tuple(i.value for i in fusion.inputs if not i.value.is_scalar)
        made = tuple(v for n in self.nodes for v in n.outputs)
        self.inputs = inputs
        self.values = (*made, *inputs)
        self.id = {v: k for k, v in enumerate(self.values)}
        self.made = (1 << len(made)) - 1
        self.maker = tuple(self.number[fusion.producer[v]] for v in made)
        self.results = tuple(self._mask(n.outputs) for n in self.nodes)
        self.reads = tuple(self._mask(self._tensors(n)) for n in self.nodes)
        self.thorough = len(self.nodes) <= THOROUGH if thorough is None else thorough
        self.floor = Floor(fusion)
        self._kept = 0
        self._needed: dict[int, int] = {}

    def _mask(self, values: Iterable[Value]) -> int:
        mask = 0
        for value in values:
            if not value.is_scalar:
                mask |= 1 << self.id[value]
        return mask

    def _tensors(self, node: Node) -> Iterable[Value]:
        """Yield the tensors that a node reads, also through its scalars."""
        for value in node.inputs:
            maker = self.fusion.producer.get(value)
            if not value.is_scalar:
                yield value
            elif maker is not None and maker.op.family != "scalar":
                yield from self._tensors(maker)

    @cached_property
    def outputs(self) -> int:
        """Return the outputs that some segment has to store: not inputs, nor views of them."""
        effects = self.fusion.effects
        first = {v for v in self.inputs if v.name not in effects.overwritten}
        first |= {o.value for o in effects.fresh}
        found = 0
        for output in self.fusion.outputs:
            chain = self.floor.bases.get(output.value, ())
            free = output.stride_order is None and any(b in first for b in chain)
            if not free and self.floor.size(output.value):
                found |= 1 << self.id[output.value]
        return found & self.made

    @cached_property
    def once(self) -> int:
        """Return the nodes that must not be computed twice."""
        return sum(1 << k for k, n in enumerate(self.nodes) if not is_injective(n))

    @cached_property
    def above(self) -> tuple[int, ...]:
        """Return the nodes that each value depends on, its producer included."""
        found: list[int] = []
        for value, maker in enumerate(self.maker):
            assert value == len(found)
            mask = 1 << maker
            for read in bits(self.reads[maker] & self.made):
                mask |= found[read]
            found.append(mask)
        return tuple(found)

    def needed(self, values: int) -> int:
        """Return the nodes that some values need."""
        if values not in self._needed:
            mask = 0
            for value in bits(values):
                mask |= self.above[value]
            self._needed[values] = mask
        return self._needed[values]

    @property
    def storable(self) -> int:
        """Return the values that may be stored between segments."""
        return self._useful | self._kept

    def keep(self, values: Iterable[Value]) -> None:
        """Allow storing some more values."""
        self._kept |= self._mask(v for v in values if v in self.id) & self.made

    @cached_property
    def _useful(self) -> int:
        if self.thorough:
            return self.made
        copied = find_copied(self.fusion)
        keep = self._mask(v for n in self.nodes for v in n.outputs if n not in copied)
        final = self._mask(o.value for o in self.fusion.outputs)
        sets = (n for n in self.nodes if n.op.ends_segment)
        fixed = final | self._mask(v for n in sets for v in n.outputs)
        size = [self.floor.size(v) * v.dtype.size for v in self.values]
        for node in self.nodes:
            source = self._only_operand(node)
            if source is None:
                continue
            before, after = self.id[source], self.id[node.output]
            alone = [u for u in self.fusion.users[source] if u in self.number] == [node]
            if alone and size[after] <= size[before] and keep >> after & 1:
                keep &= ~(1 << before) | fixed
        for node in self.nodes:
            source = self._only_operand(node)
            if source is None:
                continue
            before, after = self.id[source], self.id[node.output]
            lies = before >= len(self.maker) or keep >> before & 1
            if lies and size[after] >= size[before]:
                keep &= ~(1 << after) | fixed
        return keep & self.made | fixed

    def _only_operand(self, node: Node) -> Value | None:
        """Return the tensor that an elementwise node of one tensor reads."""
        tensors = [v for v in dict.fromkeys(node.inputs) if not v.is_scalar]
        plain = node.op.family == "pointwise" and len(tensors) == 1 and len(node.outputs) == 1
        return tensors[0] if plain else None

    @cached_property
    def boundaries(self) -> Mapping[int, int]:
        """Return the users that must not be in the same segment as a `segment_set`."""
        found: dict[int, int] = {}
        for k, node in enumerate(self.nodes):
            if node.op.ends_segment:
                users = self.fusion.users.get(node.output, ())
                found[k] = sum(1 << self.number[u] for u in users if u in self.number)
        return found

    @cached_property
    def aliased(self) -> Mapping[int, int]:
        """Return the output that writes into each input, for inputs as values."""
        into = self.fusion.effects.into
        return {self.id[entry.value]: 1 << self.id[value] for value, entry in into.items()}

    @cached_property
    def views(self) -> int:
        """Return the nodes that may be views: a segment of only these may be free."""
        return sum(1 << k for k, n in enumerate(self.nodes) if may_be_view(n))

    @cached_property
    def roots(self) -> tuple[tuple[int, int], ...]:
        """Return for each computed value its root if it is a view, and the bytes to write."""
        found: list[tuple[int, int]] = []
        for value in self.values[: len(self.maker)]:
            least, root = self.floor.size(value) * value.dtype.size, value
            maker = self.fusion.producer.get(root)
            while maker is not None and may_be_view(maker):
                root = maker.inputs[0]
                least = min(least, self.floor.size(root) * root.dtype.size)
                maker = self.fusion.producer.get(root)
            found.append((self.id[root], least if self.id[root] < len(self.maker) else 0))
        return tuple(found)

    @cached_property
    def least(self) -> tuple[int, ...]:
        """Return for each value the least bytes of a kernel that reads any of it."""
        known: dict[Value, int] = {}
        for value in (*self.inputs, *self.values[: len(self.maker)])[::-1]:
            known[value] = self._least(value, known)
        return tuple(known[v] * v.dtype.size for v in self.values)

    def _least(self, value: Value, known: Mapping[Value, int]) -> int:
        size = self.floor.size(value)
        entry = self.fusion.input_of.get(value)
        repeats = 1
        if entry is not None:
            hints, shape = self.fusion.hints, self.floor.shape(value)
            for extent, stride in zip(shape, entry.strides, strict=True):
                repeats *= 1 if stride.evaluate(hints) else max(1, extent)
        best = size
        for user in self.fusion.users.get(value, ()):
            made = known.get(user.output, 0)
            if rearranges(user) and not user.op.copies:
                best = min(best, made)
            elif user.op.family == "indexing":
                best = min(best, self.floor.size(user.output))
            elif user.op.family == "pointwise":
                # An element that is broadcast is used by that many elements of the result.
                best = min(best, -(-made * size // max(1, self.floor.size(user.output))))
        return best // repeats

    @cached_property
    def wanted(self) -> tuple[Mapping[int, int], ...]:
        """Return the bytes of each input that each computed value needs."""
        found: list[Mapping[int, int]] = []
        for value in range(len(self.maker)):
            floor = Floor(self.fusion.with_nodes(self.fusion.nodes, [Output(self.values[value])]))
            entries = (i for i in self.fusion.inputs if not i.value.is_scalar)
            needs = {self.id[i.value]: floor.input_bytes(i) for i in entries}
            found.append({k: n for k, n in needs.items() if n})
        return tuple(found)

    def part(self, nodes: int, results: int) -> Fusion:
        """Return some nodes, with the scalars that they need, as a separate fusion."""
        chosen = [self.nodes[k] for k in bits(nodes)]
        members = set(chosen)
        stack = list(chosen)
        while stack:
            for value in stack.pop().inputs:
                maker = self.fusion.producer.get(value)
                if maker is not None and value.is_scalar and maker not in members:
                    members.add(maker)
                    stack.append(maker)
        final = frozenset(self.values[k] for k in bits(results))
        return extract(self.fusion, members, self.fusion.name, final)
