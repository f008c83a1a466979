"""Compulsory traffic: the lower bound on the traffic of every segmentation of a fusion.

Every element of an input that some output depends on is read once, every output is written once. An
output that is a view costs no more than its base. Where it is hard to tell which elements are
needed, fewer are counted. The bound holds for every segmentation if the schedulers' estimates are
at least `traffic` for each segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from fusec.index.boxes import Box, union
from fusec.index.demanded import Demand, demand
from fusec.ir.dim import Shape
from fusec.ir.graph import Fusion, Input, Value
from fusec.properties import cached_property
from fusec.segment.views import may_be_view, view_of


def floor_bytes(fusion: Fusion) -> int:
    """Return a lower bound on the bytes that any segmentation moves, at hint sizes."""
    return Floor(fusion).bytes


class Floor:
    """The needed elements of each value, and a lower bound on the bytes of the outputs."""

    def __init__(self, fusion: Fusion) -> None:
        """Take the fusion; everything else is computed lazily."""
        self.fusion = fusion

    @property
    def bytes(self) -> int:
        """Return the compulsory bytes of reads and writes."""
        reads = sum(self.input_bytes(i) for i in self.fusion.inputs if not i.value.is_scalar)
        return reads + sum(self.written.values())

    @cached_property
    def demand(self) -> Demand:
        """Return the elements of each value needed for the outputs that are not views of inputs."""
        inputs = self.fusion.input_of.keys()
        results = [o.value for o in self.fusion.outputs]
        moved = [v for v in results if inputs.isdisjoint(self.bases.get(v, ()))]
        return demand(self.fusion) if moved == results else Demand(self.fusion, moved)

    def shape(self, value: Value) -> tuple[int, ...]:
        """Return a value's extents at hint sizes."""
        return self.demand.shape(value)

    def size(self, value: Value) -> int:
        """Return the number of elements of a value."""
        return 0 if value.is_scalar else prod(self.shape(value))

    @cached_property
    def bases(self) -> Mapping[Value, tuple[Value, ...]]:
        """Return, for each output that may be a view, the values that may be its base."""
        found: dict[Value, tuple[Value, ...]] = {}
        for output in self.fusion.effects.fresh:
            chain = tuple(self._chain(output.value))
            if chain:
                found[output.value] = chain
        return found

    def _chain(self, value: Value) -> Iterable[Value]:
        node, bases = self.fusion.producer.get(value), list[Value]()
        while node is not None and may_be_view(node):
            source = node.inputs[0]
            bases.append(source)
            if view_of(self.fusion, value, frozenset({source})) is not None:
                yield source
            node = self.fusion.producer.get(source)

    @cached_property
    def written(self) -> Mapping[Value, int]:
        """Return the bytes that are certainly written, by the value that causes them."""
        roots: dict[Value, int] = {}
        for output in self.fusion.outputs:
            value = output.value
            chain = self.bases.get(value, ())
            if any(v in self.fusion.input_of for v in chain) or value in self.fusion.input_of:
                continue
            least = min(self.size(v) * v.dtype.size for v in (value, *chain))
            update = self.fusion.effects.changes.get(value)
            if update is not None:
                least = min(least, self._count(update.written) * value.dtype.size)
            root = chain[-1] if chain else value
            roots[root] = max(roots.get(root, 0), least)
        return roots

    def _count(self, shape: Shape) -> int:
        return prod(e.evaluate(self.fusion.hints) for e in shape)

    def input_bytes(self, entry: Input) -> int:
        """Return the bytes of one input that are certainly read."""
        needed = self.demand.of(entry.value)
        strides = tuple(s.evaluate(self.fusion.hints) for s in entry.strides)
        repeats = prod(e for e, s in zip(needed.shape, strides, strict=True) if not s)
        distinct = prod(e for e, s in zip(needed.shape, strides, strict=True) if s)
        sure = [r for r in needed.regions if r.sure]
        dense = union(_distinct(r.box, strides) for r in sure if not r.picked)[0]
        least = max([dense, *(-(-r.count // max(1, repeats)) for r in sure if r.picked)])
        return min(least, distinct) * entry.value.dtype.size


def _distinct(box: Box, strides: tuple[int, ...]) -> Box:
    """Return the box of distinct elements of an input: one element along each expanded dim."""
    pairs = zip(box, strides, strict=True)
    return tuple((0, 1, 1) if not stride and r[1] > r[0] else r for r, stride in pairs)
