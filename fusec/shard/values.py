"""A rank's versions of the values of a fusion, in the shardings computed so far."""

from __future__ import annotations

from collections.abc import Callable

from fusec.dataclasses import replace
from fusec.ir.dtype import I64
from fusec.ir.graph import Const, Node, Operand, Value
from fusec.ir.sharding import Sharding
from fusec.ops.find import find_op
from fusec.shard.asked import Asked
from fusec.shard.choose import Choice
from fusec.shard.graph import LocalGraph
from fusec.shard.reshard import Held, Resharder
from fusec.shard.tensors import Tensor


class Values:
    """Tensors and scalars, with conversions between shardings of a tensor.

    part: computes what it can of a sharding of a tensor before the tensor is held in any sharding.
    """

    def __init__(
        self,
        graph: LocalGraph,
        reshard: Resharder,
        asked: Asked,
        part: Callable[[Value, Sharding], Held | None],
    ) -> None:
        """Start without values."""
        self._graph, self._reshard, self._asked, self._part = graph, reshard, asked, part
        self.tensors: dict[Value, Tensor] = {}
        self.scalars: dict[Value, Operand] = {}
        self.as_needed: set[Value] = set()
        """Values computed for each reader, or that would be without their declared shardings."""

    def given(self, operand: Operand) -> Sharding | None:
        """Return the sharding of an operand, None for a scalar."""
        tensor = self.tensors.get(operand) if isinstance(operand, Value) else None
        return None if tensor is None else tensor.sharding

    def operands(self, node: Node, choice: Choice, left_out: int | None) -> list[Operand]:
        """Return the operands of a node for a choice of its computation, except one of them."""
        pairs = enumerate(zip(node.operands, choice.operands, strict=True))
        return [self.operand(o, needed) for k, (o, needed) in pairs if k != left_out]

    def operand(self, operand: Operand, needed: Sharding | None) -> Operand:
        """Return a rank's version of an operand in the needed sharding; None for a scalar."""
        if isinstance(operand, Const):
            return operand
        if needed is None:
            return self.scalars[operand]
        return self.held(operand, needed).value

    def held(self, value: Value, wanted: Sharding) -> Held:
        """Return a rank's version of a value for a reader, in the wanted sharding."""
        for sharding in self._asked.of(value, wanted):
            self.converted(value, sharding)
        return self.tensors[value].held[wanted.dims]

    def converted(self, value: Value, wanted: Sharding) -> Held:
        """Return a value in a sharding, converted from a rank's other versions if necessary."""
        tensor = self.tensors[value]
        if wanted.dims not in tensor.held:
            start = self._part(value, wanted) or tensor.nearest(wanted)
            ranks = self._graph.held(start.value)
            if ranks is not None:  # the ranks that it is divided over have parts of their own
                ranks = self._reshard.among(ranks, wanted)
                start = replace(start, value=self._reshard.on_ranks(start.value, ranks))
            for held in self._reshard.steps(start, wanted, value.name):
                tensor.keep(held)
        return tensor.held[wanted.dims]

    def size(self, node: Node) -> Value:
        """Return the extent of a whole tensor, from any tensor of this extent, or a part of one."""
        (value,) = node.inputs
        axis: int = node.attributes["dim"]
        extent, name = value.shape[axis], node.output.name
        whole = (self.tensors[v] for v in (value, *self.tensors) if v not in self.as_needed)
        once = (h for tensor in whole for h in tensor.along(extent) if not self._graph.varies(h[0]))
        for held, k in once:
            ranks = extent.divide(held.shape[k])
            if ranks == 1:
                return self._graph.apply("size", held, name, dim=k)
            if ranks is not None and ranks.is_const:
                size = self._graph.apply("size", held, f"{name}_part", dim=k)
                factor = Const(ranks.value, I64)
                return self._graph.add(find_op("mul"), [size, factor], {}, [name])[0]
        held = self.held(value, Sharding.whole(value.rank)).value
        return self._graph.apply("size", held, name, dim=axis)
