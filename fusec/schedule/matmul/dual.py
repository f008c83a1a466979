"""Two GEMMs with a common operand whose results are combined in one kernel."""

from __future__ import annotations

from fusec.dataclasses import replace
from fusec.index.domain import Refusal, find_domain
from fusec.ir.graph import Fusion, Node, Output, needed_nodes
from fusec.ir.identity_cache import IdentityCache
from fusec.schedule.matmul.epilogue import find_epilogue
from fusec.schedule.matmul.hopper import HopperParameters
from fusec.schedule.matmul.operands.operand import Operand
from fusec.schedule.matmul.problem import Dual, Product, find_product
from fusec.schedule.matmul.totals import Total, find_totals, without_totals

BLOCK = 64
"""Columns per block in a tile of an N-major B."""


_PRODUCTS = IdentityCache[Product | Refusal]()


def find_products(fusion: Fusion) -> Product | Refusal:
    """Return the GEMM or the dual GEMM of a segment, or why it is neither."""
    return _PRODUCTS.of(fusion, None, lambda: _find(fusion))


def _find(fusion: Fusion) -> Product | Refusal:
    totals = find_totals(fusion)
    if not totals:
        return _found(fusion)
    found = _found(without_totals(fusion, totals))
    if isinstance(found, Refusal):
        return found
    refusal = next((r for r in (_no_total(found, t) for t in totals) if r is not None), None)
    if refusal is not None:
        return refusal
    kept = {o.value for o in fusion.outputs}
    whole = found.epilogue.fusion
    stored = tuple(o for o in whole.outputs if o.value in kept)
    epilogue = replace(found.epilogue, fusion=replace(whole, outputs=stored))
    return replace(found, epilogue=epilogue, totals=totals)


def _no_total(product: Product, total: Total) -> Refusal | None:
    """Return why a GEMM's kernel cannot reduce its results in tiles, or None."""
    name = total.node.output.name
    if product.dual is not None or product.cuts:
        return Refusal("totals", f"`{name}` reduces results of a grouped or dual GEMM")
    homes, sums = product.domain.homes, product.epilogue.sums
    if homes[total.value] != homes[sums] or len(product.column_axes) != 1:
        return Refusal("totals", f"`{total.value.name}` does not have the rows of the GEMM result")
    if not total.along_row and total.lead != len(product.batch_axes):
        return Refusal("totals", f"`{name}` reduces columns over axes other than the rows")
    return None


def _found(fusion: Fusion) -> Product | Refusal:
    nodes = [n for n in fusion.nodes if n.op.family == "contraction"]
    if len(nodes) != 2:
        return find_product(fusion)
    found: list[Product] = []
    for node in nodes:
        each = find_product(_alone(fusion, node))
        if isinstance(each, Refusal):
            return each
        found.append(each)
    first, second = found
    apart = _why_separate(first, second)
    if apart:
        return Refusal("contraction", apart)
    epilogue = find_epilogue(fusion, *nodes)
    if isinstance(epilogue, Refusal):
        return epilogue
    domain = find_domain(epilogue.fusion, epilogue.sums)
    if isinstance(domain, Refusal):
        return domain
    return replace(first, epilogue=epilogue, domain=domain, dual=Dual(nodes[1], second.b))


def _alone(fusion: Fusion, node: Node) -> Fusion:
    """Return the fusion of a single GEMM, whose result is the output."""
    nodes = tuple(needed_nodes(fusion.nodes, node.outputs))
    return replace(fusion, nodes=nodes, outputs=(Output(node.output),), pins=())


def _why_separate(first: Product, second: Product) -> str:
    """Return why two GEMMs cannot share one pipeline, or an empty string."""
    names = f"`{first.node.output.name}` and `{second.node.output.name}`"
    if first.groups is not None or second.groups is not None:
        return f"{names} are grouped GEMMs, which have no dual GEMM kernel"
    if first.a != second.a or first.k != second.k:
        return f"{names} are two GEMMs without a common first operand"
    if first.tf32 != second.tf32:
        return f"{names} are two GEMMs, only one of them in TF32"
    sides = [(p.batch_axes, p.row_axes, p.column_axes, p.node.output.type) for p in (first, second)]
    if sides[0] != sides[1]:
        return f"{names} are two GEMMs of different shapes or types"
    if _layout(first.b) != _layout(second.b):
        return f"`{first.b.buffer.name}` and `{second.b.buffer.name}` have different memory layouts"
    return ""


def _layout(operand: Operand) -> tuple[object, ...]:
    """Return the layout that the second operands of a dual GEMM must share."""
    batch = [atom for atom, _ in operand.batch.terms]
    return (operand.k_major, operand.buffer.dtype, batch, operand.cut)


def join_multiple(cluster_m: int, *, is_k_major: bool) -> int:
    """Return the number that must divide the columns of a dual GEMM's tile.

    is_k_major: whether B is K-major.
    """
    by = 16 if is_k_major else 2 * BLOCK
    return max(by, 16 * cluster_m) if cluster_m > 1 else by


def no_columns_of_two(p: HopperParameters, problem: Product) -> Refusal | None:
    """Return why a tile cannot hold the columns of two GEMMs, or None."""
    by = join_multiple(p.cluster_m, is_k_major=problem.b.k_major)
    if problem.dual is not None and p.tile_n % by:
        because = f"{p.tile_n} columns of a dual GEMM are not a multiple of {by}"
        return Refusal("tile", because)
    return None
