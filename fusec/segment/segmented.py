"""A segmented fusion: a DAG of segments, with every decision kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from fusec.index.domain import Refusal
from fusec.ir.dim import Dim, product
from fusec.ir.graph import Fusion, Input, Node, Output, Value
from fusec.segment.protocol import Estimate


@dataclass(frozen=True)
class Segment:
    """Nodes that share a plan: `fusion` is the segment as a fusion of its own."""

    id: int
    scheduler: str
    fusion: Fusion
    estimate: Estimate | None
    refusals: tuple[tuple[str, Refusal], ...] = ()
    why: str = ""

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
    """A merge, boundary or move: what was done to which values, and why."""

    action: str
    subject: tuple[str, ...]
    because: str


@dataclass(frozen=True)
class Edge:
    """A tensor that crosses from one segment to another."""

    producer: int
    consumer: int
    value: Value


@dataclass(frozen=True)
class SegmentedFusion:
    """Segments in execution order."""

    fusion: Fusion
    segments: tuple[Segment, ...]
    decisions: tuple[Decision, ...] = ()

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Return every crossing tensor, by producer, then consumer."""
        origin = {o.value: s.id for s in self.segments for o in s.fusion.outputs}
        return tuple(
            Edge(origin[i.value], s.id, i.value)
            for s in self.segments
            for i in s.fusion.inputs
            if i.value in origin and origin[i.value] != s.id
        )


def extract(fusion: Fusion, nodes: Iterable[Node], name: str) -> Fusion:
    """Return the given nodes as a fusion: inputs are what they read, outputs what is read outside."""
    chosen = set(nodes)
    ordered = tuple(n for n in fusion.nodes if n in chosen)
    made = {v for n in ordered for v in n.outputs}
    read = dict.fromkeys(v for n in ordered for v in n.inputs if v not in made)
    inputs = tuple(
        fusion.input_of[v] if v in fusion.input_of else Input(v, _contiguous(v))
        for v in (*(i.value for i in fusion.inputs if i.value in read),
                  *(v for v in read if v not in fusion.input_of))
    )  # fmt: skip
    final = {o.value: o for o in fusion.outputs}
    outputs: list[Output] = []
    for node in ordered:
        for value in node.outputs:
            outside = any(u not in chosen for u in fusion.users.get(value, ()))
            if value in final:
                outputs.extend(o for o in fusion.outputs if o.value is value)
            elif outside:
                outputs.append(Output(value))
    used = frozenset[str]().union(
        *(s.symbols for i in inputs for s in (*i.value.shape, *i.strides)),
        *(s.symbols for n in ordered for v in n.outputs for s in v.shape),
        *(v.dim.symbols for n in ordered for v in (*n.inputs, *n.outputs) if v.dim is not None),
    )
    dims = tuple(d for d in fusion.dims if d.name in used)
    return replace(
        fusion, name=name, inputs=inputs, nodes=ordered, outputs=tuple(outputs), dims=dims, pins=()
    )


def _contiguous(value: Value) -> tuple[Dim, ...]:
    return tuple(product(value.shape[k + 1 :]) for k in range(value.rank))


def tensor_bytes(value: Value, sizes: Mapping[str, int]) -> int:
    """Return the size of a tensor in bytes at `sizes`; 0 for a scalar."""
    if value.is_scalar:
        return 0
    return product(value.shape).evaluate(sizes) * value.dtype.size


