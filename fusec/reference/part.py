"""Evaluation with expected errors in blocks along one band of axes, in parallel, in bounded memory.

Values outside the band are evaluated whole. A reduction over the band is accumulated over the
blocks, and values that depend on it are evaluated in the next sweep; a streamed value that two
sweeps need is evaluated in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

from fusec.dataclasses import dataclass, replace
from fusec.ir.arrays import computed_by, np, on_gpu
from fusec.ir.evaluate import Array, Sizes, apply_reference, evaluate_attributes, extents
from fusec.ir.graph import Fusion, Node, Value, needed_nodes
from fusec.processors import usable_processors
from fusec.reference import memory
from fusec.reference.axes import Band
from fusec.reference.cost import Costs, speedup, useful_threads
from fusec.reference.errors import contractions, reductions
from fusec.reference.errors.estimate import Estimate
from fusec.reference.errors.nodes import Environment, Model, Nodes, operand_of
from fusec.reference.errors.sums import State
from fusec.reference.evaluate import input_array, last_uses, widen_input
from fusec.reference.sweeps import (
    Plan,
    Sweep,
    choose_plan,
    find_sweeps,
    first_sweep,
    sampled_sweep,
    streamed,
)
from fusec.reference.views import only_moves

MEMORY = 8 << 30
"""Total bytes that blocks in flight may use, if available."""
IN_LIMIT = 2
"""Minimum number of sampled blocks that one processor evaluates within the limit."""

Index = tuple[slice, ...]
Consume = Callable[[Value, Index, Estimate], None]
Started = tuple[State, tuple[int, ...]]
"""The state of a sum over blocks, and its operands' ancestors."""


@dataclass(frozen=True)
class Sampled:
    """Outputs that were evaluated only in some slices, with the axis of each."""

    total: int
    checked: int
    axes: Mapping[str, int]

    def text(self) -> str:
        """Return how many slices along which axes."""
        names = ", ".join(f"axis {a} of {n}" for n, a in self.axes.items())
        return f"{self.checked} of {self.total} slices along {names}"


@dataclass(frozen=True)
class Coverage:
    """Which part of the outputs was evaluated: all but those that were sampled."""

    sampled: tuple[Sampled, ...] = ()

    def text(self) -> str:
        """Return `all`, or the sampled slices."""
        return f"sampled: {'; '.join(s.text() for s in self.sampled)}" if self.sampled else "all"


class Part:
    """The evaluation of some values: the inputs, values known whole, and sweeps over blocks."""

    def __init__(
        self, fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes, wanted: list[Value],
        model: Model, plan: Plan | None = None,
    ) -> None:  # fmt: skip
        """Plan the evaluation of `wanted`, unless a plan is passed."""
        self.fusion, self.sizes, self.wanted = fusion, sizes, wanted
        self.rules = Nodes(fusion, sizes, model)
        self.nodes = needed_nodes(fusion.nodes, wanted)
        self.plan = plan or choose_plan(fusion, self.nodes, sizes, model.hops)
        self.each = memory.DOUBLE * (memory.WITH_ERRORS if model.errors else memory.PLAIN)
        memory.require(fusion, self.needed_bytes())
        self.whole: Environment = {}
        self.raw: dict[Value, Array] = {}
        stored = self._stored(inputs)
        self.sweeps = find_sweeps(self.nodes, wanted, self.plan)
        read = {v for n in self.nodes for v in n.inputs} | set(wanted)
        band = self.plan.band
        for value, array in stored.items():
            if value not in read:
                continue
            if band is not None and value in band.axes:
                self.raw[value] = array
            else:
                self.whole[value] = Estimate(widen_input(value, array))

    def _stored(self, inputs: Mapping[str, Any]) -> dict[Value, Array]:
        """Return inputs and views of them on the host in their own types.

        The nodes of these views are removed from `nodes`, except for those in blocks, which move
        the part of an input that a block reads.
        """
        read = {v for n in self.nodes for v in n.inputs} | set(self.wanted)
        entries = (entry for entry in self.fusion.inputs if entry.value in read)
        stored = {entry.value: input_array(entry, inputs, self.sizes) for entry in entries}
        left = list[Node]()
        for node in self.nodes:
            operand = node.operands[0] if node.operands else None
            if streamed(self.plan, node) or not only_moves(node) or operand not in stored:
                left.append(node)
                continue
            attributes = evaluate_attributes(node.attributes, self.sizes)
            with computed_by(None):
                (stored[node.output],) = apply_reference(node.op, [stored[operand]], attributes)
        self.nodes = left
        return stored

    def needed_bytes(self) -> float:
        """Return approximately how many bytes the evaluation needs, one block at a time."""
        values = {*self.wanted, *(v for n in self.nodes for v in (*n.inputs, *n.outputs))}
        count = {v: int(np.prod(extents(v.type, self.sizes), dtype=np.int64)) for v in values}
        band = self.plan.band
        if band is not None:
            share = self.plan.step / band.extent
            count = {v: int(c * share) if v in band.axes else c for v, c in count.items()}
        return self.each * memory.live_elements(self.nodes, self.wanted, count)

    def run(self, consume: Consume, limit: float, seed: int) -> Coverage:
        """Evaluate, passing every wanted value or block of it to `consume`; return the coverage.

        limit: predicted seconds beyond which slices of the last sweep are sampled.
        """
        if self.plan.band is None:
            self._run_whole(consume)
            return Coverage()
        with memory.keep_freed():
            return self._run_blocks(self.plan.band, consume, limit, seed)

    def _run_blocks(self, band: Band, consume: Consume, limit: float, seed: int) -> Coverage:
        coverage = Coverage()
        for number, sweep in enumerate(self.sweeps):
            for node in self.nodes:
                if (
                    not streamed(self.plan, node)
                    and node not in band.summing
                    and first_sweep(self.plan, node) == number
                ):
                    results = self.rules.results(node, self.whole)
                    self.whole.update(zip(node.outputs, results, strict=True))
            blocks = self._all_blocks(self.plan.step)
            if sweep is sampled_sweep(self.sweeps):
                blocks, coverage = self._sampled_blocks(sweep, limit, seed)
            self._run_sweep(sweep, blocks, consume)
        for value in self.wanted:
            if value not in band.axes:
                consume(value, (), self.whole[value])
        return coverage

    def _run_whole(self, consume: Consume) -> None:
        environment = self.whole
        for node, dead in zip(self.nodes, last_uses(self.nodes, self.wanted), strict=True):
            results = self.rules.results(node, environment)
            environment.update(zip(node.outputs, results, strict=True))
            for value in dead:
                del environment[value]
        for value in self.wanted:
            consume(value, (), environment[value])

    def _all_blocks(self, step: int) -> list[tuple[int, int]]:
        band = self.plan.band
        assert band is not None
        return [(low, min(low + step, band.extent)) for low in range(0, band.extent, step)]

    def _sampled_blocks(
        self, sweep: Sweep, limit: float, seed: int
    ) -> tuple[list[tuple[int, int]], Coverage]:
        band, step = self.plan.band, self.plan.step
        assert band is not None
        each = Costs(self.fusion, self.sizes).of_sweep(sweep)
        share = min(1.0, limit * speedup(usable_processors()) / each) if each else 1.0
        if share < 1:
            # None of the few blocks takes long, on any processor.
            step = int(min(step, max(1.0, limit / IN_LIMIT / each * band.extent)))
        blocks = self._all_blocks(step)
        count = max(3, int(len(blocks) * share))
        if share >= 1 or count >= len(blocks):
            return blocks, Coverage()
        middle = np.random.default_rng(seed).permutation(len(blocks) - 2)[: count - 2] + 1
        blocks = [blocks[k] for k in sorted({0, len(blocks) - 1, *middle.tolist()})]
        checked = sum(high - low for low, high in blocks)
        axes = {v.name: band.axes[v] for v in sweep.outputs}
        return blocks, Coverage((Sampled(band.extent, checked, axes),))

    def _run_sweep(self, sweep: Sweep, blocks: Sequence[tuple[int, int]], consume: Consume) -> None:
        if not sweep.sums and not sweep.outputs:
            return
        states: dict[Node, Started] = {}

        def block(low: int, high: int) -> dict[Node, Started]:
            return self._block(low, high, sweep, consume)

        for part in _in_order(block, blocks, self._workers(sweep)):
            for node, state in part.items():
                known = states.get(node)
                states[node] = state if known is None else _merge(node, known, state)
        for node in sweep.sums:
            results = self._finish(node, states[node])
            self.whole.update(zip(node.outputs, results, strict=True))

    def _workers(self, sweep: Sweep) -> int:
        band = self.plan.band
        assert band is not None
        read = (v for n in sweep.sums for v in n.inputs if v in band.axes)
        values = {*sweep.outputs, *read, *(v for n in sweep.nodes for v in n.outputs)}
        shapes = (extents(v.type, self.sizes) for v in values)
        slab = max((int(np.prod(s, dtype=np.int64)) // band.extent for s in shapes), default=1)
        # A block needs memory for a few live values.
        room = min(MEMORY, memory.SHARE * memory.available())
        fitting = int(room // max(slab * self.plan.step * 2 * self.each, 1))
        # A GPU computes on all of it at once.
        return 1 if on_gpu() else max(1, min(useful_threads(usable_processors()), fitting))

    def _block(self, low: int, high: int, sweep: Sweep, consume: Consume) -> dict[Node, Started]:
        band = self.plan.band
        assert band is not None
        local = _Block(self, low, high)
        kept = [*sweep.outputs, *(v for n in sweep.sums for v in n.inputs)]
        for node, dead in zip(sweep.nodes, last_uses(sweep.nodes, kept), strict=True):
            part = (band.axes[node.output], low, high) if node.output in band.axes else None
            results = self.rules.results(node, local, part)
            local.update(zip(node.outputs, results, strict=True))
            for value in dead:
                local.pop(value, None)
        for value in sweep.outputs:
            consume(value, _index(band.axes[value], low, high), local[value])
        return {node: self._start(node, local) for node in sweep.sums}

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
        # No more blocks in flight than workers: finished parts wait to be merged in order.
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
