"""What a segmentation is, as data for tools: segments, crossing tensors, bytes, time, decisions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fusec.dumps.graphs import node_text
from fusec.ir.annotations import Override
from fusec.ir.dim import product
from fusec.ir.graph import Fusion, Node, Value
from fusec.segment import roofline
from fusec.segment.protocol import Estimate
from fusec.segment.roofline import Rates
from fusec.segment.segmented import Segment, SegmentedFusion, tensor_bytes
from fusec.target import Target
from fusec.tuned import Tuned

SCHEMA = 2
"""Grows when a key changes its meaning or goes; docs/query.md describes every key."""


@dataclass(frozen=True)
class Operation:
    """A node of a segment by the names of what it reads and makes; `text` is its line."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Refused:
    """A scheduler that does not take a segment, and why."""

    scheduler: str
    rule: str
    reason: str


@dataclass(frozen=True)
class KernelFacts:
    """A kernel of a segment, by how many blocks of it an SM holds, predicted from its plan.

    registers: of a thread; spills: whether it would hold more than its launch bounds leave it.
    built_registers: what the compiler gave it, where that was asked for.
    """

    name: str
    threads: int
    registers: int
    spills: bool
    shared_bytes: int
    resident_blocks: int
    built_registers: int | None = None


@dataclass(frozen=True)
class Overridden:
    """A field of a schedule that the user sets; place: where, as `file:line`."""

    field: str
    value: bool | int | str
    place: str


@dataclass(frozen=True)
class Measured:
    """The measurement that a schedule is taken from; source: its file; exact: of these sizes."""

    source: str
    exact: bool
    sizes: str
    us: float
    device: str
    date: str


@dataclass(frozen=True)
class SegmentFacts:
    """A segment with its price; `time` holds the seconds of each resource used alone."""

    id: int
    name: str
    scheduler: str
    pin: str | None
    nodes: tuple[Operation, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bytes: int
    floor_bytes: int
    workspace_bytes: int
    seconds: float
    time: Mapping[str, float]
    bound: str
    share: float
    tensor_share: float
    ctas: int
    efficiency: float
    kernels: int
    occupancy: tuple[KernelFacts, ...]
    refusals: tuple[Refused, ...]
    why: str
    overrides: tuple[Overridden, ...] = ()
    chosen: str = "priced"
    tuned: Measured | None = None


@dataclass(frozen=True)
class Crossing:
    """A tensor in global memory between segments: written once, read by each consumer."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    producer: int
    consumers: tuple[int, ...]
    is_output: bool
    bytes: int
    bytes_expr: str


@dataclass(frozen=True)
class Recomputed:
    """A value that segments compute again instead of reading it."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    segments: tuple[int, ...]
    saved_bytes: int
    because: str


@dataclass(frozen=True)
class Saved:
    """A tensor that one phase of a joint graph keeps for a later one.

    role: `output` where this phase writes it, `input` where it was kept for this phase.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str
    role: str
    bytes: int
    bytes_expr: str


@dataclass(frozen=True)
class Taken:
    """A decision: what was done to which values or segments, and why."""

    action: str
    subject: tuple[str, ...]
    because: str


@dataclass(frozen=True)
class ChosenSegment:
    """A segment in a choice: who takes what."""

    scheduler: str
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """Sizes of a dim, `first` to `last`, over which segments and schedulers stay the same.

    refused: why there are no segments at these sizes. seconds: predicted at both ends.
    """

    dim: str
    first: int
    last: int
    segments: tuple[ChosenSegment, ...]
    refused: str | None
    seconds: tuple[float, float] | None


@dataclass(frozen=True)
class Exact:
    """How far the bytes are from the fewest: no segmentation moves less than `lower_bytes`.

    fewest_bytes: of the best segmentation that is known, `segments` by the names of its values;
    proven: whether that is the best of all. gap: the part of the bytes that might be saved.
    """

    fewest_bytes: int
    lower_bytes: int
    proven: bool
    gap: float
    method: str
    segments: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Segmentation:
    """The answer to a query; its keys are those of its JSON."""

    schema: int
    fusion: str
    target: Mapping[str, str]
    sizes: Mapping[str, int]
    aliases: Mapping[str, str]
    segments: tuple[SegmentFacts, ...]
    crossing: tuple[Crossing, ...]
    rematerialised: tuple[Recomputed, ...]
    saved: tuple[Saved, ...]
    saved_bytes: int
    bytes: int
    floor_bytes: int
    peak_bytes: int
    seconds: float
    share: float
    tensor_share: float
    decisions: tuple[Taken, ...]
    choices: tuple[Choice, ...] = ()
    exact: Exact | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers."""
        plain: dict[str, Any] = json.loads(self.json())
        return plain

    def json(self) -> str:
        """Return the JSON text."""
        return json.dumps(asdict(self), indent=2)


def describe(
    segmented: SegmentedFusion,
    target: Target,
    *,
    peak_bytes: int,
    occupancy: Sequence[tuple[KernelFacts, ...]] = (),
) -> Segmentation:
    """Return what is known of a segmentation.

    peak_bytes: from its host program; occupancy: of each segment's kernels, from its plan.
    """
    fusion = segmented.fusion
    kept = tuple(_saved(fusion))
    least, rates = roofline.of_fusion(segmented), rates_of(target)
    seconds = sum(segmented.times(target))
    return Segmentation(
        schema=SCHEMA,
        fusion=fusion.name,
        target={"arch": target.arch, "device": target.device},
        sizes=dict(fusion.hints),
        aliases={v.name: i.value.name for v, i in fusion.effects.into.items()},
        segments=tuple(
            _segment(s, target, dirty, known)
            for s, dirty, known in zip(
                segmented.segments,
                segmented.dirty(target),
                occupancy or [()] * len(segmented.segments),
                strict=True,
            )
        ),
        crossing=crossing(segmented),
        rematerialised=tuple(
            Recomputed(
                r.value.name, _shape(r.value), r.value.dtype.name, r.segments, r.saved_bytes,
                r.because,
            )
            for r in segmented.rematerialised
        ),
        saved=kept,
        saved_bytes=sum(s.bytes for s in kept),
        bytes=segmented.bytes,
        floor_bytes=least.fewest_bytes,
        peak_bytes=peak_bytes,
        seconds=seconds,
        share=least.share(seconds, rates),
        tensor_share=least.tensor_share(seconds, rates),
        decisions=tuple(Taken(d.action, d.subject, d.because) for d in segmented.decisions),
    )  # fmt: skip


def _segment(
    segment: Segment, target: Target, dirty: int, occupancy: tuple[KernelFacts, ...]
) -> SegmentFacts:
    estimate = segment.estimate or Estimate(bytes=0, ctas=0, kernels=0)
    read = {v for n in segment.nodes for v in n.inputs}
    least, rates = roofline.of_segment(segment), rates_of(target)
    seconds = estimate.seconds(target, dirty)
    return SegmentFacts(
        id=segment.id,
        name=segment.name,
        scheduler=segment.scheduler,
        pin=segment.pin,
        nodes=tuple(_operation(n) for n in segment.nodes),
        inputs=tuple(i.value.name for i in segment.fusion.inputs if i.value in read),
        outputs=tuple(o.value.name for o in segment.fusion.outputs),
        bytes=estimate.bytes,
        floor_bytes=least.fewest_bytes,
        workspace_bytes=estimate.workspace_bytes,
        seconds=seconds,
        time=time_by_resource(estimate, target, dirty),
        bound=_key(estimate.bound_by(target, dirty)) if estimate.kernels else "nothing",
        share=least.share(seconds, rates),
        tensor_share=least.tensor_share(seconds, rates),
        ctas=estimate.ctas,
        efficiency=estimate.efficiency,
        kernels=estimate.kernels,
        occupancy=occupancy,
        refusals=tuple(Refused(name, r.rule, r.because) for name, r in segment.refusals),
        why=segment.why,
        overrides=tuple(_override(o) for o in segment.overrides),
        chosen=chosen(segment),
        tuned=None if segment.tuned is None else _measured(segment.tuned),
    )


def chosen(segment: Segment) -> str:
    """Return by what a segment's schedule is chosen: `set` by the user, `tuned` or `priced`."""
    return "set" if segment.overrides else "priced" if segment.tuned is None else "tuned"


def _measured(tuned: Tuned) -> Measured:
    entry = tuned.entry
    return Measured(tuned.source, tuned.exact, entry.sizes, entry.us, entry.device, entry.date)


def _override(override: Override) -> Overridden:
    span = override.span
    place = "" if span is None else f"{span.file}:{span.line}"
    return Overridden(override.name, override.value, place)


def rates_of(target: Target) -> Rates:
    """Return the rates by which predicted times are judged."""
    return Rates(target.bandwidth, target.half_flops)


def time_by_resource(estimate: Estimate, target: Target, dirty: int) -> dict[str, float]:
    """Return the seconds that each resource needs by itself, and those of the launches."""
    parts = {_key(name): seconds for name, seconds in estimate.parts(target, dirty).items()}
    return {**parts, "launch": estimate.kernels * target.launch}


def _key(resource: str) -> str:
    return resource.lower().replace(" ", "_")


def _operation(node: Node) -> Operation:
    inputs = tuple(dict.fromkeys(v.name for v in node.inputs))
    return Operation(node.op.name, inputs, tuple(v.name for v in node.outputs), node_text(node))


def _shape(value: Value) -> tuple[int | str, ...]:
    return tuple(e.value if e.is_const else str(e) for e in value.shape)


def _saved(fusion: Fusion) -> Iterable[Saved]:
    given = [(i.value, "input") for i in fusion.inputs]
    for value, role in (*given, *((o.value, "output") for o in fusion.outputs)):
        if value.name in fusion.saved:
            size, expression = tensor_bytes(value, fusion.hints), _bytes_expression(value)
            yield Saved(value.name, _shape(value), value.dtype.name, role, size, expression)


def _bytes_expression(value: Value) -> str:
    return "0" if value.is_scalar else str(product(value.shape) * value.dtype.size)


def crossing(segmented: SegmentedFusion) -> tuple[Crossing, ...]:
    """Return each tensor that segments pass on, once, in the order in which they are made."""
    final = {o.value for o in segmented.fusion.outputs}
    readers: dict[Value, list[int]] = {}
    producers: dict[Value, int] = {}
    for edge in segmented.edges:
        readers.setdefault(edge.value, []).append(edge.consumer)
        producers[edge.value] = edge.producer
    return tuple(
        Crossing(
            value.name,
            _shape(value),
            value.dtype.name,
            producers[value],
            tuple(sorted(consumers)),
            value in final,
            tensor_bytes(value, segmented.fusion.hints),
            _bytes_expression(value),
        )
        for value, consumers in readers.items()
    )
