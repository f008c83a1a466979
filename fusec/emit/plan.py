"""Emits one host program as C: its checks, the placement of its memory, and each step of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fusec.dataclasses import dataclass, field
from fusec.diagnostics import InternalError, Unsupported
from fusec.emit.code import Code, code, field_of, joined, variable
from fusec.emit.exchanges import HOST_ONLY, ExchangePrinter, is_waited_later, some_wait_later
from fusec.emit.expressions import Sizes
from fusec.emit.launches import LaunchPrinter
from fusec.emit.local import local_bounds, streams_of
from fusec.emit.names import views_of
from fusec.emit.scratch import is_given, part_bytes, places, ranks_memory_of
from fusec.emit.streams import StreamPrinter
from fusec.emit.variables import Variables
from fusec.emit.view import (
    Axis,
    Call,
    Condition,
    Field,
    Loop,
    Placed,
    PlacedMemory,
    PlanView,
    Pointer,
    SetView,
    Statement,
    Step,
)
from fusec.escape import c_comment
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Copy,
    EncodeTensorMap,
    For,
    GetStream,
    Instruction,
    Launch,
    Memset,
    Receive,
    Send,
    SetStream,
    Share,
    Synchronize,
    Wait,
)
from fusec.hostir.own_slices import OwnSlice, own_slices
from fusec.hostir.program import HostProgram, dense_strides
from fusec.ir.dim import symbol
from fusec.ir.sharding import Mesh
from fusec.schedule.plan import TensorArgument, WorkspaceArgument


@dataclass(frozen=True)
class _Made:
    """A step, the buffer whose address it sets, if any, and those that it uses."""

    step: Step
    uses: tuple[str, ...] = ()
    gives: str = ""


@dataclass
class _Body:
    """Instructions that run in order, of the program or of a loop.

    own: by the name of an alias, the variable that is true if a rank is its own partner, and the
    address of the slice in that case.
    """

    instructions: Sequence[Instruction]
    own: dict[str, tuple[str, OwnSlice]] = field(default_factory=dict[str, tuple[str, OwnSlice]])


class PlanPrinter:
    """Prints one program."""

    def __init__(
        self,
        name: str,
        purpose: str,
        program: HostProgram,
        fields: Mapping[str, Field],
        size_fields: Mapping[str, str],
        kernels: Mapping[str, int],
        sizes: Sizes,
        mesh: Mesh | None,
        axes: Sequence[Axis],
    ) -> None:
        """Place its memory, and count its streams.

        purpose: targets and sizes. fields: of the arguments, by buffer or scalar. kernels: their
        numbers. axes: of the mesh.
        """
        self.name, self.purpose, self.program = name, purpose, program
        self.fields, self.sizes, self.axes = fields, sizes, axes
        self.variables = Variables(program, sizes, local_bounds(program, mesh))
        self.launches = LaunchPrinter(self.variables, fields, size_fields, kernels)
        count = streams_of(program)
        channel = count + 1 if some_wait_later(program) else 0
        self.streams = StreamPrinter(self.variables, channel or count)
        communicators = {x.source: field_of("a", f"ranks.{x.name}") for x in axes}
        self.exchanges = ExchangePrinter(self.variables, self.streams, communicators, channel)
        self._views = views_of(program)
        placed = {
            PlacedMemory.of(f"at_{k}", place, sizes.text(place.bytes)): place.buffers
            for k, place in enumerate(places(program))
        }
        self._memory = tuple(placed)
        self._placed = {name: memory for memory, names in placed.items() for name in names}
        self._owns = 0

    def view(self, held: tuple[Condition, ...], pointers: tuple[Pointer, ...]) -> PlanView:
        """Return the view for the templates."""
        if self._memory:
            self.sizes.called.add("take")
        if any(p.zeroed for p in self._memory):
            self.sizes.called.add("fill")
        if pointers:
            self.sizes.called.add("is_aligned")
        made = [self._input(b.name) for b in self.program.inputs]
        made += self._body(_Body(self.program.instructions))
        if self.streams.count:
            self.sizes.called |= {"use", "follow", "join"}
        return PlanView(
            self.name,
            self.purpose,
            held,
            pointers,
            self._memory,
            tuple(_needed(made)),
            tuple(Placed(str(self.variables.symbol(f"{a.source}.place")), a) for a in self.axes),
            self.streams.count,
            self.exchanges.events,
        )

    def _input(self, name: str) -> _Made:
        given = field_of("a", self.fields[name].name)
        return self._address(name, code("(CUdeviceptr){}", given))

    def _body(self, body: _Body) -> Iterator[_Made]:
        for place in range(len(body.instructions)):
            yield from self._made(body, place)

    def _made(self, body: _Body, place: int) -> Iterator[_Made]:
        """Yield the steps of an instruction."""
        instruction = body.instructions[place]
        match instruction:
            case Allocate(name) if is_given(self.program, name):
                yield self._input(name)
            case Allocate(name):
                yield self._address(name, _in_workspace(self._placed[name]))
            case Alias(name):
                yield from self._alias(instruction, body)
            case EncodeTensorMap(_, described):
                yield _Made(self.launches.map(instruction), (described.buffer,))
            case GetStream(name):
                self.streams.get(name)
            case SetStream(stream):
                self.streams.set(stream)
            case Synchronize(stream):
                comment = str(instruction)
                yield from map(_Made, self.streams.synchronize(stream, comment))
            case Memset() | Copy() | Launch():
                yield from self._work(instruction, body, place)
            case Collective() | Send() | Receive() | Wait() | Share():
                yield from self._exchange(instruction, body, place)
            case For():
                yield from self._loop(instruction)
            case _:
                pass

    def _work(
        self, instruction: Memset | Copy | Launch, body: _Body, place: int
    ) -> Iterator[_Made]:
        """Yield the steps that put a kernel, a copy or a fill on the current stream."""
        if isinstance(instruction, Memset) and instruction.once:
            return
        before, on = self.streams.enter()
        yield from map(_Made, before)
        at, size_of = self.variables.at, self.variables.bytes
        match instruction:
            case Memset(name):
                self.sizes.called.add("fill")
                yield _Made(Call(code("fill({}, {}, {})", at(name), size_of(name), on)), (name,))
            case Copy(target, source):
                yield _Made(Call(self._copy(target, source, on)), (target, source))
            case Launch():
                pointers = (TensorArgument, WorkspaceArgument)
                used = tuple(a.name for a in instruction.arguments if isinstance(a, pointers))
                overlapped = instruction.overlapped and _follows_a_kernel(body, place)
                step = self.launches.launch(instruction, on, overlapped=overlapped)
                yield _Made(step, used)

    def _copy(self, target: str, source: str, on: str) -> Code:
        """Return the call that copies a tensor, as one block if both are dense."""
        at, buffers = self.variables.at, (self.program.buffer[n] for n in (target, source))
        layouts = [b.strides for b in buffers]
        buffer = self.program.buffer[target]
        if all(strides == dense_strides(buffer.shape) for strides in layouts):
            self.sizes.called.add("copy")
            size = self.variables.bytes(target)
            return code("copy({}, {}, {}, {})", at(target), at(source), size, on)
        self.sizes.called |= {"copy", "copy_layout"}
        each = (
            code("{{{}}}", joined(", ", map(self.variables.text, dim)))
            for dim in zip(buffer.shape, *layouts, strict=True)
        )
        rank, item = len(buffer.shape), buffer.dtype.size
        dims = code("(const Dim[]){{{}}}", joined(", ", each))
        given = at(target), at(source), rank, dims, item, on
        return code("copy_layout({})", joined(", ", given))

    def _exchange(
        self, instruction: Collective | Send | Receive | Wait | Share, body: _Body, place: int
    ) -> Iterator[_Made]:
        later = is_waited_later(body.instructions, place)
        match instruction:
            case Send():
                self.exchanges.send(instruction)
            case Receive(target):
                sent = body.instructions[place - 1]
                found = (own for own, each in body.own.values() if each.receive == instruction)
                own = next(found, "")
                uses = (target, *((sent.source,) if isinstance(sent, Send) else ()))
                for step in self.exchanges.receive(instruction, own, later=later):
                    yield _Made(step, uses)
            case Collective(_, target, source):
                for step in self.exchanges.collective(instruction, later=later):
                    yield _Made(step, (target, source))
            case Wait(buffer):
                yield from map(_Made, self.exchanges.wait(buffer))
            case Share(source, views):
                room, step = self.variables.ranks_memory(source), part_bytes(self.program, source)
                where = _in_workspace(self._placed[ranks_memory_of(source)])
                yield _Made(Statement(code("CUdeviceptr {} = {};", room, where)))
                for each in self.exchanges.share(instruction, room, step):
                    yield _Made(each, (source,))
                for k, view in enumerate(views):
                    yield self._address(view, self.variables.part(room, k * step))

    def _loop(self, loop: For) -> Iterator[_Made]:
        current = self.streams.current
        yield from map(_Made, self.streams.begin_loop(loop))
        pending = self.exchanges.pending
        made = list[_Made]()
        owns = dict[str, tuple[str, OwnSlice]]()
        for each in own_slices(loop, self.program.buffers, self.program.instructions):
            own = self.variables.own(self._owns)
            self._owns += 1
            owns[each.own_alias.buffer] = own, each
            place = self.variables.symbol(f"{each.send.axis}.place")
            to, origin = (self.variables.text(i.place) for i in (each.send, each.receive))
            both = code("{0} == {2} && {1} == {2}", to, origin, place)
            made.append(_Made(Statement(code("bool {} = {};", own, both))))
        made += self._body(_Body(loop.body, owns))
        if self.exchanges.pending != pending:
            raise Unsupported(
                f"`{self.program.name}` cannot be emitted as C: a collective of `{loop}` is waited "
                "for outside of the loop",
                help="--without sink_waits",
            )
        if self.streams.current != current:
            raise InternalError(f"`{loop}` ends on another stream")
        self.streams.end_loop(loop)
        uses = tuple(dict.fromkeys(name for each in made for name in each.uses))
        index = str(self.variables.text(symbol(loop.index, extent=False)))
        count, comment = self.variables.text(loop.count), c_comment(str(loop).rstrip(":"))
        yield _Made(Loop(comment, index, count, tuple(_needed(made))), uses)

    def _alias(self, alias: Alias, body: _Body) -> Iterator[_Made]:
        """Yield the address of a view; it differs for a slice that a rank keeps."""
        name = alias.buffer
        yield self._address(name, self._address_of(alias), alias.of)
        if name in body.own:
            own, each = body.own[name]
            where = self.variables.at(name), self._address_of(each.own_alias)
            kept = code("if ({}) {} = {};", own, *where)
            yield _Made(Statement(kept), (each.own_alias.of,), name)
        if name in self._views:
            yield _Made(SetView(self.fields[name].name, self.variables.at(name)), (name,))

    def _address_of(self, alias: Alias) -> Code:
        size = self.program.buffer[alias.buffer].dtype.size
        return self.variables.part(self.variables.at(alias.of), alias.offset * size)

    def _address(self, name: str, value: Code, *uses: str) -> _Made:
        declared = code("CUdeviceptr {} = {};", self.variables.at(name), value)
        return _Made(Statement(declared), uses, name)


def _in_workspace(memory: PlacedMemory) -> Code:
    return code("{} + {}", variable("memory"), field_of("places", memory.name))


def _follows_a_kernel(body: _Body, place: int) -> bool:
    """Return whether the last work before an instruction is a kernel on the same stream."""
    before = (i for i in reversed(body.instructions[:place]) if not isinstance(i, HOST_ONLY))
    return isinstance(next(before, None), Launch)


def _needed(made: list[_Made]) -> Iterator[Step]:
    """Yield the steps without unused addresses."""
    used = set[str]()
    for each in reversed(made):
        if not each.gives or each.gives in used:
            used |= {*each.uses}
    yield from (each.step for each in made if not each.gives or each.gives in used)
