"""Evaluation with error bounds in blocks along one band of axes, in parallel, in bounded memory.

Values outside the band are evaluated whole. A reduction over the band is accumulated over the
blocks, and what depends on it waits for the next sweep; a streamed value that two sweeps need is
evaluated in each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from fusec.diagnostics import FusecError
from fusec.ir.evaluate import (
    Array,
    Sizes,
    apply_reference,
    constant,
    evaluate_attributes,
    extents,
    known_scalar,
)
from fusec.ir.graph import Const, Fusion, Node, Operand, Value, needed_nodes
from fusec.ir.op import Part
from fusec.reference.axes import STRETCHED
from fusec.reference.bounds import Bounded, convert_bounded, settle_bounded
from fusec.reference.evaluate import find_values, input_array, last_uses, widen_input
from fusec.reference.node_bounds import bounded_node, contraction_bound, distinct_products
from fusec.reference.reductions import State, finish, merge, reduce_bounded, start
from fusec.reference.selections import selected
from fusec.reference.sweeps import choose_plan, streamed

MEMORY = 8 << 30
"""Bytes that blocks in flight may take together."""

Index = tuple[slice, ...]
Consume = Callable[[Value, Index, Bounded], None]
Environment = dict[Value, Bounded]


@dataclass(frozen=True)
class Coverage:
    """What part of the outputs was evaluated: blocks [low, high) along the band, all or sampled."""

    total: int
    checked: int
    axes: Mapping[str, int]
    complete: bool

    def text(self) -> str:
        """Return `all`, or how much of which axis."""
        if self.complete:
            return "all"
        names = ", ".join(f"axis {a} of {n}" for n, a in self.axes.items())
        return f"sampled: {self.checked} of {self.total} slices along {names}"


def _operand(operand: Operand, environment: Environment) -> Bounded:
    return Bounded(constant(operand)) if isinstance(operand, Const) else environment[operand]


def bounded_results(
    node: Node, environment: Environment, sizes: Sizes, block: tuple[int, int, int] | None = None
) -> tuple[Bounded, ...]:
    """Return the results of a node with bounds; `block` is (axis, low, high) of a part of them."""
    known = [known_scalar(v, sizes) for v in node.outputs]
    if all(k is not None for k in known):
        return tuple(Bounded(k) for k in known if k is not None)
    operands = [_operand(o, environment) for o in node.operands]
    attributes = evaluate_attributes(node.attributes, sizes)
    if block is not None and node.op.name in STRETCHED:
        name = STRETCHED[node.op.name]
        attributes[name] = Part(attributes[name], *block)
    try:
        placed = selected(node, operands, attributes)
    except FusecError as error:
        raise error.at(node.span) from None  # a bad index
    if placed is not None:
        return placed
    if node.op.family == "reduction":
        return reduce_bounded(node, operands[0], attributes)
    return bounded_node(node, operands, attributes)


class Stream:
    """One evaluation: the inputs, what is known whole, and the sweeps over blocks."""

    def __init__(
        self, fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes, wanted: list[Value]
    ) -> None:
        """Plan the evaluation of `wanted`."""
        self.fusion, self.sizes, self.wanted = fusion, sizes, wanted
        self.nodes = needed_nodes(fusion.nodes, wanted)
        self.plan = choose_plan(fusion, self.nodes, sizes)
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
                self.whole[value] = Bounded(widen_input(value, array))

    def run(self, consume: Consume, limit: float, seed: int) -> Coverage:
        """Evaluate, giving every wanted value or block of it to `consume`; return the coverage."""
        if self.plan.band is None:
            self._run_whole(consume)
            return Coverage(1, 1, {}, True)
        band, level = self.plan.band, self.plan.level
        blocks, coverage = self._blocks(limit, seed)
        for sweep in range(max(level.values(), default=0) + 1):
            for node in self.nodes:
                if (
                    not streamed(self.plan, node)
                    and node not in band.summing
                    and self._at(node) == sweep
                ):
                    results = bounded_results(node, self.whole, self.sizes)
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
            results = bounded_results(node, environment, self.sizes)
            environment.update(zip(node.outputs, results, strict=True))
            for value in dead:
                del environment[value]
        for value in self.wanted:
            consume(value, (), environment[value])

    def _blocks(self, limit: float, seed: int) -> tuple[list[tuple[int, int]], Coverage]:
        band, step = self.plan.band, self.plan.step
        assert band is not None
        blocks = [(low, min(low + step, band.extent)) for low in range(0, band.extent, step)]
        axes = {v.name: band.axes[v] for v in self.wanted if v in band.axes}
        work = sum(self._work(node) for node in self.nodes)
        if work > limit and not band.summing and len(axes) == len(self.wanted):
            count = max(3, int(len(blocks) * limit / work))
            if count < len(blocks):
                middle = np.random.default_rng(seed).permutation(len(blocks) - 2)[: count - 2] + 1
                blocks = [blocks[k] for k in sorted({0, len(blocks) - 1, *middle.tolist()})]
        checked = sum(high - low for low, high in blocks)
        return blocks, Coverage(band.extent, checked, axes, checked == band.extent)

    def _work(self, node: Node) -> float:
        count = float(np.prod(extents(node.output.type, self.sizes), dtype=np.float64))
        if node.op.family == "contraction":
            return count * extents(node.operands[0].type, self.sizes)[-1] / 8
        return max(
            [
                count,
                *(
                    float(np.prod(extents(v.type, self.sizes), dtype=np.float64))
                    for v in node.inputs
                ),
            ]
        )

    def _sweep(self, sweep: int, blocks: Sequence[tuple[int, int]], consume: Consume) -> None:
        band, level = self.plan.band, self.plan.level
        assert band is not None
        sums = [n for n in self.nodes if n in band.summing and self._at(n) == sweep]
        outputs = [v for v in self.wanted if v in band.axes and level.get(v, 0) == sweep]
        if not sums and not outputs:
            return
        targets = {*outputs, *(v for n in sums for v in n.inputs if v in band.axes)}
        nodes = [n for n in needed_nodes(self.fusion.nodes, targets) if streamed(self.plan, n)]
        states: dict[Node, State] = {}

        def block(low: int, high: int) -> dict[Node, State]:
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
        # A block holds about twelve live arrays of doubles, bounds among them.
        fitting = MEMORY // max(slab * self.plan.step * 8 * 12, 1)
        return max(1, min(os.cpu_count() or 1, 32, fitting))

    def _block(
        self, low: int, high: int, nodes: Sequence[Node], sums: Sequence[Node],
        outputs: Sequence[Value], consume: Consume,
    ) -> dict[Node, State]:  # fmt: skip
        band = self.plan.band
        assert band is not None
        local = _Block(self, low, high)
        kept = [*outputs, *(v for n in sums for v in n.inputs)]
        for node, dead in zip(nodes, last_uses(nodes, kept), strict=True):
            part = (band.axes[node.output], low, high) if node.output in band.axes else None
            results = bounded_results(node, local, self.sizes, part)
            local.update(zip(node.outputs, results, strict=True))
            for value in dead:
                local.pop(value, None)
        for value in outputs:
            consume(value, _index(band.axes[value], low, high), local[value])
        return {node: self._start(node, local) for node in sums}

    def _start(self, node: Node, local: Environment) -> State:
        operands = [
            convert_bounded(o, _operand(o, local), d)
            for o, d in zip(node.operands, node.compute_dtypes, strict=True)
        ]
        attributes = evaluate_attributes(node.attributes, self.sizes)
        if node.op.family == "reduction":
            return start(node, operands[0], attributes["dims"])
        return _start_contraction(node, operands, attributes)

    def _finish(self, node: Node, state: State) -> tuple[Bounded, ...]:
        if node.op.family == "reduction":
            return finish(node, state, evaluate_attributes(node.attributes, self.sizes))
        return _finish_contraction(node, state)


class _Block(dict[Value, Bounded]):
    """The values of one block; inputs and whole values are sliced when they are read."""

    def __init__(self, stream: Stream, low: int, high: int) -> None:
        super().__init__()
        self._stream, self._low, self._high = stream, low, high

    def __missing__(self, value: Value) -> Bounded:
        band = self._stream.plan.band
        assert band is not None
        if value not in band.axes:
            return self._stream.whole[value]
        index = _index(band.axes[value], self._low, self._high)
        if value in self._stream.raw:
            self[value] = Bounded(widen_input(value, self._stream.raw[value][index]))
        else:
            whole = self._stream.whole[value]
            shape = whole.value.shape
            parts = [
                None if p is None else np.broadcast_to(p, shape)[index]
                for p in (whole.bound, whole.doubt)
            ]
            self[value] = Bounded(whole.value[index], *parts)
        return self[value]


def _index(axis: int, low: int, high: int) -> Index:
    return (*(slice(None),) * axis, slice(low, high))


def _in_order(
    function: Callable[[int, int], dict[Node, State]],
    blocks: Sequence[tuple[int, int]],
    workers: int,
) -> Iterator[dict[Node, State]]:
    if workers == 1:
        yield from (function(*block) for block in blocks)
        return
    with ThreadPoolExecutor(workers) as pool:
        left = iter(blocks)
        # No more blocks in flight than workers: finished parts wait for their turn to be merged.
        running: list[Future[dict[Node, State]]] = [
            pool.submit(function, *b) for b in islice(left, workers + 2)
        ]
        while running:
            part = running.pop(0).result()
            running += [pool.submit(function, *b) for b in islice(left, 1)]
            yield part


def _merge(node: Node, a: State, b: State) -> State:
    if node.op.family == "reduction":
        return merge(node, a, b)
    return {k: a[k] + b[k] for k in a}


def _start_contraction(
    node: Node, operands: Sequence[Bounded], attributes: Mapping[str, Any]
) -> State:
    def operation(arrays: Sequence[Array]) -> Array:
        return apply_reference(node.op, arrays, attributes)[0]

    product = operation([o.value for o in operands])
    magnitude = operation([np.abs(o.value) for o in operands])
    bound = contraction_bound(
        operation, operands, product, magnitude, 0, node.output.dtype, own=False
    )
    state: State = {
        "count": np.asarray(operands[0].value.shape[-1]), "out": product, "magnitude": magnitude,
        "distinct": np.asarray(distinct_products(node, operands)),
    }  # fmt: skip
    return state if bound is None else state | {"bounds": bound}


def _finish_contraction(node: Node, state: State) -> tuple[Bounded, ...]:
    bound = contraction_bound(
        None, (), state["out"], state["magnitude"], int(state["count"]), node.output.dtype,
        distinct=int(state["distinct"]),
    )  # fmt: skip
    if "bounds" in state:
        bound = state["bounds"] if bound is None else bound + state["bounds"]
    return (settle_bounded(node, node.output, state["out"], bound, None),)


def evaluate_with_bounds(
    fusion: Fusion, inputs: Mapping[str, Any], sizes: Sizes, wanted: Iterable[str] | None = None
) -> dict[str, Bounded]:
    """Return the values named `wanted` (the outputs for None) with their error bounds, in full."""
    values, found, shapes = find_values(fusion, wanted), dict[str, Bounded](), dict[str, Any]()

    def consume(value: Value, index: Index, part: Bounded) -> None:
        shape = extents(value.type, sizes)
        if not index:
            found[value.name] = part
            return
        full = shapes.setdefault(
            value.name, (np.zeros(shape, part.value.dtype), np.zeros(shape), np.zeros(shape, bool))
        )
        for array, piece in zip(full, (part.value, part.bound, part.doubt), strict=True):
            array[index] = False if piece is None else piece

    Stream(fusion, inputs, sizes, values).run(consume, float("inf"), 0)
    for name, (value, bound, doubt) in shapes.items():
        found[name] = Bounded(value, bound if bound.any() else None, doubt if doubt.any() else None)
    return found
