"""A segmenter that takes the first merge that somebody accepts, to compare with.

It follows nvFuser's order as far as its documentation tells it: the whole fusion first; then a
group per operation, up-casts and squeezes and chains of single-use unary operations at the inputs
computed by each reader; rounds of merges of neighbours whose levels differ by at most one, in
order, not across outputs; then any producer with a consumer that no other of its consumers leads
to. No price is asked for and nothing is computed again afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusec.ir.graph import Fusion, Node, Value
from fusec.passes.protect_inputs import copy_unsafe
from fusec.segment.canonical import canonical, sizes_of_inputs
from fusec.segment.offers import Offer, Offers, Surroundings
from fusec.segment.protocol import Scheduler
from fusec.segment.segmented import Segment, SegmentedFusion, extract
from fusec.segment.views import view_nodes
from fusec.target import Target

Group = frozenset[Node]


def first_fit(fusion: Fusion, schedulers: Sequence[Scheduler], target: Target) -> SegmentedFusion:
    """Return the segments that merging without prices leads to."""
    work, _ = copy_unsafe(canonical(sizes_of_inputs(fusion)))
    apart: frozenset[Node] = frozenset()
    while True:
        found = _FirstFit(work, Offers(schedulers, target), apart)
        found.run()
        blocked = found.blocked()
        if not blocked:
            return found.finish()
        apart |= blocked


class _FirstFit:
    def __init__(self, fusion: Fusion, offers: Offers, apart: frozenset[Node]) -> None:
        self.fusion, self.offers = fusion, offers
        self.place = {n: k for k, n in enumerate(fusion.nodes)}
        self.final = {o.value for o in fusion.outputs}
        self.mutable = frozenset(o.alias for o in fusion.outputs if o.alias is not None)
        views = view_nodes(fusion, frozenset())
        self.fixed = views.last
        sets = frozenset(n for n in fusion.nodes if n.op.name == "segment_set")
        self.copied = (self._private() | views.chain) - apart - sets
        owned = [n for n in fusion.nodes if n not in self.copied or self._is_final(n)]
        self.groups: list[Group] = [frozenset({n}) for n in owned if n not in self.fixed]
        if self.fixed:
            self.groups.append(self.fixed)

    def _is_final(self, node: Node) -> bool:
        return any(v in self.final for v in node.outputs)

    def _private(self) -> frozenset[Node]:
        """Return the operations that every reader computes for itself."""
        private: set[Node] = set()
        forwarded = {i.value for i in self.fusion.inputs if i.value.name not in self.mutable}
        for node in self.fusion.nodes:
            users = [u for v in node.outputs for u in self.fusion.users.get(v, ())]
            tensors = [v for v in node.inputs if not v.is_scalar]
            if all(v.is_scalar for v in node.outputs) or not tensors:
                private.add(node)
                forwarded.update(node.outputs)
                continue
            unary = len(tensors) == 1 and node.op.family == "pointwise" and len(node.inputs) == 1
            grows = node.op.name == "cast" and node.output.dtype.size > tensors[0].dtype.size
            squeezes = node.op.name == "squeeze" and len(users) <= 2
            chained = unary and tensors[0] in forwarded and len(users) == 1
            if (grows or squeezes or chained) and not self._is_final(node):
                private.add(node)
                if chained or tensors[0] in forwarded:
                    forwarded.update(node.outputs)
        return frozenset(private)

    def run(self) -> None:
        free = [g for g in self.groups if g != self.fixed]
        whole = frozenset[Node]().union(*free)
        sets = any(n.op.name == "segment_set" for n in whole)
        if whole and not sets and self._offer(whole).accepted and self._acyclic(free, whole):
            self._merge(free)
            return
        while self._round():
            pass
        while self._final_merge():
            pass

    def _round(self) -> bool:
        """Merge neighbours of near levels, each group once; return whether any were."""
        before = self._before()
        level: dict[Group, int] = {}
        for group in self._ordered():
            level[group] = 1 + max((level[p] for p in before[group]), default=-1)
        pairs: list[tuple[Group, Group]] = []
        taken: set[Group] = set()
        for group in sorted(self.groups, key=self._rank):
            if group in taken:
                continue
            near = [*before[group], *(g for g in self.groups if group in before[g])]
            for other in sorted(near, key=self._rank):
                if other in taken or abs(level[group] - level[other]) > 1:
                    continue
                # Around a merge of this round nothing else of the same levels may be merged.
                around = {*before[group], *before[other]}
                around |= {g for g in self.groups if group in before[g] or other in before[g]}
                if around & taken - {group, other} or self._across_output(group, other):
                    continue
                if self._may(group, other):
                    pairs.append((group, other))
                    taken |= {group, other}
                    break
        for pair in pairs:
            self._merge(pair)
        return bool(pairs)

    def _final_merge(self) -> bool:
        before = self._before()
        for group in sorted(self.groups, key=self._rank):
            consumers = [g for g in self.groups if group in before[g]]
            for consumer in sorted(consumers, key=self._rank):
                if self._may(group, consumer):
                    self._merge((group, consumer))
                    return True
        return False

    def _may(self, one: Group, other: Group) -> bool:
        if self.fixed in (one, other) or not self._acyclic([one, other], one | other):
            return False
        members = self.members(one | other)
        for node in members:
            if node.op.name == "segment_set" and any(
                u in members for u in self.fusion.users.get(node.output, ())
            ):
                return False
        return self._offer(one | other).accepted

    def _across_output(self, one: Group, other: Group) -> bool:
        made = {v for n in one for v in n.outputs} & self.final
        read = {v for n in other for v in n.inputs}
        back = {v for n in other for v in n.outputs} & self.final
        return bool(made & read or back & {v for n in one for v in n.inputs})

    def _merge(self, chosen: Iterable[Group]) -> None:
        gone = set(chosen)
        union = frozenset[Node]().union(*gone)
        self.groups = [*(g for g in self.groups if g not in gone), union]

    def _acyclic(self, chosen: Sequence[Group], union: Group) -> bool:
        """Return whether no path leaves some groups and comes back."""
        groups = [*(g for g in self.groups if g not in chosen), union]
        before = self._before(groups)
        stack = [p for p in before[union] if p != union]
        seen = set(stack)
        while stack:
            for group in before[stack.pop()]:
                if group == union:
                    return False
                if group not in seen:
                    seen.add(group)
                    stack.append(group)
        return True

    def _rank(self, group: Group) -> int:
        return min(self.place[n] for n in group)

    def members(self, group: Group) -> Group:
        """Return a group with the operations that it computes for itself."""
        found, stack = set(group), list(group)
        while stack:
            for value in stack.pop().inputs:
                maker = self.fusion.producer.get(value)
                if maker is not None and maker not in found and maker in self.copied:
                    found.add(maker)
                    stack.append(maker)
        return frozenset(found)

    def leaves(self, group: Group) -> set[Value]:
        """Return the values that a group reads."""
        inside = self.members(group)
        made = {v for n in inside for v in n.outputs}
        return {v for n in inside for v in n.inputs} - made

    def _before(self, groups: Sequence[Group] | None = None) -> dict[Group, list[Group]]:
        """Return the groups that have to run before each."""
        chosen = self.groups if groups is None else groups
        owner = {v: g for g in chosen for n in g for v in n.outputs}
        reads = {g: self.leaves(g) for g in chosen}
        found = {
            g: sorted({owner[v] for v in reads[g] if v in owner} - {g}, key=self._rank)
            for g in chosen
        }
        inputs = {i.value.name: i.value for i in self.fusion.inputs}
        for output in self.fusion.outputs:
            if output.alias is not None and output.value in owner:
                writer, target = owner[output.value], inputs[output.alias]
                late = [g for g in chosen if target in reads[g] and g != writer]
                found[writer] = [*found[writer], *(g for g in late if g not in found[writer])]
        return found

    def _ordered(self) -> list[Group]:
        before, done = self._before(), list[Group]()
        waiting = sorted(self.groups, key=self._rank)
        while waiting:
            group = next(g for g in waiting if all(p in done for p in before[g]))
            waiting.remove(group)
            done.append(group)
        return done

    def _part(self, group: Group, name: str) -> tuple[Fusion, frozenset[Value]]:
        read = {v for g in self.groups if not g <= group for v in self.leaves(g)}
        made = {v for n in group for v in n.outputs}
        results = frozenset(made & (read | self.final))
        return extract(self.fusion, self.members(group), name, results), results & read

    def _offer(self, group: Group) -> Offer:
        part, read = self._part(group, self.fusion.name)
        return self.offers.of(part, Surroundings(self.mutable, frozenset(read)))

    def blocked(self) -> frozenset[Node]:
        """Return what must get a group of its own, since nobody takes a group with it."""
        refused = [g for g in self.groups if not self._offer(g).accepted]
        private = frozenset[Node]().union(*(self.members(g) - g for g in refused))
        return frozenset(n for n in private if not all(v.is_scalar for v in n.outputs))

    def finish(self) -> SegmentedFusion:
        segments: list[Segment] = []
        for number, group in enumerate(self._ordered()):
            offer = self._offer(group)
            assert offer.scheduler is not None, f"nobody takes {sorted(map(repr, group))}"
            part, _ = self._part(group, f"{self.fusion.name}_s{number}")
            segments.append(Segment(number, offer.scheduler, part, offer.estimate))
        return SegmentedFusion(self.fusion, tuple(segments))
