"""Products of one row with a matrix that are written as sums of multiplied elements."""

from __future__ import annotations

from fusec.ir.dtype import F32
from fusec.ir.graph import Fusion, Node, Value
from fusec.ir.recent import Recent
from fusec.ir.roles import Combine
from fusec.ops.acts import Act, act_of
from fusec.ops.build import make_node

_RECENT: Recent[Fusion] = Recent()
_SUFFIX = "_of_row"


def as_products(fusion: Fusion) -> Fusion:
    """Return the fusion with such sums as matrix products of one row; results keep their values."""
    return _RECENT.of(fusion, None, lambda: _rewritten(fusion))


def sum_of(node: Node) -> str:
    """Return the name that the fusion's own sum has for a matrix product."""
    return node.output.name.removesuffix(_SUFFIX)


def _rewritten(fusion: Fusion) -> Fusion:
    nodes: list[Node] = []
    for node in fusion.nodes:
        nodes += _product(fusion, node) or [node]
    return fusion if len(nodes) == len(fusion.nodes) else fusion.with_nodes(nodes)


def _product(fusion: Fusion, node: Node) -> list[Node] | None:
    """Return the nodes that stand for a sum, None where it is no product."""
    if node.op.combine is not Combine.SUM or node.op.family != "reduction":
        return None
    multiplied = fusion.producer.get(node.inputs[0])
    if multiplied is None or act_of(multiplied.op) is not Act.MULTIPLY:
        return None
    dims, operands = node.attributes["dims"], multiplied.inputs
    if len(dims) != 1 or len(operands) != 2 or node.output.dtype != F32:
        return None
    (depth,), rank = dims, operands[0].rank
    others = [axis for axis in range(rank) if axis != depth]
    if rank < 2 or any(o.dtype != F32 or o.rank != rank for o in operands):
        return None
    # The row is the same for all columns, which come last.
    column = others[-1]
    rows = [o for o in operands if o.shape[column] == 1 and o.shape[depth] != 1]
    if len(rows) != 1 or node.output.rank != rank - 1:
        return None
    (row,) = rows
    (matrix,) = (o for o in operands if o is not row)
    if matrix.shape[column] == 1 or matrix.shape[depth] == 1:
        return None
    return _as_matmul(node, row, matrix, [*others[:-1], column, depth])


def _as_matmul(node: Node, row: Value, matrix: Value, order: list[int]) -> list[Node]:
    name, rank = node.output.name, row.rank
    turned = (*order[:-2], order[-1], order[-2])
    nodes = [
        make_node("permute", [row], {"dims": tuple(order)}, [f"{name}_row"]),
        make_node("permute", [matrix], {"dims": turned}, [f"{name}_matrix"]),
    ]
    sides = [n.output for n in nodes]
    nodes.append(make_node("matmul", sides, {}, [f"{name}{_SUFFIX}"]))
    attributes = {"dims": (rank - 2,), "squeeze_expanded": False}
    last = make_node("squeeze", [nodes[-1].output], attributes, [name])
    return [*nodes, Node(last.op, last.operands, last.attributes, (node.output,), node.span)]
