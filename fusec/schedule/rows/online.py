"""Computes a maximum and its sum of exponentials in one phase: one pass, one block reduction.

The plan does it, as with variances (`two_pass`): the graph keeps its nodes, and so the verdict.
"""

from __future__ import annotations

from fusec.ir.graph import Fusion, Node, needed_nodes
from fusec.ir.identity_cache import IdentityCache
from fusec.ops.reduction.online import MAX_EXP_SUM, shifted_sum
from fusec.options import ONLINE

_CACHE: IdentityCache[Fusion] = IdentityCache()


def in_one_phase(fusion: Fusion) -> Fusion:
    """Return the fusion with each maximum and its sum of exponentials as one reduction.

    A fusion that keeps them as defined is returned unchanged.
    """
    if ONLINE in fusion.as_defined:
        return fusion
    return _CACHE.of(fusion, None, lambda: _paired(fusion))


def pairs_of(fusion: Fusion) -> dict[Node, Node]:
    """Return the sums of exponentials by the maxima that are subtracted before."""
    found = ((n, shifted_sum(fusion, n)) for n in fusion.nodes if n.op.family == "reduction")
    return {top: total for top, total in found if total is not None}


def _paired(fusion: Fusion) -> Fusion:
    pairs = pairs_of(fusion)
    if not pairs:
        return fusion
    totals, nodes = {*pairs.values()}, list[Node]()
    for node in fusion.nodes:
        if node in pairs:
            results = node.output, pairs[node].output
            attributes = {"dims": tuple(node.attributes["dims"])}
            nodes.append(Node(MAX_EXP_SUM, node.operands, attributes, results, node.span))
        elif node not in totals:
            nodes.append(node)
    return fusion.with_nodes(needed_nodes(nodes, [o.value for o in fusion.outputs]))
