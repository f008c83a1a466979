"""A segmentation as data for tools: segments, crossing tensors, bytes, time, decisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusec.dumps.graphs import node_text
from fusec.explain.facts import (
    SCHEMA,
    Crossing,
    Exchange,
    KernelFacts,
    Measured,
    Operation,
    Overridden,
    Recomputed,
    Refused,
    Saved,
    Segmentation,
    SegmentFacts,
    Specialised,
    SumOrder,
    Taken,
)
from fusec.explain.units import time_text
from fusec.hostir.overlap import LoopTime, program_time
from fusec.index.domain import Refusal
from fusec.ir.annotations import Override
from fusec.ir.dim import product
from fusec.ir.graph import Fusion, Node, Value
from fusec.run.transports.carriers import carrier_of
from fusec.segment import roofline
from fusec.segment.protocol import Estimate
from fusec.segment.roofline import Rates
from fusec.segment.segmented import Decision, Segment, SegmentedFusion, tensor_bytes
from fusec.target import Target
from fusec.tuned import Tuned


def describe(
    segmented: SegmentedFusion,
    target: Target,
    *,
    peak_bytes: int,
    occupancy: Sequence[tuple[KernelFacts, ...]] = (),
    orders: Sequence[tuple[SumOrder, ...]] = (),
    specialised: Sequence[tuple[Specialised, ...]] = (),
    hosts: Sequence[str] = (),
    divisions: Sequence[Decision] = (),
    streams: int = 1,
) -> Segmentation:
    """Return the description of a segmentation.

    peak_bytes: from its host program; occupancy: of each segment's kernels, from its plan; orders:
    of each segment's sums, from its plan; specialised: the sizes that are specialized in each;
    hosts: how the host runs each, empty for kernels; divisions: decisions about what ranks run and
    how they add, in addition to those of segments; streams: how many streams loops use round-robin.
    """
    fusion = segmented.fusion
    kept = tuple(_saved(fusion))
    least, rates = roofline.of_fusion(segmented), rates_of(target)
    time = program_time(segmented, target, streams)
    seconds, loops = time.seconds, [_hidden(segmented, loop) for loop in time.loops]
    decisions = [*divisions, *segmented.decisions, *loops]
    return Segmentation(
        schema=SCHEMA,
        fusion=fusion.name,
        target={"arch": target.arch, "device": target.device, "cost_of": target.cost_of},
        mesh={} if fusion.mesh is None else dict(fusion.mesh.axes),
        sizes=dict(fusion.hints),
        aliases={v.name: i.value.name for v, i in fusion.effects.into.items()},
        segments=tuple(
            _segment(s, target, dirty, known, sums, sizes, host)
            for s, dirty, known, sums, sizes, host in zip(
                segmented.segments,
                segmented.dirty(target),
                occupancy or [()] * len(segmented.segments),
                orders or [()] * len(segmented.segments),
                specialised or [()] * len(segmented.segments),
                hosts or [""] * len(segmented.segments),
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
        floor_bytes=least.compulsory_bytes,
        peak_bytes=peak_bytes,
        seconds=seconds,
        share=least.share(seconds, rates),
        tensor_share=least.tensor_share(seconds, rates),
        decisions=tuple(
            Taken(d.action, d.subject, d.because, _refused(d.refusals)) for d in decisions
        ),
    )  # fmt: skip


def _refused(refusals: Iterable[tuple[str, Refusal]]) -> tuple[Refused, ...]:
    return tuple(Refused(name, r.rule, r.because, r.is_near) for name, r in refusals)


def _hidden(segmented: SegmentedFusion, loop: LoopTime) -> Decision:
    """Return the decision that a loop overlaps the communication of slices with its kernels."""
    because = (
        f"{loop.iterations} iterations take {time_text(loop.seconds)}: "
        f"{time_text(loop.exchanges)} of communication overlaps {time_text(loop.kernels)} of "
        "kernels"
    )
    names = tuple(segmented.segments[k].name for k in loop.segments)
    return Decision("overlap", names, because)


def _segment(
    segment: Segment,
    target: Target,
    dirty: int,
    occupancy: tuple[KernelFacts, ...],
    orders: tuple[SumOrder, ...],
    specialised: tuple[Specialised, ...],
    host: str,
) -> SegmentFacts:
    estimate = segment.estimate or Estimate(bytes=0, ctas=0, kernels=0)
    read = {v for n in segment.nodes for v in n.inputs}
    left = 0 if segment.estimate is None else int(max(0, estimate.left_in_l2(target, dirty)))
    least, rates = roofline.of_segment(segment, left), rates_of(target)
    seconds, times = estimate.seconds(target, dirty), segment.iterations
    resources = time_by_resource(estimate, target, dirty)
    return SegmentFacts(
        id=segment.id,
        name=segment.name,
        scheduler=segment.scheduler,
        pin=segment.pin,
        nodes=tuple(_operation(n) for n in segment.nodes),
        inputs=tuple(i.value.name for i in segment.fusion.inputs if i.value in read),
        outputs=tuple(o.value.name for o in segment.fusion.outputs),
        bytes=times * estimate.bytes,
        floor_bytes=times * least.compulsory_bytes,
        l2_bytes=times * least.l2_bytes,
        workspace_bytes=times * estimate.workspace_bytes,
        seconds=times * seconds,
        time={name: times * alone for name, alone in resources.items()},
        bound=_bound(estimate, target, dirty),
        share=least.share(seconds, rates),
        tensor_share=least.tensor_share(seconds, rates),
        ctas=estimate.ctas,
        efficiency=estimate.efficiency,
        kernels=0 if host else estimate.kernels,
        occupancy=occupancy,
        refusals=_refused(segment.refusals),
        why=segment.why,
        orders=orders,
        overrides=tuple(_override(o) for o in segment.overrides),
        chosen=chosen(segment),
        tuned=None if segment.tuned is None else _measured(segment.tuned),
        iterations=times,
        exchange=_exchange(segment, estimate),
        specialised=specialised,
        host=host,
    )


def _bound(estimate: Estimate, target: Target, dirty: int) -> str:
    runs = estimate.kernels or estimate.exchange
    return _key(estimate.bound_by(target, dirty)) if runs else "nothing"


def _exchange(segment: Segment, estimate: Estimate) -> Exchange | None:
    if not estimate.exchange:
        return None
    given, sent = segment.nodes[0].attributes, segment.iterations * estimate.sent
    reduction = given.get("reduction", "")
    carrier = carrier_of(estimate.exchange)
    how = (given["axis"], given["ranks"], reduction, sent, carrier.name, carrier.because)
    return Exchange(segment.nodes[0].op.name, *how)


def chosen(segment: Segment) -> str:
    """Return `set` (by the user), `tuned`, or `priced` (selected by the cost model)."""
    return "set" if segment.overrides else "priced" if segment.tuned is None else "tuned"


def _measured(tuned: Tuned) -> Measured:
    entry = tuned.entry
    about = entry.sizes, entry.us, entry.device, entry.date
    return Measured(tuned.source, tuned.exact, *about, tuned.reordered)


def _override(override: Override) -> Overridden:
    span = override.span
    place = "" if span is None else f"{span.file}:{span.line}"
    return Overridden(override.name, override.value, place)


def rates_of(target: Target) -> Rates:
    """Return the rates that predicted times are compared with."""
    return Rates(target.read_bandwidth, target.half_flops)


def time_by_resource(estimate: Estimate, target: Target, dirty: int) -> dict[str, float]:
    """Return the seconds of each resource when used alone, and those of latency and launches."""
    parts = {_key(name): seconds for name, seconds in estimate.parts(target, dirty).items()}
    latency = {"latency": estimate.latency(target)} if estimate.exchange else {}
    return {**parts, **latency, "launch": estimate.kernels * target.launch}


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
    """Return each tensor between segments, once, in the order of computation."""
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
