"""Evaluation with expected errors in blocks along one band of axes, in parallel, in bounded memory.

Values outside the band are evaluated whole. A reduction over the band is accumulated over the
blocks, and what depends on it waits for the next sweep; a streamed value that two sweeps need is
evaluated in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from fusec.ir.arrays import np, on_gpu
from fusec.ir.evaluate import Array, Sizes, evaluate_attributes, extents
from fusec.ir.graph import Fusion, Node, Value, needed_nodes
from fusec.processors import usable_processors
from fusec.reference import contractions, memory, reductions
from fusec.reference.cost import Costs
from fusec.reference.estimate import Estimate
from fusec.reference.evaluate import input_array, last_uses, widen_input
from fusec.reference.nodes import Environment, Model, Nodes, operand_of
from fusec.reference.sums import State
from fusec.reference.sweeps import Plan, choose_plan, streamed

MEMORY = 8 << 30
"""Bytes that blocks in flight may take together, where there is so much."""
IN_LIMIT = 2
"""Sampled blocks that one processor evaluates within the limit, at least."""

Index = tuple[slice, ...]
Consume = Callable[[Value, Index, Estimate], None]
Started = tuple[State, tuple[int, ...]]
"""The state of a sum over blocks, and its operands' ancestors."""


@dataclass(frozen=True)
class Sampled:
    """Outputs of which some slices alone were evaluated, with the axes that these are along."""

    total: int
    checked: int
    axes: Mapping[str, int]

    def text(self) -> str:
        """Return how much of which axis."""
        names = ", ".join(f"axis {a} of {n}" for n, a in self.axes.items())
        return f"{self.checked} of {self.total} slices along {names}"


@dataclass(frozen=True)
class Coverage:
    """What part of the outputs was evaluated: all but those that were sampled."""

    sampled: tuple[Sampled, ...] = ()

    def text(self) -> str:
        """Return `all`, or what was sampled."""
        return f"sampled: {'; '.join(s.text() for s in self.sampled)}" if self.sampled else "all"


class Part:
    """The evaluation of some values: the inputs, what is known whole, and sweeps over blocks."""

    def __init__(
        self, fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes, wanted: list[Value],
        model: Model, plan: Plan | None = None,
    ) -> None:  # fmt: skip
        """Plan the evaluation of `wanted`, unless that is given."""
        self.fusion, self.sizes, self.wanted = fusion, sizes, wanted
        self.rules = Nodes(fusion, sizes, model)
        self.nodes = needed_nodes(fusion.nodes, wanted)
        self.plan = plan or choose_plan(fusion, self.nodes, sizes, model.hops)
        self.each = memory.DOUBLE * (memory.WITH_ERRORS if model.errors else memory.PLAIN)
        memory.require(fusion, self.needed_bytes())
        self.whole: Environment = {}
        self.raw: dict[Value, Array] = {}
        read = {v for n in self.nodes for v in n.inputs} | set(wanted)
        band = self.plan.band
        for entry in fusion.inputs:
            value = entry.value
            if value not in read:
                continue
            array = input_array(entry, inputs, sizes)
            if band is not None and value in band.axes:
                self.raw[value] = array
            else:
                self.whole[value] = Estimate(widen_input(value, array))

    def needed_bytes(self) -> float:
        """Return about how much memory the evaluation takes, one block at a time."""
        values = {*self.wanted, *(v for n in self.nodes for v in (*n.inputs, *n.outputs))}
        count = {v: int(np.prod(extents(v.type, self.sizes), dtype=np.int64)) for v in values}
        band = self.plan.band
        if band is not None:
            share = self.plan.step / band.extent
            count = {v: int(c * share) if v in band.axes else c for v, c in count.items()}
        return self.each * memory.live_elements(self.nodes, self.wanted, count)

    def run(self, consume: Consume, limit: float, seed: int) -> Coverage:
        """Evaluate, giving every wanted value or block of it to `consume`; return the coverage.

        limit: predicted seconds beyond which slices are sampled.
        """
        if self.plan.band is None:
            self._run_whole(consume)
            return Coverage()
        band, level = self.plan.band, self.plan.level
        blocks, coverage = self._blocks(limit, seed)
        for sweep in range(max(level.values(), default=0) + 1):
            for node in self.nodes:
                if (
                    not streamed(self.plan, node)
                    and node not in band.summing
                    and self._at(node) == sweep
                ):
                    results = self.rules.results(node, self.whole)
                    self.whole.update(zip(node.outputs, results, strict=True))
            self._sweep(sweep, blocks, consume)
        for value in self.wanted:
            if value not in band.axes:
                consume(value, (), self.whole[value])
        return coverage

    def _at(self, node: Node) -> int:
        return max((self.plan.level.get(v, 0) for v in node.inputs), default=0)

    def _run_whole(self, consume: Consume) -> None:
        environment = self.whole
        for node, dead in zip(self.nodes, last_uses(self.nodes, self.wanted), strict=True):
            results = self.rules.results(node, environment)
            environment.update(zip(node.outputs, results, strict=True))
            for value in dead:
                del environment[value]
        for value in self.wanted:
            consume(value, (), environment[value])

    def _blocks(self, limit: float, seed: int) -> tuple[list[tuple[int, int]], Coverage]:
        band, step, share = self.plan.band, self.plan.step, 1.0
        assert band is not None
        if not band.summing:
            each, whole = self._seconds()
            share = min(1.0, (limit - whole) * usable_processors() / each) if each else 1.0
            if share < 1:
                # None of the few blocks takes long, on whichever processor.
                step = int(min(step, max(1.0, limit / IN_LIMIT / each * band.extent)))
        blocks = [(low, min(low + step, band.extent)) for low in range(0, band.extent, step)]
        count = max(3, int(len(blocks) * share))
        if share >= 1 or count >= len(blocks):
            return blocks, Coverage()
        middle = np.random.default_rng(seed).permutation(len(blocks) - 2)[: count - 2] + 1
        blocks = [blocks[k] for k in sorted({0, len(blocks) - 1, *middle.tolist()})]
        checked = sum(high - low for low, high in blocks)
        axes = {v.name: band.axes[v] for v in self.wanted if v in band.axes}
        return blocks, Coverage((Sampled(band.extent, checked, axes),))

    def _seconds(self) -> tuple[float, float]:
        """Return the seconds of one core that all blocks take, and those of all else."""
        band, costs = self.plan.band, Costs(self.fusion, self.sizes)
        assert band is not None
        inside = [n for n in self.nodes if streamed(self.plan, n)]
        whole = [n for n in self.nodes if not streamed(self.plan, n)]
        each = costs.evaluated(inside) + costs.judged([v for v in self.wanted if v in band.axes])
        return each, costs.evaluated(whole)

    def _sweep(self, sweep: int, blocks: Sequence[tuple[int, int]], consume: Consume) -> None:
        band, level = self.plan.band, self.plan.level
        assert band is not None
        sums = [n for n in self.nodes if n in band.summing and self._at(n) == sweep]
        outputs = [v for v in self.wanted if v in band.axes and level.get(v, 0) == sweep]
        if not sums and not outputs:
            return
        targets = {*outputs, *(v for n in sums for v in n.inputs if v in band.axes)}
        nodes = [n for n in needed_nodes(self.fusion.nodes, targets) if streamed(self.plan, n)]
        states: dict[Node, Started] = {}

        def block(low: int, high: int) -> dict[Node, Started]:
            return self._block(low, high, nodes, sums, outputs, consume)

        for part in _in_order(block, blocks, self._workers(nodes, targets)):
            for node, state in part.items():
                known = states.get(node)
                states[node] = state if known is None else _merge(node, known, state)
        for node in sums:
            results = self._finish(node, states[node])
            self.whole.update(zip(node.outputs, results, strict=True))

    def _workers(self, nodes: Sequence[Node], targets: Iterable[Value]) -> int:
        band = self.plan.band
        assert band is not None
        values = {*targets, *(v for n in nodes for v in n.outputs)}
        shapes = (extents(v.type, self.sizes) for v in values)
        slab = max((int(np.prod(s, dtype=np.int64)) // band.extent for s in shapes), default=1)
        # A block holds a few live values.
        room = min(MEMORY, memory.SHARE * memory.available())
        fitting = int(room // max(slab * self.plan.step * 2 * self.each, 1))
        # What a GPU computes it computes on all of it.
        return 1 if on_gpu() else max(1, min(usable_processors(), 32, fitting))

    def _block(
        self, low: int, high: int, nodes: Sequence[Node], sums: Sequence[Node],
        outputs: Sequence[Value], consume: Consume,
    ) -> dict[Node, Started]:  # fmt: skip
        band = self.plan.band
        assert band is not None
        local = _Block(self, low, high)
        kept = [*outputs, *(v for n in sums for v in n.inputs)]
        for node, dead in zip(nodes, last_uses(nodes, kept), strict=True):
            part = (band.axes[node.output], low, high) if node.output in band.axes else None
            results = self.rules.results(node, local, part)
            local.update(zip(node.outputs, results, strict=True))
            for value in dead:
                local.pop(value, None)
        for value in outputs:
            consume(value, _index(band.axes[value], low, high), local[value])
        return {node: self._start(node, local) for node in sums}

    def _start(self, node: Node, local: Environment) -> Started:
        operands = self.rules.taken(node, [operand_of(o, local) for o in node.operands])
        attributes = evaluate_attributes(node.attributes, self.sizes)
        rules = self.rules.rules(node)
        if node.op.family == "reduction":
            state = reductions.start(node, operands[0], attributes["dims"], rules)
        else:
            state = contractions.start(node, operands, attributes, rules)
        return state, tuple(o.ancestors for o in operands)

    def _finish(self, node: Node, started: Started) -> tuple[Estimate, ...]:
        state, ancestors = started
        rules = self.rules.rules(node)
        if node.op.family == "reduction":
            attributes = evaluate_attributes(node.attributes, self.sizes)
            found = reductions.finish(node, state, attributes, ancestors[0], rules)
        else:
            found = (contractions.finish(node, state, ancestors, rules),)
        return self.rules.marked(node, found)


class _Block(dict[Value, Estimate]):
    """The values of one block; inputs and whole values are sliced when they are read."""

    def __init__(self, part: Part, low: int, high: int) -> None:
        super().__init__()
        self._part, self._low, self._high = part, low, high

    def __missing__(self, value: Value) -> Estimate:
        band = self._part.plan.band
        assert band is not None
        if value not in band.axes:
            return self._part.whole[value]
        index = _index(band.axes[value], self._low, self._high)
        if value in self._part.raw:
            self[value] = Estimate(widen_input(value, self._part.raw[value][index]))
        else:
            self[value] = _block_of(self._part.whole[value], index)
        return self[value]


def _index(axis: int, low: int, high: int) -> Index:
    return (*(slice(None),) * axis, slice(low, high))


def _in_order(
    function: Callable[[int, int], dict[Node, Started]],
    blocks: Sequence[tuple[int, int]],
    workers: int,
) -> Iterator[dict[Node, Started]]:
    if workers == 1:
        yield from (function(*block) for block in blocks)
        return
    with ThreadPoolExecutor(workers) as pool:
        left = iter(blocks)
        # No more blocks in flight than workers: finished parts wait for their turn to be merged.
        running: list[Future[dict[Node, Started]]] = [
            pool.submit(function, *b) for b in islice(left, workers + 2)
        ]
        while running:
            part = running.pop(0).result()
            running += [pool.submit(function, *b) for b in islice(left, 1)]
            yield part


def _block_of(whole: Estimate, index: Index) -> Estimate:
    shape = whole.value.shape
    independent, common, part, most = (
        None if a is None else np.broadcast_to(a, shape)[index]
        for a in (whole.independent, whole.common, whole.part, whole.most)
    )
    return replace(
        whole,
        value=whole.value[index],
        independent=independent,
        common=common,
        part=part,
        alike=None,
        most=most,
        factor=None,
        shared=None,
    )


def _merge(node: Node, a: Started, b: Started) -> Started:
    met = tuple(x | y for x, y in zip(a[1], b[1], strict=True))
    if node.op.family == "reduction":
        return reductions.merge(node, a[0], b[0]), met
    return contractions.merge(a[0], b[0]), met
