"""Vector-matrix multiplications that are written as sums of multiplied elements."""

from __future__ import annotations

from collections.abc import Iterator

from fusec.ir.dtype import F32
from fusec.ir.graph import Fusion, Node, Value
from fusec.ir.identity_cache import IdentityCache
from fusec.ir.roles import Combine
from fusec.ops.acts import Act, act_of
from fusec.ops.builder.build import make_node
from fusec.ops.names import fresh_name

_CACHE: IdentityCache[Fusion] = IdentityCache()
_PRODUCTS: IdentityCache[tuple[tuple[Node, tuple[Node, ...]], ...]] = IdentityCache()


def as_products(fusion: Fusion) -> Fusion:
    """Return the fusion with such sums as GEMMs of one row; results keep their values."""
    return _CACHE.of(fusion, None, lambda: _rewritten(fusion))


def sum_of(fusion: Fusion, node: Node) -> str:
    """Return the name of the original sum for a GEMM made by `as_products`."""
    name = node.output.name
    return next(
        (s.output.name for s, made in _products(fusion) if made[-2].output.name == name), name
    )


def _rewritten(fusion: Fusion) -> Fusion:
    products = dict(_products(fusion))
    nodes = [made for node in fusion.nodes for made in products.get(node, (node,))]
    return fusion if len(nodes) == len(fusion.nodes) else fusion.with_nodes(nodes)


def _products(fusion: Fusion) -> tuple[tuple[Node, tuple[Node, ...]], ...]:
    """Return the sums that are GEMMs, each with the nodes that replace it."""
    return _PRODUCTS.of(fusion, None, lambda: tuple(_find_products(fusion)))


def _find_products(fusion: Fusion) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    taken = fusion.names
    for node in fusion.nodes:
        made = _product(fusion, node, taken)
        if made is not None:
            yield node, tuple(made)


def _product(fusion: Fusion, node: Node, taken: set[str]) -> list[Node] | None:
    """Return the nodes that replace a sum, or None if it is not a GEMM."""
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
    # All columns share the row; the column axis is last.
    column = others[-1]
    rows = [o for o in operands if o.shape[column] == 1 and o.shape[depth] != 1]
    if len(rows) != 1 or node.output.rank != rank - 1:
        return None
    (row,) = rows
    (matrix,) = (o for o in operands if o is not row)
    if matrix.shape[column] == 1 or matrix.shape[depth] == 1:
        return None
    return _as_matmul(node, row, matrix, [*others[:-1], column, depth], taken)


def _as_matmul(
    node: Node, row: Value, matrix: Value, order: list[int], taken: set[str]
) -> list[Node]:
    name, rank = node.output.name, row.rank
    turned = (*order[:-2], order[-1], order[-2])
    nodes = [
        make_node("permute", [row], {"dims": tuple(order)}, [fresh_name(taken, f"{name}_row")]),
        make_node("permute", [matrix], {"dims": turned}, [fresh_name(taken, f"{name}_matrix")]),
    ]
    sides = [n.output for n in nodes]
    nodes.append(make_node("matmul", sides, {}, [fresh_name(taken, f"{name}_of_row")]))
    attributes = {"dims": (rank - 2,), "squeeze_expanded": False}
    last = make_node("squeeze", [nodes[-1].output], attributes, [name])
    return [*nodes, Node(last.op, last.operands, last.attributes, (node.output,), node.span)]
