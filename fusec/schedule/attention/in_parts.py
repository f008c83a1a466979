"""The least time of an attention in several kernels: searches that cannot come below are spared."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from fusec.dataclasses import replace
from fusec.index.demanded import Demand, demand
from fusec.index.movement import pull
from fusec.ir.dim import Dim
from fusec.ir.expression import Var, of_var
from fusec.ir.graph import Fusion, Node, Value
from fusec.schedule.attention.decode.choice import likely_parameters
from fusec.schedule.attention.decode.cost import best_splits, streaming
from fusec.schedule.attention.decode.cost import seconds as decode_seconds
from fusec.schedule.attention.decode.problem import Decode, groups_of, unsupported_extents
from fusec.schedule.attention.forward.choice import FEATURES, compared, why_illegal
from fusec.schedule.attention.forward.cost import seconds as forward_seconds
from fusec.schedule.attention.forward.problem import AttentionGraph
from fusec.schedule.matmul.totals import COLUMNS, ROWS
from fusec.segment.protocol import Estimate
from fusec.segment.traffic import demanded_bytes, elements
from fusec.target import Target


def least_seconds_in_parts(fusion: Fusion, graph: AttentionGraph, target: Target) -> float:
    """Return seconds below which no two or more kernels compute an attention; 0.0 if unknown.

    No node that reads or follows a product's sums is computed twice but elementwise ones, so that
    there are two cases. Both products are in one kernel: it is an attention of the same extents,
    which reads keys and values. Or each has a kernel of its own: then the softmax's reductions have
    another one, since a product's kernel reduces only blocks of its results (`find_totals`).
    """
    if graph.n.evaluate(fusion.hints) in (COLUMNS, ROWS):
        return 0.0
    if not all(_is_needed_whole(fusion, node.output) for node in (graph.first, graph.second)):
        return 0.0
    separate = 3 * target.launch + 2 * target.cost.gemm_start_seconds
    forward, decode = _least_forward(fusion, graph, target), _least_decode(fusion, graph, target)
    return min(separate, forward, decode)


def _is_needed_whole(fusion: Fusion, value: Value) -> bool:
    return demand(fusion).of(value).least == elements(value, fusion.hints)


def _least_forward(fusion: Fusion, graph: AttentionGraph, target: Target) -> float:
    """Return the least seconds of the attention kernel, whichever masks it is given."""
    features = graph.features, graph.value_features
    if not target.has_wgmma or not all(_is_one_of(f, FEATURES) for f in features):
        return inf
    graphs = graph, replace(graph, bounds=())
    legal = [p for p in compared(1) if why_illegal(p, graph, target) is None]
    taken = (forward_seconds(p, each, fusion.hints, target) for p in legal for each in graphs)
    return target.launch + min(taken, default=inf)


def _is_one_of(extent: Dim, known: tuple[int, ...]) -> bool:
    return extent.is_const and extent.value in known


def _least_decode(fusion: Fusion, graph: AttentionGraph, target: Target) -> float:
    """Return the least seconds of the decoding kernel, for any number of heads that share keys."""
    if unsupported_extents(graph) is not None:
        return inf
    moved, found = _read_bytes(fusion, graph), [inf]
    for group in groups_of(graph):
        decode = Decode(fusion, graph, group)
        p = likely_parameters(decode, target)
        if p is None:
            continue
        waits = min(
            decode_seconds(replace(p, splits=splits), decode, moved, fusion.hints, target)
            for splits in best_splits(p, decode, fusion.hints, target)
        ) - streaming(moved, target)
        reach = target.cost.attention_decode.memory_reach
        least = Estimate(
            bytes=moved, written=0, efficiency=reach, ctas=target.sms, waits=max(0.0, waits)
        )
        found.append(least.seconds(target))
    return min(found)


def _read_bytes(fusion: Fusion, graph: AttentionGraph) -> int:
    """Return the bytes of keys and values that a decoding kernel reads, wherever these are made."""
    chains = [list(_sources(fusion, source.value)) for source in graph.sources[1:]]
    read: list[int] = []
    for chain in chains:
        needed = Demand(fusion, chain[:1])
        sizes = fusion.hints
        strides = [tuple(s.evaluate(sizes) for s in _strides(fusion, v)) for v in chain]
        places = zip(chain, strides, strict=True)
        read.append(min(demanded_bytes(needed.of(v), s, v.dtype.size) for v, s in places))
    keys, values = chains
    return max(read) if set(keys).intersection(values) else sum(read)


def _strides(fusion: Fusion, value: Value) -> tuple[Dim, ...]:
    entry = fusion.input_of.get(value)
    return fusion.effects.strides(value) if entry is None else entry.strides


def _sources(fusion: Fusion, value: Value) -> Iterator[Value]:
    """Yield an operand, and the values that it may be read from instead."""
    yield value
    while (node := fusion.producer.get(value)) is not None:
        source = _moved_from(node)
        if source is None:
            return
        value = source
        yield value


def _moved_from(node: Node) -> Value | None:
    """Return what a node moves or converts; None of any other node, whose results are stored."""
    if node.op.converts:
        return node.inputs[0]
    if node.op.access is None or len(node.outputs) != 1:
        return None
    at = tuple(of_var(Var(f"i{k}", extent)) for k, extent in enumerate(node.output.shape))
    branches = pull(node, at).branches
    if len(branches) != 1 or branches[0].conditions:
        return None
    (branch,) = branches
    return branch.operand if isinstance(branch.operand, Value) else None
