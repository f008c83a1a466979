"""The instructions of segments: of kernels, exchanges and views, once or in loops over streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from fusec.diagnostics import InternalError, Unsupported
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Copy,
    For,
    GetStream,
    Instruction,
    Post,
    Receive,
    Send,
    SetStream,
    Synchronize,
    Wait,
)
from fusec.hostir.placing import Lowering
from fusec.hostir.program import Buffer, dense_strides
from fusec.hostir.units import Unit, alone, is_copied, varying
from fusec.ir.dim import Dim, ceildiv, dim, mod, product, symbol
from fusec.ir.effects import ALIGNMENT
from fusec.ir.graph import Input, Node, Value
from fusec.ops.communication import (
    RANK_SLICE,
    RECEIVE_SLICE,
    SEND_SLICE,
    STREAM_SLICE,
    STREAM_STACK,
)
from fusec.schedule.plan import KernelPlan
from fusec.segment.segmented import Segment


def place_of(axis: str) -> Dim:
    """Return this rank's place along an axis of the mesh."""
    return symbol(f"{axis}.place", extent=False)


@dataclass(frozen=True)
class _Loop:
    """The loop in which something stands: its index, and by number the slice that it is about."""

    name: str
    parts: Dim
    index: Dim
    slice: Dim


def _aligned(elements: Dim, size: int) -> Dim:
    """Return a number of elements, no smaller than some, that begin as kernels take tensors to."""
    unit = ALIGNMENT // gcd(ALIGNMENT, size)
    if all(factor % unit == 0 for _, factor in elements.terms):
        return elements
    return ceildiv(elements, unit) * unit


class Lowered:
    """Makes the instructions of units, and names the buffers that these need."""

    def __init__(self, state: Lowering, streams: int) -> None:
        """Number no loop yet."""
        self.state, self.streams = state, streams
        self.segments, self.plans = state.segmented.segments, state.plans
        self.final = {o.value for o in state.segmented.fusion.outputs}
        self.varying = varying(state.segmented)
        self.ahead: list[Instruction] = []
        self.loops = 0
        self._slices: dict[str, str | None] = {}
        shared = (s for s, p in zip(self.segments, self.plans, strict=True) if not is_copied(p))
        stacks = (n for s in shared if (n := alone(s)) and n.op is STREAM_STACK)
        self.stack_of = {node.inputs[0]: node for node in stacks}

    def memory(self, name: str) -> str | None:
        """Return the buffer that holds a value, or all its slices; None for a part of another."""
        return self._slices.get(name, name)

    def unit(self, unit: Unit) -> list[Instruction]:
        """Return the instructions of one unit."""
        if unit.parts is None:
            (number,) = unit.segments
            return list(self._segment(self.segments[number], self.plans[number], None))
        return self._loop(unit, unit.parts)

    def _loop(self, unit: Unit, parts: Dim) -> list[Instruction]:
        self._check_in_place(unit)
        name, self.ahead = f"loop{self.loops}", []
        self.loops += 1
        index = symbol(f"{name}.index", extent=False)
        piece = index if unit.axis is None else mod(index + place_of(unit.axis), parts)
        loop = _Loop(name, parts, index, piece)
        caller, stream = f"{name}.caller", 1 + mod(index, self.streams)
        around = symbol(caller, extent=False)
        body: list[Instruction] = [GetStream(caller), SetStream(stream), Synchronize(around)]
        body += self._from_other_loops(unit, loop)
        for number in unit.segments:
            body += self._segment(self.segments[number], self.plans[number], loop)
        body += [SetStream(around), Synchronize(stream)]
        return [*self.ahead, For(f"{name}.index", parts, tuple(body), self.streams)]

    def _check_in_place(self, unit: Unit) -> None:
        """Raise Unsupported where an iteration would read what another one has overwritten."""
        into = self.state.segmented.fusion.effects.into
        parts = [self.segments[k] for k in unit.segments]
        written = {v: into[v].value for s in parts if (v := s.nodes[-1].output) in into}
        for value, target in written.items():
            others = (s.fusion for s in parts if s.nodes[-1].output is not value)
            if any(i.value is target for fusion in others for i in fusion.inputs):
                raise Unsupported(
                    f"output `{value.name}` is written into `{target.name}` slice by slice, in a "
                    "loop that reads it",
                    span=self.state.segmented.fusion.output_of[value].span,
                )

    def _from_other_loops(self, unit: Unit, loop: _Loop) -> Iterator[Instruction]:
        """Yield views of the slices that the loop reads and earlier ones have made."""
        own = [self.segments[k].fusion for k in unit.segments]
        made = {o.value for fusion in own for o in fusion.outputs}
        read = dict.fromkeys(i.value for fusion in own for i in fusion.inputs)
        for value in read:
            if value in self.varying and value not in made:
                of = self._slices[value.name]
                if of is None:
                    raise InternalError(f"`{value.name}` is a part of another tensor, in two loops")
                yield self._slice(value, of, loop)

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
                yield Alias(value.name, view.base, view.offset)
                self._part(value, loop)
            elif value in segment.fusion.effects.into and value not in self.final:
                yield self._in_place(value, segment.fusion.effects.into[value], loop)
            elif value not in self.final:
                yield self._place(value, loop)
        if plan.kernels:
            inputs = tuple(i.value.name for i in segment.fusion.inputs)
            made = (o.value.name for o in segment.fusion.outputs)
            yield Post(segment.name, inputs, tuple(n for n in made if n not in views))

    # -- memory

    def _place(self, value: Value, loop: _Loop | None) -> Instruction:
        """Return what gives a result memory: in a loop, its part of what holds all slices."""
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
        self._slices[value.name] = name
        return self._slice(value, name, loop)

    def _in_place(self, value: Value, read: Input, loop: _Loop | None) -> Instruction:
        """Return what puts a result where its segment reads something for the last time."""
        self.state.add(Buffer(value.name, "temporary", value.dtype, value.shape, read.strides))
        self._part(value, loop)
        return Alias(value.name, read.value.name, dim(0))

    def _slice(self, value: Value, of: str, loop: _Loop) -> Instruction:
        return Alias(value.name, of, loop.slice * self.state.buffers[of].strides[0])

    def _in_stack(self, value: Value, stack: Node, loop: _Loop) -> Instruction:
        whole, at = stack.output, stack.attributes["dim"]
        self._allocate_ahead(whole)
        return self._part_of(value, whole.name, at, loop.slice, loop)

    def _allocate_ahead(self, value: Value) -> None:
        """Give what a loop makes memory, unless it is an output and has it."""
        if value.name not in self.state.buffers:
            strides = dense_strides(value.shape)
            self.state.add(Buffer(value.name, "temporary", value.dtype, value.shape, strides))
            self.ahead.append(Allocate(value.name))

    def _part_of(
        self, value: Value, of: str, at: int, number: Dim, loop: _Loop | None
    ) -> Instruction:
        """Return what makes a value one of the equal parts of a dim of another one."""
        strides = self.state.buffers[of].strides
        role = "output" if value in self.final else "temporary"
        self.state.add(Buffer(value.name, role, value.dtype, value.shape, strides))
        self._part(value, loop)
        return Alias(value.name, of, number * value.shape[at] * strides[at])

    def _part(self, value: Value, loop: _Loop | None) -> None:
        if loop is not None:
            self._slices[value.name] = None

    # -- exchanges and parts

    def _copied(self, node: Node, segment: Segment, loop: _Loop | None) -> Iterator[Instruction]:
        """Yield the copy of a part out of the tensor that it is a part of, or into that."""
        (source,), value, at = node.inputs, node.output, node.attributes["dim"]
        if loop is None and node.op is not RANK_SLICE:
            raise InternalError(f"segment {segment.name} stands in no loop")
        own = place_of(node.attributes["axis"]) if node.op is RANK_SLICE else None
        number = own if own is not None or loop is None else loop.slice
        assert number is not None
        if node.op is STREAM_STACK:
            self._allocate_ahead(value)
            part = Value(f"{source.name}.part", source.type)
            yield self._part_of(part, value.name, at, number, loop)
            yield Copy(part.name, source.name)
            return
        if value not in self.final:
            yield self._place(value, loop)
        part = Value(f"{value.name}.part", value.type)
        yield self._part_of(part, source.name, at, number, loop)
        yield Copy(value.name, part.name)

    def _alone(self, node: Node, segment: Segment, loop: _Loop | None) -> Iterator[Instruction]:
        value, source, given = node.output, node.inputs[0], node.attributes
        if node.op is RANK_SLICE:
            number = place_of(given["axis"])
            yield self._part_of(value, source.name, given["dim"], number, loop)
        elif node.op in (STREAM_SLICE, STREAM_STACK, RECEIVE_SLICE, SEND_SLICE):
            if loop is None:
                raise InternalError(f"segment {segment.name} stands in no loop")
            yield from self._in_loop(node, loop)
        else:
            if value not in self.final:
                yield self._place(value, loop)
            reduction = given.get("reduction", "")
            ends = value.name, source.name
            yield Collective(node.op.name, *ends, given["axis"], given["ranks"], reduction)
            yield Wait(value.name)

    def _in_loop(self, node: Node, loop: _Loop) -> Iterator[Instruction]:
        value, source, given = node.output, node.inputs[0], node.attributes
        if node.op is STREAM_SLICE:
            yield self._part_of(value, source.name, given["dim"], loop.slice, loop)
        elif node.op is RECEIVE_SLICE:
            place = mod(place_of(given["axis"]) - loop.index, loop.parts)
            yield self._place(value, loop)
            yield Send(source.name, given["axis"], place)
            yield Receive(value.name, given["axis"], loop.slice)
            yield Wait(value.name)
        elif node.op is SEND_SLICE:
            place = mod(place_of(given["axis"]) - loop.index, loop.parts)
            self._allocate_ahead(value)
            block = Value(f"{value.name}.block", source.type)
            yield self._part_of(block, value.name, 0, place, loop)
            yield Send(source.name, given["axis"], loop.slice)
            yield Receive(block.name, given["axis"], place)
            yield Wait(block.name)
        elif source not in self.stack_of or self._slices.get(source.name, "") is not None:
            raise InternalError(f"`{source.name}` does not lie in `{value.name}`")
