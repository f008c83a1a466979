"""Outputs that are sums over ranks: sent in a loop during computation, summed by rows, gathered.

This is the last GEMM of a layer with divided weights: instead of an all-reduce of the whole, each
rank sums its rows, which arrive while others are computed, and all ranks gather them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fusec.dataclasses import dataclass, replace
from fusec.diagnostics import FusecError
from fusec.ir.dim import dim
from fusec.ir.graph import DimFact, Fusion, Node, Value
from fusec.ir.sharding import STREAM, Part, Sharding
from fusec.ops.find import find_op
from fusec.shard.divided import Partition
from fusec.shard.partition import partitioned


@dataclass(frozen=True)
class ScatteredOutputs:
    """A fusion whose outputs are gathered from rows; rows: their names, by output."""

    fusion: Fusion
    rows: Mapping[str, str]

    def named(self, divided: Partition) -> Partition:
        """Return a partition of the fusion with its sums by the names of the outputs."""
        back = {rows: name for name, rows in self.rows.items()}
        return replace(
            divided,
            sums={back.get(name, name): how for name, how in divided.sums.items()},
            local={back.get(name, name): own for name, own in _later(divided.local, back)},
        )


def with_scattered_outputs(fusion: Fusion) -> ScatteredOutputs | None:
    """Return the fusion with such outputs, if its file declares no loop and has 2-D GEMMs.

    None if it has none, or would run other sizes: rows must be known multiples of the ranks.
    """
    if fusion.mesh is None or any(said.along(STREAM) for said in fusion.shardings.values()):
        return None
    plain = partitioned(fusion)
    found = {n: axis for n in fusion.nodes if (axis := _summed_axis(fusion, plain, n))}
    if not found:
        return None
    scattered = _rewritten(fusion, plain, found)
    try:
        other = partitioned(scattered.fusion)
    except FusecError:
        return None  # extents that ranks do not divide
    return scattered if _same_sizes(plain.fusion.dims, other.fusion.dims) else None


def _summed_axis(fusion: Fusion, plain: Partition, node: Node) -> str | None:
    """Return the axis over which ranks sum a replicated output that can be scattered, else None.

    It must be a GEMM whose rows are computed, and no other node may read it.
    """
    value = node.output
    how = plain.sums.get(value.name)
    if how is None or how.reduction != "sum" or len(how.axes) != 1 or how.bias is not None:
        return None
    if value not in fusion.output_of or value.rank != 2 or any(plain.values[value.name].axes):
        return None
    if any(value in n.inputs for n in fusion.nodes) or fusion.effects.in_place:
        return None
    rows = node.operands[0] if node.operands else None
    if node.op.product is None or not isinstance(rows, Value) or rows.shape[:1] != value.shape[:1]:
        return None
    own = plain.values[rows.name]
    return how.axes[0] if not own.dims[0] and rows in fusion.producer else None


def _rewritten(fusion: Fusion, plain: Partition, found: Mapping[Node, str]) -> ScatteredOutputs:
    """Return the fusion with the rows of sums as separate values."""
    taken = {v.name for n in fusion.nodes for v in n.outputs} | {
        i.value.name for i in fusion.inputs
    }
    nodes, shardings, rows = list[Node](), dict(fusion.shardings), dict[str, str]()
    copy = find_op("set")
    for node in fusion.nodes:
        axis = found.get(node)
        if axis is None or fusion.mesh is None:
            nodes.append(node)
            continue
        value, first = node.output, node.operands[0]
        assert isinstance(first, Value)
        sliced, part = (_fresh(f"{value.name}_{end}", taken) for end in ("operand", "rows"))
        ranks, own = dim(fusion.mesh.extent(axis)), plain.values[first.name]
        given, made = Value(sliced, first.type), Value(part, value.type)
        nodes += [
            Node(copy, (first,), {}, (given,), node.span),
            replace(node, operands=(given, *node.operands[1:]), outputs=(made,)),
            Node(copy, (made,), {}, (value,), node.span),
        ]
        shardings[sliced] = Sharding(((Part(STREAM, ranks),), *own.dims[1:]))
        shardings[part] = Sharding(((Part(axis, ranks),), ()))
        shardings[value.name] = Sharding.whole(value.rank)
        rows[value.name] = part
    return ScatteredOutputs(replace(fusion, nodes=tuple(nodes), shardings=shardings), rows)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _later(local: Mapping[str, str], back: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield names of values that are not replaced, then those that replace others."""
    yield from ((n, own) for n, own in local.items() if n not in back and n not in back.values())
    yield from ((n, own) for n, own in local.items() if n in back)


def _same_sizes(plain: Iterable[DimFact], other: Iterable[DimFact]) -> bool:
    """Return whether programs run the same sizes; the plain one may count in multiples."""
    pairs = {fact.name: fact for fact in other}
    for fact in plain:
        times, rest = divmod(fact.default, pairs[fact.name].default)
        if rest or fact.multiple_of % (times * pairs[fact.name].multiple_of):
            return times == 1 and fact == pairs[fact.name]
    return True
