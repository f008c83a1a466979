"""Prints host programs in the style of nvFuser's host IR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from fusec.diagnostics import InternalError
from fusec.dumps.numbering import Numbering
from fusec.hostir.container import Tensors, parts_of
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Copy,
    For,
    Free,
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
    stream_number,
)
from fusec.hostir.program import HostProgram
from fusec.ir.dim import Dim, mod, symbol
from fusec.options import HOST_SCHEDULER
from fusec.properties import cached_property
from fusec.segment.segmented import Segment, SegmentedFusion

INDEX = "StreamIdx"
"""The index of every loop; loops are never nested."""
EXCHANGES = {
    "all_gather": "Allgather", "all_reduce": "Allreduce", "reduce_scatter": "ReduceScatter",
    "all_to_all": "AllToAll", "broadcast": "Broadcast",
}  # fmt: skip


def host_ir_text(program: HostProgram, segmented: SegmentedFusion) -> str:
    """Return the text of a program that runs segments.

    Where each slice is one element of its dim, that dim is removed inside the loop. A part of
    several elements is an `HirAliasSelect` with the number of `parts`. Streams of loops are counted
    from 0, as in nvFuser; others have their numbers, and 0 is the caller's.
    """
    return _Printer(program, segmented).text()


def is_set(segmented: SegmentedFusion, post: Post) -> bool:
    """Return whether a segment is just a copy, which is printed as a `Set`.

    Outside of loops a `Set` allocates its result, and no `ALLOCATE` is printed for it.
    """
    segment = _segment(segmented, post)
    return len(segment.nodes) == 1 and segment.nodes[0].op.copies


def _segment(segmented: SegmentedFusion, post: Post) -> Segment:
    return next(s for s in segmented.segments if s.name == post.segment)


class _Printer:
    """Prints a program; `exchanges`: communication started so far, by its buffers."""

    def __init__(self, program: HostProgram, segmented: SegmentedFusion) -> None:
        self.program, self.segmented = program, segmented
        self.names = Numbering(segmented.fusion)
        for loop in (i for i in program.instructions if isinstance(i, For)):
            self.names.symbols[loop.index] = INDEX
        self.tensors = Tensors(program, self.names)
        self.views = {i.buffer for i in program.instructions if isinstance(i, Alias)}
        self.current = "0"
        self.callers: dict[str, str] = {}
        self.exchanges: dict[str, str] = {}
        self.count = 0

    def text(self) -> str:
        given = [i.value for i in self.segmented.fusion.given if i.value.is_scalar]
        ends = [self.tensors.text(b.name) for b in self.program.inputs]
        ends += [self.names.scalars[value] for value in given]
        results = ", ".join(self.tensors.text(name) for name in self.program.outputs)
        lines = [f"%HostIrContainer {{ ({', '.join(ends)}) -> ({results}) :"]
        lines += self._lines(self.program.instructions, "  ")
        return "\n".join([*lines, "} // %HostIrContainer"]) + "\n"

    def _lines(self, instructions: Sequence[Instruction], margin: str) -> Iterator[str]:
        for instruction, following in zip_longest(instructions, instructions[1:]):
            if isinstance(instruction, Free) and instruction.buffer in self.views:
                continue  # a view has no memory of its own
            if isinstance(instruction, Allocate) and self._copies(following, instruction.buffer):
                continue
            if isinstance(instruction, For):
                yield f"{margin}FOR {INDEX} {self._range(instruction)}:"
                yield from self._lines(instruction.body, f"{margin}  ")
            else:
                yield margin + self._line(instruction)

    def _copies(self, instruction: Instruction | None, buffer: str) -> bool:
        """Return whether an instruction is a `Set` into a buffer."""
        return (
            isinstance(instruction, Post)
            and instruction.outputs == (buffer,)
            and is_set(self.segmented, instruction)
        )

    def _range(self, loop: For) -> str:
        axis = self.tensors.loop_axis(loop)
        return f"from 0 to {self.names.size(loop.count)}" if axis is None else f"in {axis}"

    def _line(self, instruction: Instruction) -> str:
        tensor = self.tensors.text
        match instruction:
            case Allocate(name):
                size = self.names.size(self.program.buffer[name].elements)
                given = f"buffer={tensor(name)}, mem_type=global, size={size}"
                return f"{tensor(name)} = ALLOCATE({given}, zero_init=false, resets_to_zero=false)"
            case Free(name):
                return f"DEALLOCATE(buffer={tensor(name)})"
            case Alias():
                return self._alias(instruction)
            case Copy(target, source):
                return f"{tensor(target)} = Copy( {tensor(source)} )"
            case Memset(name):
                return f"{tensor(name)} = Fill( 0 )"
            case Post():
                return self._post(instruction)
            case GetStream(name):
                # Each loop uses two stream names: the caller's, and that of its iteration.
                self.callers[name] = str(2 * len(self.callers))
                return f"GetCurrentStream into Stream {self.callers[name]}"
            case SetStream(stream):
                self.current = self._stream(stream)
                return f"SetCurrentStream to Stream {self.current}"
            case Synchronize(stream):
                return f"Synchronize Stream {self._stream(stream)}"
            case Collective() | Send() | Receive():
                return self._exchange(instruction)
            case Wait(name):
                return f"Wait {self.exchanges[name]}"
            case Share(source, views, axis):
                given = ", ".join(map(self.tensors.text, views))
                where = f"axis={axis}, ranks={len(views)}"
                return f"Share({where}, input={self.tensors.text(source)}, views={{{given}}})"
            case Unshare(source, views, axis):
                where = f"axis={axis}, ranks={len(views)}"
                return f"Unshare({where}, input={self.tensors.text(source)})"
            case _:
                raise InternalError(f"`{instruction}` in a program that runs segments")

    def _alias(self, alias: Alias) -> str:
        target, of = self.tensors.text(alias.buffer), self.tensors.text(alias.of)
        part = parts_of(self.program, alias)
        if part is None:
            strides = (self.names.size(s) for s in self.program.buffer[alias.buffer].strides)
            where = f"offset = {self.names.size(alias.offset)}, strides = {{{', '.join(strides)}}}"
            return f"{target} = HirAlias( {of}, {where} )"
        axis = self.tensors.axis(alias.of, part.dim)
        among = "" if part.single else f", parts = {self.names.size(part.parts)}"
        number = self.names.size(part.number)
        return f"{target} = HirAliasSelect( {of}, axis = {axis}{among}, index = {number} )"

    def _post(self, post: Post) -> str:
        segment = _segment(self.segmented, post)
        given, made = self._all(post.inputs), self._all(post.outputs)
        if is_set(self.segmented, post):
            return f"{made} = Set( {given}, cache_op=Streaming )"
        ends = f"Inputs: {{{given}}}, Outputs: {{{made}}}"
        name = "Evaluate" if segment.scheduler == HOST_SCHEDULER else "LaunchKernel"
        return f"{name}( Group ID: {segment.id}, {ends} )"

    def _all(self, names: Sequence[str]) -> str:
        known = self.scalars
        return ", ".join(known[n] if n in known else self.tensors.text(n) for n in names)

    @cached_property
    def scalars(self) -> dict[str, str]:
        """Return the texts of the scalars that segments may read, by name."""
        return {value.name: text for value, text in self.names.scalars.items()}

    def _stream(self, stream: Dim) -> str:
        if stream.is_const:
            return str(stream)
        for loop in (i for i in self.program.instructions if isinstance(i, For)):
            index = symbol(loop.index, extent=False)
            if loop.streams and stream == 1 + mod(index, loop.streams):
                return f"( {INDEX} % numberOfStreams )"
            if loop.index in stream.symbols and stream == 1 + stream_number(loop):
                return self.names.size(stream_number(loop))
            if stream == 1 + index:
                return INDEX
        return self.callers[str(stream)]

    def _exchange(self, exchange: Collective | Send | Receive) -> str:
        number, self.count = self.count, self.count + 1
        where = f"axis={exchange.axis}"
        if isinstance(exchange, Collective):
            self.exchanges[exchange.target] = f"Communication {number}"
            where += f", ranks={exchange.ranks}"
            where += f", op={exchange.reduction}" if exchange.reduction else ""
            where += "" if exchange.root is None else f", root={self.names.size(exchange.root)}"
            where += f", to={{{', '.join(map(str, exchange.to))}}}" if exchange.to else ""
            source, target = self.tensors.text(exchange.source), self.tensors.text(exchange.target)
            kind = EXCHANGES[exchange.kind]
            ends = f"input={source}, output={target}"
            return f"Communication {number} (type={kind}, {where}, {ends})"
        kind, name = (
            ("send", exchange.source) if isinstance(exchange, Send) else ("recv", exchange.target)
        )
        self.exchanges[name] = f"P2PCommunication {number}"
        peer = self.names.size(exchange.place)
        buffer = self.tensors.text(name)
        return f"P2PCommunication {number} (type={kind}, {where}, peer={peer}, buffer={buffer})"
