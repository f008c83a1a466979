"""A search that starts from the segments of an earlier one: only new nodes are grouped."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fusec.dataclasses import dataclass
from fusec.ir.graph import Node
from fusec.segment.graph import Graph, Group
from fusec.segment.merge import Merges
from fusec.segment.regions import singles
from fusec.segment.segmented import Decision, Segment, SegmentedFusion, owners

RENEWED = frozenset({"boundary", "copy"})
"""Decisions that every search makes again, by their action."""


@dataclass(frozen=True)
class Seed:
    """A segment by the first results of its nodes: its own, and the recomputed ones."""

    owned: frozenset[str]
    again: frozenset[str]


@dataclass(frozen=True)
class Resume:
    """Segments that a search starts from, and the decisions that led to them.

    uncopied: as for `SegmentedFusion`.
    """

    seeds: tuple[Seed, ...]
    decisions: tuple[Decision, ...] = ()
    uncopied: frozenset[str] = frozenset()

    def groups(self, graph: Graph, held: Collection[Group]) -> tuple[Group, ...]:
        """Return the nodes that each seed owns, those of `held`, and each other node alone."""
        taken = frozenset[Node]().union(*held)
        seed_of = {name: k for k, seed in enumerate(self.seeds) for name in seed.owned}
        found: dict[int, list[Node]] = {}
        for node in graph.owned:
            seed = seed_of.get(node.output.name)
            if seed is not None and node not in taken:
                found.setdefault(seed, []).append(node)
        return singles(graph, (*held, *map(frozenset, found.values())))

    def restore(self, merges: Merges) -> Group | None:
        """Restore the recomputed nodes of the seeds' groups; return the nodes of no seed.

        None if the groups would then depend on each other.
        """
        groups = merges.groups
        nodes = {n.output.name: n for n in groups.graph.fusion.nodes}
        for seed in self.seeds:
            again = (nodes[name] for name in seed.again if name in nodes)
            known = next((nodes[name] for name in sorted(seed.owned) if name in nodes), None)
            if known is None or not groups.is_owned(known):
                continue
            piece = groups.owner(known)
            piece.again = frozenset(n for n in again if groups.is_owned(n)) - piece.owned
        merges.settle([p for p in groups if p.again])
        if groups.order() is None:
            return None
        groups.rank()
        seeded = frozenset[str]().union(*(s.owned for s in self.seeds))
        return frozenset(n for n in groups.graph.owned if n.output.name not in seeded)


def resume_without(found: SegmentedFusion, dropped: Iterable[Segment]) -> Resume:
    """Return a search's result as the start of another one, without some of its segments."""
    owner, gone = owners(found), {s.id for s in dropped}
    seeds: list[Seed] = []
    for part in found.segments:
        names = {n.output.name for n in part.nodes}
        owned = frozenset(n for n in names if owner[n] == part.id)
        if part.id not in gone:
            seeds.append(Seed(owned, frozenset(names - owned)))
    kept = tuple(d for d in found.decisions if d.action not in RENEWED)
    return Resume(tuple(seeds), kept, found.uncopied)
