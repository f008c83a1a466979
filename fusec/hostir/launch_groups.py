"""Grouping of segments into loops over streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fusec.dataclasses import dataclass
from fusec.diagnostics import InternalError
from fusec.ir.dim import Dim
from fusec.ir.graph import Node, Value
from fusec.ops.communication import (
    LEAVE,
    PEER_VIEWS,
    PLACEMENT,
    RANK_SLICE,
    RECEIVE_SLICE,
    SEND_SLICE,
    STREAM_SLICE,
    communicates,
    places,
)
from fusec.schedule.plan import KernelPlan
from fusec.segment.loops import loops
from fusec.segment.segmented import Segment, SegmentedFusion


@dataclass(frozen=True)
class LaunchGroup:
    """A unit of a program: one segment, or a loop over several.

    segments: by number, in order. parts: the iterations of a loop; None for a segment that runs
    once. axis: the mesh axis of the ring that the loop's slices go around.
    """

    segments: tuple[int, ...]
    parts: Dim | None = None
    axis: str | None = None


def alone(segment: Segment) -> Node | None:
    """Return the single node of a segment that communicates or places a tensor, else None."""
    node = segment.nodes[0] if len(segment.nodes) == 1 else None
    return node if node is not None and (communicates(node) or places(node)) else None


def is_copied(plan: KernelPlan) -> bool:
    """Return whether a part and the tensor that contains it have separate memory."""
    if plan.scheduler != PLACEMENT:
        return False
    from fusec.schedule.host.communication import Placed

    return isinstance(plan.parameters, Placed) and plan.parameters.copied


def ring(node: Node | None) -> str | None:
    """Return the mesh axis of the ring that a node's slices go around, if there is one."""
    goes = node is not None and node.op in (RECEIVE_SLICE, SEND_SLICE)
    return node.attributes["axis"] if node is not None and goes else None


def gathers(node: Node | None) -> str | None:
    """Return the mesh axis along which a node needs the same slice of all ranks, if any."""
    waits = node is not None and communicates(node) and ring(node) is None
    return node.attributes["axis"] if node is not None and waits else None


def views_of(segment: Segment, plan: KernelPlan) -> Iterator[tuple[str, str]]:
    """Yield each result of a segment that is a part of another tensor, with that tensor."""
    yield from ((v.name, v.base) for v in plan.views)
    node = alone(segment)
    if node is not None and node.op in (RANK_SLICE, STREAM_SLICE) and not is_copied(plan):
        yield node.output.name, node.inputs[0].name
    if node is not None and node.op is PEER_VIEWS:
        yield from ((view.name, node.inputs[0].name) for view in node.outputs)


def varying(segmented: SegmentedFusion) -> dict[Value, Dim]:
    """Return the values that differ in each iteration of a loop, with the number of iterations."""
    counts = loops(segmented.fusion).items()
    inside = ((n, c) for n, c in counts if n.op not in LEAVE)
    return {value: count for node, count in inside for value in node.outputs}


def launch_groups_of(segmented: SegmentedFusion) -> tuple[LaunchGroup, ...]:
    """Return groups of segments, once or in loops, in an order that makes loops large.

    A loop starts where nothing else can run first; all segments whose operands are available by
    then join it.
    """
    grouping = _Grouping(segmented)
    return tuple(grouping.groups())


class _Grouping:
    """The grouping of a program's segments in progress; `left`: segments not in a group yet."""

    def __init__(self, segmented: SegmentedFusion) -> None:
        self.segments = segmented.segments
        self.varying, self.counts = varying(segmented), loops(segmented.fusion)
        self.parts = [self._parts_of(s) for s in self.segments]
        self.left = dict.fromkeys(range(len(self.segments)))
        self.after = [tuple(self._before(k)) for k in self.left]
        self.maker = {o.value: k for k, s in enumerate(self.segments) for o in s.fusion.outputs}

    def _parts_of(self, segment: Segment) -> Dim | None:
        found = {self.counts[node] for node in segment.nodes if node in self.counts}
        if not found:
            return None
        if len(found) > 1 or (
            alone(segment) is None
            and any(o.value not in self.varying for o in segment.fusion.outputs)
        ):
            raise InternalError(f"segment {segment.name} is of several loops")
        return found.pop()

    def _before(self, number: int) -> Iterator[int]:
        """Yield the segments that read what another one overwrites."""
        fusion = self.segments[number].fusion
        targets = {i.value for i in fusion.effects.into.values()}
        for k, segment in enumerate(self.segments[: number if targets else 0]):
            if any(i.value in targets for i in segment.fusion.inputs):
                yield k

    def groups(self) -> Iterator[LaunchGroup]:
        """Yield the groups in order."""
        while self.left:
            once = next((k for k in self.left if self.parts[k] is None and self._ready(k)), None)
            if once is not None:
                del self.left[once]
                yield LaunchGroup((once,))
                continue
            first = next((k for k in self.left if self._joins(k, self.parts[k], None, ())), None)
            if first is None:
                raise InternalError("segments wait for one another")
            yield self._loop(first)

    def _loop(self, first: int) -> LaunchGroup:
        parts, axis, inside = self.parts[first], None, list[int]()
        while True:
            found = next((k for k in self.left if self._joins(k, parts, axis, inside)), None)
            if found is None:
                return LaunchGroup(tuple(inside), parts, axis)
            axis = axis or ring(alone(self.segments[found]))
            inside.append(found)
            del self.left[found]

    def _turns(self, number: int, axis: str | None, inside: Sequence[int]) -> bool:
        """Return whether a segment can process slices in a loop's order.

        In a ring each rank starts with a different slice: segments that need the same slice on all
        ranks at a time go to another loop.
        """
        node = alone(self.segments[number])
        own, along = ring(node), gathers(node)
        if along is not None and along == axis:
            return False
        same = (gathers(alone(self.segments[k])) for k in inside)
        return own is None or (axis in (None, own) and own not in same)

    def _joins(
        self, number: int, parts: Dim | None, axis: str | None, inside: Sequence[int]
    ) -> bool:
        fits = self.parts[number] == parts and self._turns(number, axis, inside)
        if not fits or not self._ready(number, inside):
            return False
        if not self._slices(number):
            return True
        # A slice exists in its loop only: it is taken where something reads it.
        made = self.segments[number].nodes[0].output
        return any(
            k in self.left and self._ready(k, inside, slices=True)
            for k, segment in enumerate(self.segments)
            if any(i.value is made for i in segment.fusion.inputs)
        )

    def _slices(self, number: int) -> bool:
        node = alone(self.segments[number])
        return node is not None and node.op is STREAM_SLICE

    def _ready(self, number: int, inside: Iterable[int] = (), *, slices: bool = False) -> bool:
        """Return whether all operands are available; a loop's own results only are after it.

        slices: whether slices that can be taken now count as available.
        """
        own = frozenset(inside)
        needed = (self.maker.get(i.value) for i in self.segments[number].fusion.inputs)
        waits = {k for k in (*self.after[number], *needed) if k in self.left}
        if any(not (slices and self._slices(k) and self._ready(k, inside)) for k in waits):
            return False
        values = (i.value for i in self.segments[number].fusion.inputs)
        return all(v in self.varying for v in values if self.maker.get(v) in own)
