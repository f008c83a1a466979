"""A segmented fusion: a DAG of segments, with every decision kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import Any

from fusec.dataclasses import dataclass, replace
from fusec.index.domain import Refusal
from fusec.ir.annotations import Override
from fusec.ir.dim import Dim, product
from fusec.ir.graph import DimFact, Fusion, Input, Node, Output, Value
from fusec.properties import cached_property
from fusec.segment.protocol import Estimate
from fusec.target import Target
from fusec.tuned.entry import Tuned

Refusals = tuple[tuple[str, Refusal], ...]
"""The refusals of a group, by scheduler name."""


@dataclass(frozen=True)
class Segment:
    """Nodes that share a plan: `fusion` is the segment as a fusion of its own.

    refusals: the schedulers that refused it, with their rules. why: the reason for its scheduler. A
    node may belong to several segments: each recomputes it instead of reading it.
    """

    id: int
    scheduler: str
    fusion: Fusion
    estimate: Estimate | None
    refusals: Refusals = ()
    why: str = ""
    pin: str | None = None
    """The name of the pin that fixed its nodes."""
    host: int | None = None
    """The host-level group to which it belongs, if any."""
    overrides: tuple[Override, ...] = ()
    """The user's overrides of its schedule."""
    iterations: int = 1
    """Number of executions, at hint sizes: one per slice inside a loop."""
    tuned: Tuned | None = None
    """The measured schedule that it uses, if there is one and the user sets nothing."""

    @property
    def name(self) -> str:
        """Return `s0`, `s1`, ..."""
        return f"s{self.id}"

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes, in order."""
        return self.fusion.nodes


@dataclass(frozen=True)
class Decision:
    """A merge, boundary or move: what was done to which values, and why.

    refusals: by scheduler, if no scheduler accepts the group; `because` says the same.
    """

    action: str
    subject: tuple[str, ...]
    because: str
    refusals: Refusals = ()


@dataclass(frozen=True)
class Rematerialised:
    """A value that segments recompute, because that moves fewer bytes than storing it.

    segments: the ids of those that recompute it. saved_bytes: the traffic of storing and reading it
    at hint sizes, less what the segments read for it instead. because: the figures as text.
    """

    value: Value
    segments: tuple[int, ...]
    saved_bytes: int
    because: str


@dataclass(frozen=True)
class Edge:
    """A tensor that crosses from one segment to another."""

    producer: int
    consumer: int
    value: Value


@dataclass(frozen=True)
class SegmentedFusion:
    """Segments in execution order; `fusion` may have one copy more than the original.

    rematerialised: the values that are recomputed instead of crossing segments, in order. host: the
    groups that a predicate made without schedulers, inside which these segments lie. uncopied: the
    first results of nodes that are cheap to copy but were grouped anyway, since no scheduler
    supports a segment with a copy of them.
    """

    fusion: Fusion
    segments: tuple[Segment, ...]
    decisions: tuple[Decision, ...] = ()
    rematerialised: tuple[Rematerialised, ...] = ()
    host: SegmentedFusion | None = None
    uncopied: frozenset[str] = frozenset()

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Return every crossing tensor, by producer, then consumer."""
        origin = {o.value: s.id for s in self.segments for o in s.fusion.outputs}
        found = (
            Edge(origin[i.value], s.id, i.value)
            for s in self.segments
            for i in s.fusion.inputs
            if i.value in origin and origin[i.value] != s.id
        )
        return tuple(sorted(found, key=lambda e: (e.producer, e.consumer)))

    def graph(self) -> Any:
        """Return the segments as a networkx DiGraph.

        Nodes are the ids, with `segment`; edges have `values`, the names of the crossing values.
        """
        import networkx

        networks: Any = networkx  # its stubs leave the types of nodes open
        graph = networks.DiGraph()
        graph.add_nodes_from((s.id, {"segment": s}) for s in self.segments)
        for (producer, consumer), edges in groupby(
            self.edges, key=lambda e: (e.producer, e.consumer)
        ):
            graph.add_edge(producer, consumer, values=tuple(e.value.name for e in edges))
        return graph

    def seconds(self, target: Target) -> float:
        """Return the predicted time of all segments, regardless of what runs before or after."""
        estimates = ((s.iterations, s.estimate) for s in self.segments)
        return sum(n * e.seconds(target) for n, e in estimates if e is not None)

    def dirty(self, target: Target) -> tuple[int, ...]:
        """Return the dirty bytes in L2 that remain to be written back when each segment starts.

        Before the first segment, they belong to results of earlier work.
        """
        found: list[int] = []
        waiting = target.write_back
        for segment in self.segments:
            found.append(waiting)
            if segment.estimate is not None:
                rest = max(0, waiting - segment.estimate.moved)
                waiting = min(target.write_back, rest + int(segment.estimate.stored))
        return tuple(found)

    def left_in_l2(self, target: Target) -> tuple[int, ...]:
        """Return how many bytes of each segment never reach memory while it runs, at least 0."""
        return tuple(
            0 if s.estimate is None else max(0, int(s.estimate.left_in_l2(target, dirty)))
            for s, dirty in zip(self.segments, self.dirty(target), strict=True)
        )

    def times(self, target: Target) -> tuple[float, ...]:
        """Return the predicted time of each segment, of all iterations, run alone in this order."""
        return tuple(
            0.0 if s.estimate is None else s.iterations * s.estimate.seconds(target, dirty)
            for s, dirty in zip(self.segments, self.dirty(target), strict=True)
        )

    @property
    def bytes(self) -> int:
        """Return the predicted memory traffic of all segments."""
        estimates = ((s.iterations, s.estimate) for s in self.segments)
        return sum(n * (e.bytes + e.workspace_bytes) for n, e in estimates if e is not None)


def owners(found: SegmentedFusion) -> Mapping[str, int]:
    """Return the segment that owns each node, by its first result: one that stores it, if any."""
    owner: dict[str, int] = {}
    for stored in (True, False):
        for part in found.segments:
            results = {o.value for o in part.fusion.outputs}
            for node in part.nodes:
                if not stored or results.intersection(node.outputs):
                    owner.setdefault(node.output.name, part.id)
    return owner


def extract(
    fusion: Fusion, nodes: Iterable[Node], name: str, results: Collection[Value] | None = None
) -> Fusion:
    """Return nodes as a fusion: inputs are the values they read, outputs the values read outside.

    `results` names the values to output if some of the nodes are also computed elsewhere; an alias
    stays an alias only in the segment that outputs the value.
    """
    chosen = set(nodes)
    place = fusion.position.__getitem__
    ordered = _sizes_from_inside(fusion, tuple(sorted(chosen, key=place)))
    made = {v for n in ordered for v in n.outputs}
    final = fusion.output_of
    outputs: list[Output] = []
    for node in ordered:
        for value in node.outputs:
            outside = any(u not in chosen for u in fusion.users.get(value, ()))
            if (value in final or outside) if results is None else value in results:
                inner = Output(value, strides=fusion.effects.placed(value))
                outputs.append(final.get(value, inner))
    read = dict.fromkeys(v for n in ordered for v in n.inputs if v not in made)
    inputs = (
        *fusion.effects.inputs_for(read, outputs),
        *(Input(v, fusion.effects.strides(v)) for v in read if v not in fusion.input_of),
    )
    dims = () if not fusion.dims else _dims_used(fusion, (*inputs, *outputs), ordered)
    return replace(
        fusion,
        name=name,
        inputs=inputs,
        nodes=ordered,
        outputs=tuple(outputs),
        dims=dims,
        pins=(),
        boundaries="free",
        schedules=(),
    )


def _dims_used(
    fusion: Fusion, ends: Iterable[Input | Output], nodes: Iterable[Node]
) -> tuple[DimFact, ...]:
    """Return the symbols that occur in the sizes of some inputs, outputs and nodes."""
    used = set[str]()
    for entry in ends:
        used.update(*(s.symbols for s in (*entry.value.shape, *(entry.strides or ()))))
    for node in nodes:
        for value in node.outputs:
            used.update(*(s.symbols for s in value.shape))
        for value in (*node.inputs, *node.outputs):
            if value.dim is not None:
                used |= value.dim.symbols
        for attribute in node.attributes.values():
            used.update(*(s.symbols for s in _sizes(attribute)))
    return tuple(d for d in fusion.dims if d.name in used)


def _sizes(attribute: object) -> Iterable[Dim]:
    if isinstance(attribute, Dim):
        yield attribute
    elif isinstance(attribute, tuple):
        for item in attribute:  # pyright: ignore[reportUnknownVariableType]
            yield from _sizes(item)  # pyright: ignore[reportUnknownArgumentType]


def _sizes_from_inside(fusion: Fusion, ordered: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the nodes with `size` reading a tensor that the others read anyway."""
    asking = [n for n in ordered if n.op.family == "scalar" and n.inputs]
    if not asking:
        return ordered
    others = [n for n in ordered if n.op.family != "scalar"]
    made = {v for n in ordered for v in n.outputs}
    read = dict.fromkeys(v for n in others for v in n.inputs if v not in made)
    renewed: dict[Node, Node] = {}
    for node in asking:
        if node.inputs[0] in read or node.inputs[0] in made:
            continue
        places = ((v, k) for v in read for k, e in enumerate(v.shape) if e == node.output.dim)
        found = next(places, None)
        if found is not None:
            attributes = {**node.attributes, "dim": found[1]}
            renewed[node] = replace(node, operands=(found[0],), attributes=attributes)
    return tuple(renewed.get(n, n) for n in ordered)


def tensor_bytes(value: Value, sizes: Mapping[str, int]) -> int:
    """Return the size of a tensor in bytes at `sizes`; 0 for a scalar."""
    if value.is_scalar:
        return 0
    return product(value.shape).evaluate(sizes) * value.dtype.size
