"""Plan the evaluation of a large fusion: the axes of its blocks, and its sequence of sweeps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from fusec.dataclasses import dataclass
from fusec.ir.arrays import np, on_gpu
from fusec.ir.evaluate import Sizes, extents
from fusec.ir.graph import Fusion, Node, Value, needed_nodes
from fusec.reference.axes import Band, find_bands

BLOCK_ELEMENTS = 1 << 17
"""Elements of the largest value of one block: a few arrays of doubles fit in the L2 cache of a
processor, and malloc reuses their memory; large for NumPy. With 1 << 19, page faults alone take a
tenth of the time (Xeon, 2 MiB of L2 cache, NumPy 2.3, 2026-11)."""
LARGE_BLOCKS = 32
"""Blocks in one slice above which another sweep costs less."""
PRODUCT_ELEMENTS = 1 << 23
"""The same for GEMMs: smaller blocks would read the other matrix too often."""
GPU_ELEMENTS = 1 << 23
"""The same on a GPU: each operation has a launch latency of some microseconds there."""
WHOLE_ELEMENTS = 1 << 20
"""Fusions with values no larger than this are evaluated in one piece."""


@dataclass(frozen=True)
class Plan:
    """How a fusion is evaluated: along a band in blocks, or whole."""

    band: Band | None
    step: int
    level: Mapping[Value, int]
    """The sweep after which a whole value, or in which a streamed one, is known."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """One pass over the blocks: the nodes evaluated, the sums computed, and the outputs known."""

    nodes: Sequence[Node]
    sums: Sequence[Node]
    outputs: Sequence[Value]


def find_sweeps(nodes: Sequence[Node], wanted: Sequence[Value], plan: Plan) -> list[Sweep]:
    """Return the sweeps that evaluate `wanted` by `nodes`; none if nothing is in blocks.

    Results of sums of earlier sweeps are known whole: nodes needed only by these are not evaluated
    again.
    """
    band, level = plan.band, plan.level
    if band is None:
        return []
    inside, found = [n for n in nodes if streamed(plan, n)], list[Sweep]()
    for number in range(max(level.values(), default=0) + 1):
        sums = [n for n in nodes if n in band.summing and first_sweep(plan, n) == number]
        outputs = [v for v in wanted if v in band.axes and level.get(v, 0) == number]
        read = (v for n in sums for v in n.inputs if v in band.axes)
        found.append(Sweep(needed_nodes(inside, (*outputs, *read)), sums, outputs))
    return found


def sampled_sweep(sweeps: Sequence[Sweep]) -> Sweep | None:
    """Return the last sweep, whose blocks may be sampled, unless sums need them all."""
    return sweeps[-1] if sweeps and sweeps[-1].outputs and not sweeps[-1].sums else None


def first_sweep(plan: Plan, node: Node) -> int:
    """Return the first sweep in which all operands of a node are known, earlier sweeps included."""
    return max((plan.level.get(v, 0) for v in node.inputs), default=0)


def streamed(plan: Plan, node: Node) -> bool:
    """Return whether the results of `node` are evaluated in blocks."""
    band = plan.band
    if band is None or node in band.summing or node.output.is_scalar:
        return False
    return node in band.unbound or any(v in band.axes for v in node.inputs)


def choose_plan(
    fusion: Fusion, nodes: Sequence[Node], sizes: Sizes, whole_sums: Collection[str] = (), *,
    in_full: Callable[[Plan], float] | None = None,
) -> Plan:  # fmt: skip
    """Return the plan with the fewest elements evaluated whole.

    whole_sums: names of sums that need all of their terms at once. in_full: the cost of what cannot
    be sampled; the plan with the least is preferred.
    """
    shape = {v: extents(v.type, sizes) for v in fusion.values}
    count = {v: int(np.prod(s, dtype=np.int64)) for v, s in shape.items()}
    used = dict.fromkeys(
        (*(v for n in nodes for v in n.inputs), *(v for n in nodes for v in n.outputs))
    )
    largest = max((count[v] for v in used), default=0)
    whole = Plan(None, 1, {})
    if largest <= WHOLE_ELEMENTS:
        return whole
    multiplies = any(n.op.family == "contraction" for n in nodes)
    block = PRODUCT_ELEMENTS if multiplies else BLOCK_ELEMENTS
    block = max(block, GPU_ELEMENTS) if on_gpu() else block
    best: tuple[tuple[float, ...], Plan] | None = None
    for band in find_bands(fusion, nodes, sizes):
        if any(node.output.name in whole_sums for node in band.summing):
            continue
        plan = Plan(band, 1, _levels(nodes, band))
        inside = [v for n in nodes if streamed(plan, n) for v in n.outputs]
        slab = max((count[v] // band.extent for v in (*inside, *band.axes)), default=1)
        left = sum(count[v] for n in nodes if not streamed(plan, n) for v in n.outputs)
        sweeps = max(plan.level.values(), default=0)
        # Blocks that do not fit the caches cost more than another sweep.
        excess = max(slab - LARGE_BLOCKS * BLOCK_ELEMENTS, 0)
        full = 0.0 if in_full is None else in_full(plan)
        cost = (full, left + excess, sweeps, len(band.summing), -band.extent)
        plan = Plan(band, max(1, block // max(slab, 1)), plan.level)
        if (inside or band.summing) and (best is None or cost < best[0]):
            best = (cost, plan)
    return whole if best is None else best[1]


def _levels(nodes: Sequence[Node], band: Band) -> dict[Value, int]:
    level: dict[Value, int] = {}
    for node in nodes:
        own = max((level.get(v, 0) for v in node.inputs), default=0)
        for value in node.outputs:
            level[value] = own + (node in band.summing)
    return level
