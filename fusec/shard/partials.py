"""The whole fusion with sums over ranks written as sums of partial sums, as ranks compute them.

Each rank rounds its partial sum to the type that is communicated, so a sum over ranks differs from
a sum on one rank. Results of ranks are compared with the fusion that this returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusec.dataclasses import dataclass, replace
from fusec.ir.dim import Shape, dim, floordiv, product
from fusec.ir.graph import Fusion, Node, Operand, Value
from fusec.ir.sharding import Mesh, Sharding
from fusec.ops.find import find_op
from fusec.shard.divided import Partition, RankSum
from fusec.shard.graph import LocalGraph

Places = Mapping[str, int]
"""A rank index along each axis of a mesh."""


@dataclass(frozen=True)
class Spelled:
    """The whole fusion with sums over ranks as partial sums.

    local: a rank's name of the value, by the name of a value here. combined: the names of the sums
    and products over ranks.
    """

    fusion: Fusion
    local: Mapping[str, str]
    combined: frozenset[str]


def with_partials(fusion: Fusion, divided: Partition) -> Spelled:
    """Return a fusion with the sums over ranks computed as in `divided`, its partition.

    Sums of integers are exact in any order and are unchanged.
    """
    mesh, sums = fusion.mesh, divided.sums
    found = {n.output.name for n in fusion.nodes if n.output.dtype.is_rounded} & sums.keys()
    if mesh is None or not found:
        return Spelled(fusion, divided.local, frozenset())
    work = _Speller(fusion, divided, mesh)
    for node in fusion.nodes:
        name = node.output.name
        work.spell(node, sums[name]) if name in found else work.keep(node)
    return work.finish()


class _Speller:
    """The partially rewritten fusion."""

    def __init__(self, fusion: Fusion, divided: Partition, mesh: Mesh) -> None:
        self.fusion, self.divided, self.mesh = fusion, divided, mesh
        self.sizes = divided.fusion.hints
        self.graph = LocalGraph()
        self.now: dict[Value, Value] = {}
        self.local: dict[Value, str] = {}
        self.combined: set[Value] = set()

    def current(self, operand: Operand) -> Operand:
        return self.now.get(operand, operand) if isinstance(operand, Value) else operand

    def keep(self, node: Node) -> None:
        """Add a node unchanged."""
        self.graph.span = node.span
        operands = [self.current(o) for o in node.operands]
        names = [v.name for v in node.outputs]
        made = self.graph.add(node.op, operands, node.attributes, names)
        self._become(node, made)
        for value, own in zip(node.outputs, made, strict=True):
            if value.name in self.divided.local:
                self.local[own] = self.divided.local[value.name]

    def spell(self, node: Node, how: RankSum) -> None:
        """Add the partial results of a node, and the nodes that combine them."""
        self.graph.span = node.span
        total = self._combined(node, how, len(how.axes), {})
        if how.bias is not None:
            total = self._biased(node, how.bias, total)
        self._become(node, (total,))

    def _become(self, node: Node, made: Sequence[Value]) -> None:
        self.now.update(zip(node.outputs, made, strict=True))

    def _combined(self, node: Node, how: RankSum, count: int, places: Places) -> Value:
        """Return the result over the first `count` axes, at given coordinates along the others."""
        if not count:
            return self._partial(node, how, places)
        axis, name = how.axes[count - 1], node.output.name
        parts = [
            self._combined(node, how, count - 1, {**places, axis: place})
            for place in range(self.mesh.extent(axis))
        ]
        rows = [self.graph.apply("reshape", p, new_shape=(dim(1), *p.shape)) for p in parts]
        (stacked,) = self.graph.add(find_op("cat"), rows, {"dim": 0}, [f"{name}_partials"])
        total = self.graph.apply(how.reduction, stacked, name, dims=(0,), dtype=None)
        self.local[total] = how.results[count - 1]
        self.combined.add(total)
        return total

    def _partial(self, node: Node, how: RankSum, places: Places) -> Value:
        operands = list[Operand]()
        for k, (operand, sharding) in enumerate(zip(node.operands, how.operands, strict=True)):
            if k == how.bias:
                continue
            own = self.current(operand)
            if sharding is not None and isinstance(own, Value):
                own = self._part(own, sharding, places)
            operands.append(own)
        name = node.output.name
        (value, *_) = self.graph.add(node.op, operands, node.attributes, [f"{name}_partial"])
        if name in self.divided.local:
            self.local[value] = self.divided.local[name]
        return value

    def _part(self, value: Value, sharding: Sharding, places: Places) -> Value:
        """Return the part of a whole tensor at given coordinates along axes of the mesh."""
        for k, parts in enumerate(sharding.dims):
            if not any(p.axis in places for p in parts):
                continue
            shape, factors = value.shape, [p.parts.evaluate(self.sizes) for p in parts]
            rest = floordiv(shape[k], product(map(dim, factors)))
            split: Shape = (*shape[:k], *map(dim, factors), rest, *shape[k + 1 :])
            starts, ends = [dim(0)] * len(split), list(split)
            for number, part in enumerate(parts, k):
                if part.axis is not None and part.axis in places:
                    starts[number] = dim(places[part.axis])
                    ends[number] = starts[number] + 1
            own = product(ends[n] - starts[n] for n in range(k, k + len(parts) + 1))
            value = self.graph.apply("reshape", value, new_shape=split)
            window = {
                "start_indices": tuple(starts), "end_indices": tuple(ends),
                "strides": (1,) * len(split), "manual_normalization": False,
            }  # fmt: skip
            (value,) = self.graph.add(find_op("slice"), [value], window)
            joined = (*shape[:k], own, *shape[k + 1 :])
            value = self.graph.apply("reshape", value, new_shape=joined)
        return value

    def _biased(self, node: Node, bias: int, total: Value) -> Value:
        operand = self.current(node.operands[bias])
        assert isinstance(operand, Value)
        dims = tuple(range(total.rank - operand.rank, total.rank))
        at = {"shape": total.shape, "broadcast_dims": dims}
        (wide,) = self.graph.add(find_op("broadcast_in_dim"), [operand], at)
        return self.graph.add(find_op("add"), [total, wide], {}, [node.output.name])[0]

    def finish(self) -> Spelled:
        wanted = [self.now.get(o.value, o.value) for o in self.fusion.outputs]
        named = {i.value: i.value.name for i in self.fusion.inputs}
        named |= {own: value.name for value, own in self.now.items()}
        nodes, now = self.graph.finish(named, (d.name for d in self.fusion.dims), wanted)
        outputs = tuple(
            replace(output, value=now[own])
            for output, own in zip(self.fusion.outputs, wanted, strict=True)
        )
        fusion = replace(
            self.fusion,
            nodes=nodes,
            outputs=outputs,
            pins=(),
            schedules=(),
            shardings={},
            mesh=None,
        )
        local = {now[own].name: name for own, name in self.local.items() if own in now}
        combined = frozenset(now[own].name for own in self.combined if own in now)
        return Spelled(fusion, local, combined)
