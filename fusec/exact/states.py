"""Best-first search over what is still to be computed, from the outputs back to the inputs.

Segments are chosen from the last to the first. A state holds the values that chosen segments read
and the outputs that none has stored yet: both must come from segments still to be chosen. This is a
complete state: recomputable nodes need no record, and any other node is needed by some value of the
state or has been computed. A segment is a set of nodes that all lead to its results; it ends at
inputs and at values that then join the state. States are taken in order of their cost so far plus a
lower bound on the rest, so the first one that needs nothing is optimal.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from time import monotonic

from fusec.dataclasses import dataclass
from fusec.exact.costs import Costs
from fusec.exact.cuts import Cuts
from fusec.exact.space import Space, bits

State = tuple[int, int]
"""Values that chosen segments read; outputs that none has stored."""


@dataclass(frozen=True)
class Step:
    """A segment: the nodes that it computes, the results that it stores, and its reads."""

    nodes: int
    results: int
    reads: int


@dataclass(frozen=True)
class Found:
    """The least bytes; None if nothing is under the limit. `lower` is valid even if incomplete."""

    bytes: int | None
    lower: int
    steps: tuple[Step, ...]
    complete: bool
    states: int


@dataclass(frozen=True)
class _Making:
    """Common data of all segments enumerated for one state."""

    state: State
    cost: int
    found: list[Step]


class Late(Exception):
    """The time limit is exceeded."""


class States:
    """The search for one fusion; its caches serve further searches with other limits."""

    def __init__(self, space: Space, step_costs: Costs) -> None:
        """Take the fusion, and the costs of steps."""
        self.space, self.step_costs, self.conflicts = space, step_costs, step_costs.conflicts
        self.cuts = Cuts(space, step_costs.conflicts)
        self.limit, self.end = 0, 0.0
        self.undercut = False
        self._reads: dict[int, int] = {}
        self._writes: dict[int, int] = {}
        self._sums: dict[int, int] = {}

    def run(self, limit: int, seconds: float) -> Found:
        """Return the best sequence of segments that costs less than the limit.

        A low limit is fast: segments that cannot stay below it are not enumerated.
        """
        self.limit, self.end = limit, monotonic() + seconds
        start: State = (0, self.space.outputs)
        first = self.rest(start[1])
        # A node of the queue: bound, order, cost so far, state, the step that led here and from
        # where; the cost of a step is queried only when it is the most promising.
        queue: list[tuple[int, int, int, State, Step | None, State | None]] = []
        heappush(queue, (first, 0, 0, start, None, None))
        best: dict[State, int] = {}
        came: dict[State, tuple[State, Step]] = {}
        taken, count, lower = 0, 0, first
        while queue:
            least, _, cost, state, step, source = heappop(queue)
            lower = max(lower, least)
            if lower >= self.limit:
                break
            if monotonic() > self.end:
                return Found(None, lower, (), False, taken)
            if step is not None:
                assert source is not None
                step_cost = self.step_costs.of(step.nodes, step.results, step.results & source[0])
                if step_cost is None or best.get(state, self.limit) <= cost + step_cost:
                    continue
                exact = cost + step_cost + self.rest(state[0] | state[1])
                least = self._writing(step.nodes, step.results)
                self.undercut |= step_cost < least + self._reading(step.nodes, step.reads)
                best[state] = cost + step_cost
                came[state] = (source, step)
                if exact < self.limit:
                    count += 1
                    heappush(queue, (exact, -count, cost + step_cost, state, None, None))
                continue
            if best.get(state, cost) < cost:
                continue
            if not state[0] | state[1]:
                return Found(cost, cost, self._way(came, start, state), True, taken)
            taken += 1
            try:
                for each in self.steps(state, cost):
                    after = (
                        state[0] & ~each.results | each.reads & self.space.made,
                        state[1] & ~each.results,
                    )
                    bound = cost + self.bound(state, each)
                    if bound < self.limit and best.get(after, self.limit) > cost:
                        count += 1
                        heappush(queue, (max(bound, least), -count, cost, after, each, state))
            except Late:
                return Found(None, lower, (), False, taken)
        return Found(None, self.limit, (), True, taken)

    def _way(
        self, came: dict[State, tuple[State, Step]], start: State, state: State
    ) -> tuple[Step, ...]:
        steps: list[Step] = []
        while state != start:
            state, step = came[state]
            steps.append(step)
        return tuple(steps)

    def rest(self, values: int, nodes: int = 0, results: int = 0) -> int:
        """Return the bytes to have some values in memory, in addition to results of a segment."""
        read, written = self.cuts.least(self.space.needed(values))
        separate = self._writing(nodes, results) + written
        return max(self.reads(values), read) + max(self.writes(values | results), separate)

    def reads(self, values: int) -> int:
        """Return the least bytes of inputs to read to have some values in memory."""
        if values not in self._reads:
            needs: dict[int, int] = {}
            for value in bits(values):
                for source, count in self.space.wanted[value].items():
                    needs[source] = max(needs.get(source, 0), count)
            self._reads[values] = sum(needs.values())
        return self._reads[values]

    def writes(self, values: int) -> int:
        """Return the least bytes to write to have some values in memory."""
        if values not in self._writes:
            roots: dict[int, int] = {}
            for value in bits(values):
                root, count = self.space.roots[value]
                roots[root] = max(roots.get(root, 0), count)
            self._writes[values] = sum(roots.values())
        return self._writes[values]

    def bound(self, state: State, step: Step) -> int:
        """Return a lower bound on the cost of a step and of all before it."""
        after = (state[0] | state[1]) & ~step.results | step.reads & self.space.made
        rest = self.rest(after, step.nodes, step.results)
        return rest + self._reading(step.nodes, step.reads)

    def _writing(self, nodes: int, results: int) -> int:
        """Return the bytes that a segment writes; a segment of views writes nothing."""
        return self.writes(results) if nodes & ~self.space.views else 0

    def _reading(self, nodes: int, reads: int) -> int:
        if not nodes & ~self.space.views:
            return 0
        if reads not in self._sums:
            self._sums[reads] = sum(self.space.least[v] for v in bits(reads))
        return self._sums[reads]

    def steps(self, state: State, cost: int) -> list[Step]:
        """Return every segment that may be the last one before those already chosen."""
        found: list[Step] = []
        last, able = len(self.space.nodes) - 1, self.conflicts.everyone
        making = _Making(state, cost, found)
        self._grow(making, last, 0, 0, 0, 0, state[0] | state[1], able)
        return found

    def _grow(
        self,
        making: _Making,
        node: int,
        nodes: int,
        results: int,
        reads: int,
        inside: int,
        todo: int,
        able: int,
    ) -> None:
        """Decide for each node, from the last: computed here, or its results read or ignored.

        inside: the operands of its nodes; todo: what other segments have to compute so far; able:
        the schedulers that may still accept it.
        """
        space, state = self.space, making.state
        wanted = state[0] | state[1]
        if monotonic() > self.end:
            raise Late
        while node >= 0 and not space.results[node] & (wanted | inside):
            node -= 1
        if node < 0:
            step = Step(nodes, results, reads | inside & ~space.made)
            if results and self._allowed(state, step):
                making.found.append(step)
            return
        offered, used = space.results[node] & wanted, space.results[node] & inside
        # Without it: its results are read, or computed by an earlier segment.
        if not used & ~space.storable:
            after, left = reads | used, todo | used
            if self._promising(making, nodes, results, after | inside & ~space.made, left):
                self._grow(making, node - 1, nodes, results, after, inside, left, able)
        able = self.conflicts.left(able, nodes, node)
        once = space.once >> node & 1
        if not able or space.boundaries.get(node, 0) & nodes:
            return
        if once and space.needed(todo & ~offered) >> node & 1:
            return
        nodes, inside = nodes | 1 << node, inside | space.reads[node]
        for put in _subsets(offered):
            left = todo & ~put
            if (not put and not used) or (once and left & offered):
                continue
            if self._promising(making, nodes, results | put, reads | inside & ~space.made, left):
                self._grow(making, node - 1, nodes, results | put, reads, inside, left, able)

    def _promising(self, making: _Making, nodes: int, results: int, reads: int, todo: int) -> bool:
        """Return whether a partial segment may still lead to less than the limit."""
        state = making.state
        after = todo & ~(state[0] | state[1])
        read, written = self.cuts.least(self.space.needed(after))
        reads = max(self.reads(after), read) + self._reading(nodes, reads)
        writes = max(self.writes(todo | results), self._writing(nodes, results) + written)
        return making.cost + reads + writes < self.limit

    def _allowed(self, state: State, step: Step) -> bool:
        """Return whether the rest can still be computed in earlier segments."""
        space = self.space
        after = (state[0] | state[1]) & ~step.results | step.reads & space.made
        if space.needed(after) & step.nodes & space.once:
            return False
        for source, output in space.aliased.items():
            if step.reads >> source & 1 and state[1] & output & ~step.results:
                return False
        return True


def _subsets(mask: int) -> Iterator[int]:
    """Yield all subsets of a mask, the whole first."""
    part = mask
    while True:
        yield part
        if not part:
            return
        part = (part - 1) & mask
