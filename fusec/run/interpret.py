"""Interprets a host program without a GPU: evaluates segments by the reference on the CPU.

Errors of a program surface as on a GPU: memory is poisoned when it is allocated, freed memory is
reused by later buffers, and steps of several streams may run in any order that they allow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from time import perf_counter
from typing import Any

import numpy as np

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError, InternalError
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Copy,
    Free,
    Memset,
    Post,
    Receive,
    Send,
    Share,
    Unshare,
    Wait,
)
from fusec.hostir.placement import placement
from fusec.hostir.program import Buffer, HostProgram
from fusec.hostir.steps import Step, steps_of
from fusec.ir.evaluate import Array, Sizes
from fusec.ir.graph import Fusion
from fusec.reference.stream import outputs_of
from fusec.run.arrays import as_declared, lay_out, over_bytes
from fusec.run.distributed.exchange import Member, dense_elements, member_for
from fusec.run.memory import Arena, Region
from fusec.run.scalars import scalar_values
from fusec.run.transports.protocol import Begin, Exchange

Observe = Callable[[Step, float, float], None]
"""Called for each step with its start and end, in seconds of `time.perf_counter`."""


def interpret(
    program: HostProgram,
    segments: Mapping[str, Fusion],
    inputs: Mapping[str, Any],
    sizes: Sizes,
    member: Member | None = None,
    *,
    draw: Random | None = None,
    observe: Observe | None = None,
) -> dict[str, Array]:
    """Return the outputs of a program, given its segments by name.

    inputs: arrays, and numbers for scalars. member: the rank that runs it, where there are several.
    `draw`: selects random orders that the streams allow; by default steps run in program order.
    InternalError where a program writes out of bounds.
    """
    known = {**sizes, **(member.places if member else {})}
    program.check_indices(known)
    return _Interpreter(program, segments, inputs, known, member).run(draw, observe)


@dataclass(frozen=True)
class _Task:
    """A step that has an effect."""

    step: Step
    number: int
    run: Callable[[], None]


class _Interpreter:
    """A program with its memory."""

    def __init__(
        self,
        program: HostProgram,
        segments: Mapping[str, Fusion],
        inputs: Mapping[str, Any],
        sizes: Sizes,
        member: Member | None,
    ) -> None:
        self.sizes, self.segments, self.member = sizes, segments, member
        self.scalars = scalar_values(program, inputs, sizes)
        self.made = {post.segment: post.outputs for post in program.posts}
        steps = steps_of(program, sizes)
        self.program, self.alone = steps.program, steps.streams == 1
        others = [b.name for b in self.program.buffers if b.role != "temporary"]
        placed = placement(self.program, sizes, others)
        self.offsets = placed.offsets
        self.arenas = {role: Arena() for role in ("input", "output", "workspace")}
        self.arenas["temporary"] = Arena(placed.size)
        self.regions: dict[str, Region] = {}
        self.given: dict[str, Array] = {}
        self.exchanges: list[Callable[[], Begin]] = []
        self.views: dict[str, Callable[[], Array]] = {}
        for buffer in program.inputs:
            self._place_input(buffer, inputs)
        prepared = [(s, k, self._prepare(s)) for k, s in enumerate(steps.steps)]
        self.tasks = [_Task(s, k, run) for s, k, run in prepared if run is not None]
        for arena in self.arenas.values():
            arena.make()
        for name, array in self.given.items():
            self.regions[name].bytes[:] = array
        if member is not None:
            member.transport.prepare([exchange() for exchange in self.exchanges])

    def run(self, draw: Random | None, observe: Observe | None) -> dict[str, Array]:
        for task in self.tasks if draw is None else self._random(draw):
            began = perf_counter()
            task.run()
            if observe is not None:
                observe(task.step, began, perf_counter())
        self._check_inputs()
        return {name: self._view(name, self.regions[name]).copy() for name in self.program.outputs}

    def _random(self, draw: Random) -> Any:
        """Yield the tasks in a random valid order; communication stays in program order.

        The host starts communication in that order on every rank, even if streams are blocked.
        """
        queues: dict[int, list[_Task]] = {}
        for task in reversed(self.tasks):
            queues.setdefault(task.step.stream, []).append(task)
        left = {t.number for t in self.tasks}
        exchanges = [
            t.number for t in reversed(self.tasks) if isinstance(t.step.instruction, Exchange)
        ]
        later = set(exchanges[:-1])
        while queues:
            ready = [
                s for s, q in queues.items()
                if q[-1].number not in later and left.isdisjoint(q[-1].step.after)
            ]  # fmt: skip
            stream = draw.choice(sorted(ready))
            task = queues[stream].pop()
            left.remove(task.number)
            if exchanges and task.number == exchanges[-1]:
                exchanges.pop()
                later -= set(exchanges[-1:])
            if not queues[stream]:
                del queues[stream]
            yield task

    def _place_input(self, buffer: Buffer, inputs: Mapping[str, Any]) -> None:
        name, sizes = buffer.name, self.sizes
        if name not in inputs:
            raise FusecError(f"input `{name}` is missing")
        shape = tuple(d.evaluate(sizes) for d in buffer.shape)
        given = as_declared(name, np.asarray(inputs[name]), buffer.dtype)
        if given.shape != shape:
            raise FusecError(
                f"input `{name}` has shape {list(given.shape)}, expected {list(shape)}"
            )
        laid = lay_out(given, tuple(s.evaluate(sizes) for s in buffer.strides))
        raw = laid.storage[laid.offset :].view(np.uint8)
        self.regions[name] = self.arenas["input"].take(raw.size)
        self.given[name] = raw

    def _check_inputs(self) -> None:
        """Raise InternalError where an input has changed that must not be written."""
        written = {into for _, into in self.program.aliases}
        for name, array in self.given.items():
            if name not in written and not np.array_equal(self.regions[name].bytes, array):
                raise InternalError(f"the program has written into input `{name}`")

    def _prepare(self, step: Step) -> Callable[[], None] | None:
        """Resolve the memory of a step, and return its effect, if any."""
        match step.instruction:
            case Allocate(name):
                region = self._allocate(name)
                # With several streams, memory may be reassigned before other streams have finished
                # with it.
                return region.poison if self.alone else None
            case Free():
                return None
            case Alias():
                self._alias(step.instruction)
                return None
            case Memset(name):
                region = self.regions[name]
                return lambda: region.bytes.fill(0)
            case Copy(target, source):
                return self._copy(target, source)
            case Post() as post:
                return self._post(post)
            case Collective() | Send() | Receive() as exchange:
                return self._exchange(step, exchange)
            case Share() as share:
                self._name_views(share, step)
                return self._exchange(step, share)
            case Unshare() as unshare:
                return self._exchange(step, unshare)
            case Wait():
                return self._wait(step)
            case other:
                raise InternalError(f"`{other}` launches a segment in an expanded program")

    def _allocate(self, name: str) -> Region:
        """Allocate a buffer; temporaries are placed according to the program."""
        buffer = self.program.buffer[name]
        arena, size = self.arenas[buffer.role], buffer.bytes(self.sizes)
        offset = self.offsets.get(name)
        self.regions[name] = arena.take(size) if offset is None else Region(arena, offset, size)
        return self.regions[name]

    def _alias(self, alias: Alias) -> None:
        buffer, of = self.program.buffer[alias.buffer], self.regions[alias.of]
        size = buffer.bytes(self.sizes)
        # A part without elements has no address, and its strides may lead out of an empty buffer.
        offset = alias.offset.evaluate(self.sizes) * buffer.dtype.size if size else 0
        if offset < 0 or offset + size > of.size:
            raise InternalError(
                f"`{alias}` reaches over bytes {offset} to {offset + size} of {of.size}"
            )
        self.regions[alias.buffer] = of.part(offset, size)

    def _view(self, name: str, region: Region) -> Array:
        """Return a buffer as an array that aliases its memory."""
        return over_bytes(region.bytes, self.program.buffer[name], self.sizes)

    def _viewer(self, name: str) -> Callable[[], Array]:
        """Return a function that returns a buffer's array once its memory is allocated."""
        region = self.regions[name]
        return lambda: self._view(name, region)

    def _copy(self, target: str, source: str) -> Callable[[], None]:
        to, origin = self._viewer(target), self._reader(source)

        def run() -> None:
            to()[...] = origin()

        return run

    def _post(self, post: Post) -> Callable[[], None]:
        fusion = self.segments[post.segment]
        read = {
            entry.value.name: self._reader(name)
            for entry, name in zip(fusion.inputs, post.inputs, strict=True)
        }
        made = [o.value.name for o in fusion.outputs]
        if len(made) != len(post.outputs):  # others are views, which the segment does not write
            made = [name for name in made if name in self.made[post.segment]]
        written = {
            value: self._viewer(name) for value, name in zip(made, post.outputs, strict=True)
        }

        def run() -> None:
            results = outputs_of(fusion, {n: of() for n, of in read.items()}, self.sizes)
            for value, view in written.items():
                view()[...] = results[value]

        return run

    def _reader(self, name: str) -> Callable[[], Any]:
        if name in self.scalars:
            value = self.scalars[name]
            return lambda: value
        return self.views[name] if name in self.views else self._viewer(name)

    def _name_views(self, share: Share, step: Step) -> None:
        """Register how segments read a buffer that other ranks share."""
        member = member_for(step, self.member)
        shape = tuple(d.evaluate(self.sizes) for d in self.program.buffer[share.source].shape)
        for place, name in enumerate(share.views):
            view = partial(member.transport.view, share.source, place)
            self.views[name] = lambda view=view: view().reshape(shape)

    def _exchange(self, step: Step, exchange: Exchange) -> Callable[[], None]:
        member = member_for(step, self.member)
        receives = isinstance(exchange, Collective | Receive)
        target = self._dense(exchange.target, step) if receives else None
        source = None if isinstance(exchange, Receive) else self._dense(exchange.source, step)

        def begin() -> Begin:
            return member.exchange(step, target and target(), source and source())

        self.exchanges.append(begin)
        return lambda: member.begin(begin())

    def _wait(self, step: Step) -> Callable[[], None]:
        member = member_for(step, self.member)
        return lambda: member.transport.wait(step.tag, step.stream)

    def _dense(self, name: str, step: Step) -> Callable[[], Array]:
        """Return a function that returns a buffer as a contiguous array for communication."""
        dense_elements(self.program.buffer[name], self.sizes, step)
        return self._viewer(name)
