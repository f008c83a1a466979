"""The bias of a GEMM whose sums are divided over ranks: it is added once, to the complete sums."""

from __future__ import annotations

from fusec.dataclasses import dataclass
from fusec.ir.graph import Node, Value
from fusec.ir.sharding import Sharding
from fusec.ops.find import find_op
from fusec.shard.axes import Axes
from fusec.shard.graph import LocalGraph
from fusec.shard.reshard import Held


@dataclass(frozen=True)
class Added:
    """A bias, and the dims of the GEMM's result that it is aligned with."""

    value: Value
    dims: tuple[int, ...]

    def part(self, product: Sharding) -> Sharding:
        """Return the sharding of the bias for a sharding of the GEMM's result."""
        return Sharding(tuple(product.dims[k] for k in self.dims))


def added_to(node: Node, place: int, axes: Axes) -> Added | None:
    """Return the bias of a GEMM, its operand number `place`; None if it has none."""
    if place >= len(node.operands):
        return None
    value = node.operands[place]
    assert isinstance(value, Value)
    return Added(value, tuple(axes.same[place, a] for a in range(value.rank)))


def with_bias(graph: LocalGraph, held: Held, bias: Value, added: Added) -> Held:
    """Return a sum over ranks with a rank's part of the bias added."""
    at = {"shape": held.value.shape, "broadcast_dims": added.dims}
    (wide,) = graph.add(find_op("broadcast_in_dim"), [bias], at)
    graph.lies(wide, held.sharding)
    name = held.value.name
    (total,) = graph.add(find_op("add"), [held.value, wide], {}, [f"{name}_biased"])
    graph.lies(total, held.sharding)
    return Held(total, held.sharding)
