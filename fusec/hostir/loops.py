"""Lowers segments to instructions: kernels, communication and views, once or in loops."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import gcd

from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import InternalError, Unsupported
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Copy,
    For,
    GetStream,
    Instruction,
    Memset,
    Post,
    Receive,
    Send,
    SetStream,
    Share,
    Synchronize,
    Unshare,
    Wait,
)
from fusec.hostir.launch_groups import LaunchGroup, alone, is_copied, ring, varying
from fusec.hostir.placing import Lowering
from fusec.hostir.program import Buffer, dense_strides
from fusec.hostir.shared import copied_argument
from fusec.ir.dim import (
    Dim,
    ceildiv,
    dim,
    floordiv,
    maximum,
    minimum,
    mod,
    product,
    symbol,
)
from fusec.ir.effects import ALIGNMENT, slices_overlap
from fusec.ir.graph import Input, Node, Value
from fusec.ir.sharding import Mesh
from fusec.ops.communication import (
    BROADCAST,
    PEER_VIEWS,
    RANK_SLICE,
    RECEIVE_SLICE,
    SEND_SLICE,
    STREAM_SLICE,
    STREAM_STACK,
    Ranks,
    holders,
)
from fusec.schedule.plan import HostPlan, KernelPlan
from fusec.segment.segmented import Segment


def place_of(axis: str) -> Dim:
    """Return this rank's index along an axis of the mesh."""
    return symbol(f"{axis}.place", extent=False)


def _is_one_of(mesh: Mesh, ranks: Ranks) -> Dim:
    """Return 1 on some ranks of a mesh, and 0 on others."""
    places = {axis: mesh.places(ranks, axis) for axis, _ in mesh.axes}
    if mesh.block(places) == ranks:
        return product(_stands_at(axis, places[axis], size) for axis, size in mesh.axes)
    each = (
        product(_stands_at(axis, {at}, mesh.extent(axis)) for axis, at in mesh.place(r).items())
        for r in sorted(ranks)
    )
    return sum(each, dim(0))


def _stands_at(axis: str, places: Collection[int], size: int) -> Dim:
    """Return 1 if this rank's index along an axis is one of `places`, else 0."""
    if len(places) == size:
        return dim(1)
    place = place_of(axis)
    apart = (maximum(place - at, at - place) for at in sorted(places))
    return sum((1 - minimum(each, 1) for each in apart), dim(0))


@dataclass(frozen=True)
class _Loop:
    """The loop that contains an instruction: its index, and the slice number of an iteration.

    stream: of an iteration; kernels: the stream of its kernels, if distinct. first: in a ring, the
    offset from a rank's own index at which it starts. An iteration whose slice overlaps the
    previous one runs on the same stream.
    """

    name: str
    parts: Dim
    index: Dim
    slice: Dim
    stream: Dim
    kernels: Dim | None = None
    first: int = 0

    def other(self, node: Node) -> Dim:
        """Return the index of the rank that processes this rank's own slice in an iteration.

        It receives the slice from this rank where slices are received, and sends its result to this
        rank where they are sent.
        """
        given = node.attributes
        step = floordiv(self.index, dim(given["pieces"])) + self.first
        return mod(place_of(given["axis"]) - step, dim(given["ranks"]))


def _aligned(elements: Dim, size: int) -> Dim:
    """Return the smallest aligned number of elements that is not less than `elements`."""
    unit = ALIGNMENT // gcd(ALIGNMENT, size)
    if all(factor % unit == 0 for _, factor in elements.terms):
        return elements
    return ceildiv(elements, unit) * unit


Turn = tuple[Dim, Dim]
"""In a loop over several dims: (consecutive iterations with the same slice, slices of the dim)."""


@dataclass(frozen=True)
class _PartOf:
    """A value in a loop that is a part of another one: at an offset, or one slice per iteration.

    turn: for slices of one of several dims. extent, last: if the last slice overlaps the one before
    it, the elements of a slice along its dim, and where the last one begins; `step` is then the
    stride in elements along the dim.
    """

    of: str
    offset: Dim | None
    step: Dim
    extent: Dim = field(default_factory=lambda: dim(1))
    last: Dim | None = None
    turn: Turn | None = None

    def alias(self, name: str, loop: _Loop) -> Alias:
        """Return the instruction that aliases it, in the iterations of a loop."""
        if self.offset is not None:
            return Alias(name, self.of, self.offset)
        number = loop.slice
        if self.turn is not None:
            inner, parts = self.turn
            number = mod(floordiv(number, inner), parts)
        begin = number * self.extent
        begin = begin if self.last is None else minimum(begin, self.last)
        return Alias(name, self.of, begin * self.step)


def _turn(node: Node) -> Turn | None:
    """Return which slice of a dim an iteration has, where a loop divides several dims."""
    inner: Dim | None = node.attributes.get("inner")
    return None if inner is None else (inner, node.attributes["parts"])


class Lowered:
    """Emits the instructions of launch groups, and the buffers that they need."""

    def __init__(self, state: Lowering, streams: int) -> None:
        """Start without loops."""
        self.state, self.streams = state, streams
        self.segments, self.plans = state.segmented.segments, state.plans
        self.final = {o.value for o in state.segmented.fusion.outputs}
        self.varying = varying(state.segmented)
        self.holders = holders(state.segmented.fusion)
        self.conditions = 0
        self.ahead: list[Instruction] = []
        self.loops = 0
        self._parts: dict[str, _PartOf] = {}
        self._owned: set[str] = set()
        self.shared: list[Share] = []
        self._theirs: set[str] = set()
        shared = (s for s, p in zip(self.segments, self.plans, strict=True) if not is_copied(p))
        stacks = (n for s in shared if (n := alone(s)) and n.op is STREAM_STACK)
        self.stack_of = {node.inputs[0]: node for node in stacks}

    def memory(self, name: str) -> str | None:
        """Return the buffer of a value, or of all its slices; None for a part of another."""
        if name in self._theirs:
            return None
        if name not in self._parts:
            return name
        return self._parts[name].of if name in self._owned else None

    def unshared(self, last_read: Mapping[str, int], index: int) -> list[Unshare]:
        """Return an `Unshare` for each shared buffer whose last reader is the group at `index`."""
        over = [s for s in self.shared if all(last_read.get(v, 0) <= index for v in s.views)]
        self.shared = [s for s in self.shared if s not in over]
        return [Unshare(s.source, s.views, s.axis) for s in over]

    def group(self, group: LaunchGroup) -> list[Instruction]:
        """Return the instructions of one group."""
        if group.parts is None:
            (number,) = group.segments
            return list(self._segment(self.segments[number], self.plans[number], None))
        return self._loop(group, group.parts)

    def _loop(self, group: LaunchGroup, parts: Dim) -> list[Instruction]:
        self._check_in_place(group)
        name, self.ahead = f"loop{self.loops}", []
        self.loops += 1
        index = symbol(f"{name}.index", extent=False)
        caller, stream = f"{name}.caller", 1 + mod(self._number(group, index), self.streams)
        loop = self._around(group, _Loop(name, parts, index, index, stream))
        around = symbol(caller, extent=False)
        kernels = stream if loop.kernels is None else loop.kernels
        body: list[Instruction] = [GetStream(caller), SetStream(kernels), Synchronize(around)]
        if loop.kernels is not None:
            body.append(Synchronize(stream))  # whose last slice may have the memory of this one
        body += self._from_other_loops(group, loop)
        for number in group.segments:
            body += self._segment(self.segments[number], self.plans[number], loop)
        if loop.kernels is not None:
            body += [SetStream(stream), Synchronize(loop.kernels)]
        body += [SetStream(around), Synchronize(stream)]
        return [*self.ahead, For(f"{name}.index", parts, tuple(body), self.streams)]

    def _number(self, group: LaunchGroup, index: Dim) -> Dim:
        """Return the number that determines the stream of an iteration.

        It is the loop's index, except that overlapping slices share a stream: if the last slice
        overlaps the one before it, they are written one after the other.
        """
        nodes = [alone(self.segments[k]) for k in group.segments]
        overlapping = [n for n in nodes if n is not None and slices_overlap(n)]
        if overlapping and group.axis is not None:
            raise Unsupported(
                "slices that are not equal, in a loop around ranks", span=overlapping[0].span
            )
        for node in overlapping:
            source, made = node.inputs[0].shape, node.output.shape
            part, whole = (source, made) if node.op is STREAM_STACK else (made, source)
            at: int = node.attributes["dim"]
            extent = maximum(part[at], 1)
            index = minimum(index, floordiv(whole[at] - part[at], extent))
        return index

    def _around(self, group: LaunchGroup, loop: _Loop) -> _Loop:
        """Return a loop with its slices in ring order.

        Where slices are received, each rank starts with its own, since those of others are still in
        flight; where they are sent, it ends with its own, so that computation hides the last send.
        In the latter case kernels run on one stream, since nothing else would keep their order.
        """
        if group.axis is None:
            return loop
        nodes = [n for k in group.segments if (n := alone(self.segments[k])) and ring(n)]
        pieces = nodes[0].attributes["pieces"]
        sends = not any(n.op is RECEIVE_SLICE for n in nodes)
        begin = (place_of(group.axis) + sends) * pieces
        return replace(
            loop,
            slice=mod(loop.index + begin, loop.parts),
            kernels=dim(self.streams + 1) if sends and self.streams > 1 else None,
            first=int(sends),
        )

    def _check_in_place(self, group: LaunchGroup) -> None:
        """Raise Unsupported where an iteration would read what another one has overwritten."""
        into = self.state.segmented.fusion.effects.into
        parts = [self.segments[k] for k in group.segments]
        written = {v: into[v].value for s in parts if (v := s.nodes[-1].output) in into}
        for value, target in written.items():
            others = (s.fusion for s in parts if s.nodes[-1].output is not value)
            if any(i.value is target for fusion in others for i in fusion.inputs):
                raise Unsupported(
                    f"output `{value.name}` is written to `{target.name}` slice by slice, in a "
                    "loop that reads it",
                    span=self.state.segmented.fusion.output_of[value].span,
                )

    def _from_other_loops(self, group: LaunchGroup, loop: _Loop) -> Iterator[Instruction]:
        """Yield views of the slices that the loop reads and earlier loops produced."""
        own = [self.segments[k].fusion for k in group.segments]
        there = {o.value.name for fusion in own for o in fusion.outputs}
        for name in dict.fromkeys(i.value.name for fusion in own for i in fusion.inputs):
            yield from self._again(name, loop, there)

    def _again(self, name: str, loop: _Loop, there: set[str]) -> Iterator[Instruction]:
        """Yield the alias of a part of another tensor in this loop, unless it exists already."""
        if name in self._parts and name not in there:
            there.add(name)
            yield from self._again(self._parts[name].of, loop, there)
            yield self._parts[name].alias(name, loop)

    def _segment(
        self, segment: Segment, plan: KernelPlan, loop: _Loop | None
    ) -> Iterator[Instruction]:
        node = alone(segment)
        if node is not None:
            copies = is_copied(plan)
            yield from (self._copied if copies else self._alone)(node, segment, loop)
            return
        views = {v.name: v for v in plan.views}
        for value in (o.value for o in segment.fusion.outputs):
            if value.name in views:
                if value in self.stack_of:
                    raise InternalError(f"`{value.name}`, a view, is to be stacked")
                view, role = views[value.name], "output" if value in self.final else "temporary"
                self.state.add(Buffer(value.name, role, value.dtype, view.shape, view.strides))
                yield self._lying(value, view.base, view.offset, loop)
            elif value in segment.fusion.effects.into and value not in self.final:
                yield self._in_place(value, segment.fusion.effects.into[value], loop)
            elif value not in self.final:
                yield self._place(value, loop)
        body: tuple[Instruction, ...] = ()
        if plan.runs_as_post:
            inputs = tuple(i.value.name for i in segment.fusion.inputs)
            made = (o.value.name for o in segment.fusion.outputs)
            body = (Post(segment.name, inputs, tuple(n for n in made if n not in views)),)
        elif plan.host is not None:
            body = tuple(self._on_host(plan.host))
        if body:
            yield from body if loop is not None else self._on_ranks(segment, body)

    def _on_host(self, plan: HostPlan) -> Iterator[Instruction]:
        """Yield the copies and fills of a segment without kernels."""
        yield from map(Memset, plan.zeros)
        for number, copy in enumerate(plan.copies):
            source, target = copy.source, self.state.buffers[copy.target]
            part = replace(source, base=target.name, offset=copy.offset, strides=target.strides)
            ends: list[str] = []
            for view, name in ((part, "part"), (source, "source")):
                base = self.state.buffers[view.base]
                layout = Buffer("", "temporary", base.dtype, view.shape, view.strides)
                ends.append(base.name)
                if (layout.shape, layout.strides, view.offset) != (base.shape, base.strides, 0):
                    ends[-1] = f"{target.name}.{name}{number}"
                    self.state.add(replace(layout, name=ends[-1]))
                    yield Alias(ends[-1], base.name, view.offset)
            yield Copy(*ends)

    def _on_ranks(self, segment: Segment, body: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
        """Return the instructions that run a segment only on the ranks that hold its results.

        They are a loop of one iteration there, and of none elsewhere.
        """
        ranks = self.holders.get(segment.nodes[-1].output)
        mesh = self.state.segmented.fusion.mesh
        if ranks is None or mesh is None:
            return body
        number, self.conditions = self.conditions, self.conditions + 1
        index, there = f"on{number}.index", _is_one_of(mesh, ranks)
        return (For(index, there, body),)

    # -- memory

    def _place(self, value: Value, loop: _Loop | None) -> Instruction:
        """Return the instruction that places a result; in a loop, its part of the whole buffer."""
        stack = self.stack_of.get(value)
        if stack is not None and loop is not None:
            return self._in_stack(value, stack, loop)
        strides = dense_strides(value.shape)
        self.state.add(Buffer(value.name, "temporary", value.dtype, value.shape, strides))
        if loop is None:
            return Allocate(value.name)
        name, shape = f"{value.name}.slices", (loop.parts, *value.shape)
        apart = (_aligned(product(value.shape), value.dtype.size), *strides)
        self.state.add(Buffer(name, "temporary", value.dtype, shape, apart))
        self.ahead.append(Allocate(name))
        self._owned.add(value.name)
        return self._sliced(value, name, apart[0], loop)

    def _in_place(self, value: Value, read: Input, loop: _Loop | None) -> Instruction:
        """Return the alias of a result to an operand that its segment reads for the last time."""
        self.state.add(Buffer(value.name, "temporary", value.dtype, value.shape, read.strides))
        return self._lying(value, read.value.name, dim(0), loop)

    def _lying(self, value: Value, of: str, offset: Dim, loop: _Loop | None) -> Instruction:
        """Return the alias of a value to a part of another, at the same offset in all slices."""
        if loop is not None:
            self._parts[value.name] = _PartOf(of, offset, dim(0))
        return Alias(value.name, of, offset)

    def _sliced(
        self, value: Value, of: str, step: Dim, loop: _Loop, turn: Turn | None = None
    ) -> Instruction:
        """Return the alias of a value to the part of another one that is the loop's slice."""
        self._parts[value.name] = _PartOf(of, None, step, turn=turn)
        return self._parts[value.name].alias(value.name, loop)

    def _overlapping(self, value: Value, of: str, at: int, loop: _Loop) -> Instruction:
        """Return the same where the last slice of a dim overlaps the one before it."""
        whole = self.state.buffers[of]
        last = whole.shape[at] - value.shape[at]
        part = _PartOf(of, None, whole.strides[at], value.shape[at], last)
        self._parts[value.name] = part
        return part.alias(value.name, loop)

    def _in_stack(self, value: Value, stack: Node, loop: _Loop) -> Instruction:
        whole, at = stack.output, stack.attributes["dim"]
        self._allocate_ahead(whole)
        return self._part_of(value, whole.name, at, loop.slice, loop, slices_overlap(stack))

    def _allocate_ahead(self, value: Value) -> None:
        """Allocate memory for all slices of a value, unless it is an output and has it."""
        if value.name not in self.state.buffers:
            strides = dense_strides(value.shape)
            self.state.add(Buffer(value.name, "temporary", value.dtype, value.shape, strides))
            self.ahead.append(Allocate(value.name))

    def _part_of(
        self,
        value: Value,
        of: str,
        at: int,
        number: Dim,
        loop: _Loop | None,
        overlap: bool = False,
        turn: Turn | None = None,
    ) -> Instruction:
        """Return the alias of a value to one of the parts of a dim of another one.

        overlap: whether it is a slice of the loop and the last slice overlaps; else parts are
        disjoint. turn: of a loop over several dims.
        """
        strides = self.state.buffers[of].strides
        role = "output" if value in self.final else "temporary"
        self.state.add(Buffer(value.name, role, value.dtype, value.shape, strides))
        step = value.shape[at] * strides[at]
        if overlap and loop is not None:
            return self._overlapping(value, of, at, loop)
        if loop is not None and number is loop.slice:
            return self._sliced(value, of, step, loop, turn)
        return self._lying(value, of, number * step, loop)

    # -- communication and parts

    def _copied(self, node: Node, segment: Segment, loop: _Loop | None) -> Iterator[Instruction]:
        """Yield the copy of a part from or to the tensor that contains it."""
        (source,), value, at = node.inputs, node.output, node.attributes["dim"]
        if loop is None and node.op is not RANK_SLICE:
            raise InternalError(f"segment {segment.name} is not in a loop")
        own = place_of(node.attributes["axis"]) if node.op is RANK_SLICE else None
        number = own if own is not None or loop is None else loop.slice
        assert number is not None
        if node.op is STREAM_STACK:
            self._allocate_ahead(value)
            part = Value(f"{source.name}.part", source.type)
            yield self._part_of(part, value.name, at, number, loop, slices_overlap(node))
            yield Copy(part.name, source.name)
            return
        if value not in self.final:
            yield self._place(value, loop)
        part = Value(f"{value.name}.part", value.type)
        how = slices_overlap(node), _turn(node)
        yield self._part_of(part, source.name, at, number, loop, *how)
        yield Copy(value.name, part.name)

    def _alone(self, node: Node, segment: Segment, loop: _Loop | None) -> Iterator[Instruction]:
        value, source, given = node.output, node.inputs[0], node.attributes
        if node.op is RANK_SLICE:
            number = place_of(given["axis"])
            yield self._part_of(value, source.name, given["dim"], number, loop)
        elif node.op is PEER_VIEWS:
            for view in node.outputs:
                strides = dense_strides(view.shape)
                self.state.add(Buffer(view.name, "temporary", view.dtype, view.shape, strides))
            names = tuple(view.name for view in node.outputs)
            self._theirs.update(names)
            copied = copied_argument(self.state.segmented.fusion, source)
            self.shared.append(Share(source.name, names, given["axis"], copied))
            yield self.shared[-1]
        elif node.op in (STREAM_SLICE, STREAM_STACK, RECEIVE_SLICE, SEND_SLICE):
            if loop is None:
                raise InternalError(f"segment {segment.name} is not in a loop")
            yield from self._in_loop(node, loop)
        else:
            if value not in self.final:
                yield self._place(value, loop)
            reduction = given.get("reduction", "")
            ends = value.name, source.name
            along = given["axis"], given["ranks"]
            if node.op is BROADCAST:
                root, to = dim(given["root"]), self._receivers(node)
                yield Collective("broadcast", *ends, *along, root=root, to=to)
            else:
                yield Collective(node.op.name, *ends, *along, reduction)
            yield Wait(value.name)

    def _receivers(self, node: Node) -> tuple[int, ...]:
        """Return the indices of the ranks that a broadcast is for, empty if it is for all."""
        mesh = self.state.segmented.fusion.mesh
        assert mesh is not None
        places = mesh.places(node.attributes["to"], node.attributes["axis"])
        return () if len(places) == node.attributes["ranks"] else tuple(sorted(places))

    def _in_loop(self, node: Node, loop: _Loop) -> Iterator[Instruction]:
        value, source, given = node.output, node.inputs[0], node.attributes
        if node.op is STREAM_SLICE:
            how = slices_overlap(node), _turn(node)
            yield self._part_of(value, source.name, given["dim"], loop.slice, loop, *how)
        elif node.op is RECEIVE_SLICE:
            pieces = dim(given["pieces"])
            if pieces != 1:
                piece = Value(f"{source.name}.piece", value.type)
                yield self._part_of(piece, source.name, 0, mod(loop.index, pieces), loop)
                source = piece
            yield self._place(value, loop)
            yield Send(source.name, given["axis"], loop.other(node))
            yield Receive(value.name, given["axis"], floordiv(loop.slice, pieces))
            yield Wait(value.name)
        elif node.op is SEND_SLICE:
            place, pieces = loop.other(node), dim(given["pieces"])
            self._allocate_ahead(value)
            block = Value(f"{value.name}.block", source.type)
            number = place * pieces + mod(loop.index, pieces)
            yield self._part_of(block, value.name, 0, number, loop)
            if loop.kernels is not None:
                yield from (SetStream(loop.stream), Synchronize(loop.kernels))
            yield Send(source.name, given["axis"], floordiv(loop.slice, pieces))
            yield Receive(block.name, given["axis"], place)
            yield Wait(block.name)
            if loop.kernels is not None:
                yield SetStream(loop.kernels)
        elif source.name not in self._parts or self._parts[source.name].of != value.name:
            raise InternalError(f"`{source.name}` does not lie in `{value.name}`")
