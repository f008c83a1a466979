"""Where the search starts: regions of one iteration space, and reductions of one signature."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.ir.dim import product
from fusec.ir.graph import Node
from fusec.segment.cheap import is_tissue
from fusec.segment.partition import Graph, Group, Partition

Signature = tuple[str, str]


def singles(graph: Graph, fixed: Iterable[Group]) -> tuple[Group, ...]:
    """Return one group per node, and the fixed groups."""
    held = tuple(fixed)
    taken = frozenset[Node]().union(*held)
    return (*held, *(frozenset({n}) for n in graph.owned if n not in taken))


def tissue_regions(partition: Partition, fixed: frozenset[Group]) -> list[frozenset[Group]]:
    """Return connected sets of elementwise and movement nodes that nothing else parts.

    Nodes of equal depth, counted in nodes of other families, cannot have such a node on a path
    between them: their connected parts are convex, and form a DAG with everything else.
    """
    groups = partition.groups
    breaks = frozenset(g for g in groups if g in fixed or not all(is_tissue(n) for n in g))
    depth = partition.depths(breaks)
    parent = {g: g for g in groups if g not in breaks}

    def root(group: Group) -> Group:
        while parent[group] != group:
            parent[group] = parent[parent[group]]
            group = parent[group]
        return group

    for group in groups:
        if group not in parent:
            continue
        for source in partition.sources(group):
            if source in parent and depth[source] == depth[group]:
                parent[root(group)] = root(source)
    regions: dict[Group, list[Group]] = {}
    for group in groups:
        if group in parent:
            regions.setdefault(root(group), []).append(group)
    return [frozenset(members) for members in regions.values() if len(members) > 1]


def signature(node: Node) -> Signature:
    """Return what reductions that can share a kernel have in common: elements kept and reduced."""
    shape, dims = node.inputs[0].shape, node.attributes["dims"]
    kept = product(e for k, e in enumerate(shape) if k not in dims)
    reduced = product(e for k, e in enumerate(shape) if k in dims)
    return str(kept), str(reduced)


def reduction_regions(partition: Partition, fixed: frozenset[Group]) -> list[frozenset[Group]]:
    """Return regions around reductions: all of one signature, then each alone.

    Each comes with its surroundings first; a search takes the first that somebody accepts.
    """
    by_signature: dict[Signature, list[Group]] = {}
    for group in partition.groups:
        for node in sorted(group, key=partition.graph.position.__getitem__):
            if node.op.family == "reduction" and group not in fixed:
                by_signature.setdefault(signature(node), []).append(group)
    regions: dict[frozenset[Group], None] = {}
    for groups in by_signature.values():
        core = partition.closure(groups)
        regions[_surrounded(partition, core, fixed)] = None
        regions[core] = None
    for groups in by_signature.values():
        for group in groups:
            regions[_surrounded(partition, frozenset({group}), fixed)] = None
    return [r for r in regions if len(r) > 1]


def _surrounded(
    partition: Partition, core: frozenset[Group], fixed: frozenset[Group]
) -> frozenset[Group]:
    """Return the core with the tissue that only feeds it and the tissue that only it feeds."""
    near = set(core)
    for step, back in ((partition.before, partition.after), (partition.after, partition.before)):
        front = sorted(core, key=partition.graph.first)
        while front:
            group = front.pop()
            for other in step[group]:
                tissue = other not in fixed and all(is_tissue(n) for n in other)
                if tissue and other not in near and all(g in near for g in back[other]):
                    near.add(other)
                    front.append(other)
    return partition.closure(near)
