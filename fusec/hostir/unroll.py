"""Unrolls the loops of host programs: one flat list, with concrete streams and ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusec.dataclasses import replace
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Copy,
    EncodeTensorMap,
    For,
    Free,
    GetStream,
    Instruction,
    Launch,
    Memset,
    Post,
    Receive,
    Send,
    SetStream,
    Share,
    Synchronize,
    Unshare,
    Wait,
    loop_name,
)
from fusec.hostir.own_slices import OwnSlice, own_slices
from fusec.ir.dim import Dim, dim
from fusec.schedule.plan import SizeArgument, TensorMapArgument

if TYPE_CHECKING:
    from fusec.hostir.program import Buffer, HostProgram

Names = Mapping[str, str]


def unroll(program: HostProgram, sizes: Mapping[str, int]) -> HostProgram:
    """Return the program without loops, at some sizes; unchanged if it has none.

    sizes: also this rank's indices along the axes of the mesh, by `AXIS.place`. Streams are
    numbers, 0 the caller's; `synchronize` is an event recorded on the stream that it names and
    waited for on the current one. Buffers, views and maps of a loop's body have their own name in
    each iteration, as `x.loop0.3`. A slice that a rank would send to itself stays in place.
    """
    if not any(isinstance(i, _CHANGED) for i in program.instructions):
        return program
    unrolled = _Unrolled(program, sizes)
    instructions = tuple(unrolled.run(program.instructions, {}, {}))
    kept = [b for b in program.buffers if b.name not in unrolled.inside]
    return replace(program, buffers=(*kept, *unrolled.buffers), instructions=instructions)


_CHANGED = (For, GetStream, SetStream, Synchronize, Send, Receive, Collective, Alias)


class _Unrolled:
    """The program so far; `current` is the stream of the instructions that follow."""

    def __init__(self, program: HostProgram, sizes: Mapping[str, int]) -> None:
        self.program, self.sizes = program, sizes
        self.places = {name: dim(size) for name, size in sizes.items() if name.endswith(".place")}
        self.buffers: list[Buffer] = []
        self.inside = set[str]()
        self.current = 0

    def run(
        self, body: tuple[Instruction, ...], numbers: dict[str, Dim], names: Names
    ) -> Iterator[Instruction]:
        """Yield a body's instructions; numbers: of loops and streams; names: of its buffers."""
        for instruction in body:
            match instruction:
                case For():
                    yield from self._loop(instruction, numbers, names)
                case GetStream(name):
                    numbers[name] = dim(self.current)
                case SetStream(stream):
                    number = self._number(stream, numbers)
                    if number != self.current:
                        self.current = number
                        yield SetStream(dim(number))
                case Synchronize(stream):
                    number = self._number(stream, numbers)
                    if number != self.current:
                        yield Synchronize(dim(number))
                case _:
                    yield named(self._numbered(instruction, numbers), names)

    def _loop(self, loop: For, numbers: Mapping[str, Dim], names: Names) -> Iterator[Instruction]:
        own = tuple(
            i.name if isinstance(i, EncodeTensorMap) else i.buffer
            for i in loop.body
            if isinstance(i, (Allocate, Alias, EncodeTensorMap))
        )
        self.inside.update(own)
        exchanged = list(own_slices(loop, self.program.buffers, self.program.instructions))
        for k in range(self._number(loop.count, numbers)):
            renamed = {name: f"{name}.{loop_name(loop)}.{k}" for name in own}
            self.buffers += [
                replace(self.program.buffer[name], name=renamed[name])
                for name in own
                if name in self.program.buffer
            ]
            inner = {**numbers, loop.index: dim(k)}
            body = self._in_place(loop.body, exchanged, inner)
            yield from self.run(body, inner, {**names, **renamed})

    def _in_place(
        self, body: tuple[Instruction, ...], found: Sequence[OwnSlice], numbers: Mapping[str, Dim]
    ) -> tuple[Instruction, ...]:
        """Return an iteration without the communication of a rank with itself."""
        for each in found:
            own = self.sizes.get(f"{each.send.axis}.place")
            if {self._number(i.place, numbers) for i in (each.send, each.receive)} != {own}:
                continue
            gone = each.send, each.receive, Wait(each.receive.target)
            body = tuple(
                each.own_alias if isinstance(i, Alias) and i.buffer == each.own_alias.buffer else i
                for i in body
                if i not in gone
            )
        return body

    def _number(self, value: Dim, numbers: Mapping[str, Dim]) -> int:
        return value.substitute(numbers).evaluate(self.sizes)

    def _numbered(self, instruction: Instruction, numbers: Mapping[str, Dim]) -> Instruction:
        known = {**self.places, **numbers}
        match instruction:
            case Alias():
                return replace(instruction, offset=instruction.offset.substitute(known))
            case Send() | Receive():
                return replace(instruction, place=dim(self._number(instruction.place, known)))
            case Collective(root=Dim() as root):
                return replace(instruction, root=dim(self._number(root, known)))
            case _:
                return instruction


def named(instruction: Instruction, names: Names) -> Instruction:
    """Return an instruction with buffers and tensor maps renamed by `names`."""
    if not names:
        return instruction
    match instruction:
        case Allocate(name) | Free(name) | Memset(name) | Wait(name):
            return replace(instruction, buffer=names.get(name, name))
        case Alias(name, of):
            return replace(instruction, buffer=names.get(name, name), of=names.get(of, of))
        case Copy(target, source) | Collective(target=target, source=source):
            target, source = names.get(target, target), names.get(source, source)
            return replace(instruction, target=target, source=source)
        case Send(source):
            return replace(instruction, source=names.get(source, source))
        case Receive(target):
            return replace(instruction, target=names.get(target, target))
        case Share(source, views) | Unshare(source, views):
            known = tuple(names.get(v, v) for v in views)
            return replace(instruction, source=names.get(source, source), views=known)
        case Post(_, inputs, outputs):
            given = tuple(names.get(n, n) for n in inputs)
            return replace(
                instruction, inputs=given, outputs=tuple(names.get(n, n) for n in outputs)
            )
        case EncodeTensorMap(name, described):
            return EncodeTensorMap(names.get(name, name), _argument(described, names))
        case Launch():
            arguments = tuple(_argument(a, names) for a in instruction.arguments)
            return replace(instruction, arguments=arguments)
        case _:
            return instruction


def _argument(argument: Any, names: Names) -> Any:
    """Return a launch's argument renamed; a tensor map keeps the name of its buffer, too."""
    if isinstance(argument, SizeArgument):
        return argument
    renamed = replace(argument, name=names.get(argument.name, argument.name))
    if isinstance(renamed, TensorMapArgument):
        return replace(renamed, buffer=names.get(renamed.buffer, renamed.buffer))
    return renamed
