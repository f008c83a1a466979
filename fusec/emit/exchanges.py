"""Communication between ranks of an emitted program, as calls of NCCL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fusec.dataclasses import dataclass
from fusec.diagnostics import InternalError, Unsupported
from fusec.emit.code import Code, code, field_of, joined
from fusec.emit.streams import STREAMS, StreamPrinter
from fusec.emit.variables import Variables
from fusec.emit.view import Call, Step
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    EncodeTensorMap,
    For,
    Free,
    Instruction,
    Receive,
    Send,
    Share,
    Wait,
)
from fusec.hostir.program import Buffer, HostProgram, every
from fusec.ir.dim import Dim, floordiv
from fusec.run.transports.nccl import reduction_of

HOST_ONLY = (Allocate, Alias, Free, EncodeTensorMap)
_BYTES = "ncclInt8"


def is_waited_later(body: Sequence[Instruction], place: int) -> bool:
    """Return whether anything runs between a communication operation and the wait for it."""
    rest = (i for i in body[place + 1 :] if not isinstance(i, HOST_ONLY))
    return not isinstance(next(rest, None), Wait)


def some_wait_later(program: HostProgram) -> bool:
    """Return whether any communication operation needs a stream of its own."""
    loops = (i for i in every(program.instructions) if isinstance(i, For))
    bodies = [program.instructions, *(loop.body for loop in loops)]
    return any(
        isinstance(instruction, Collective | Receive) and is_waited_later(body, place)
        for body in bodies
        for place, instruction in enumerate(body)
    )


@dataclass(frozen=True)
class _Begin:
    """The stream on which a communication operation starts, and the steps before and after it."""

    before: list[Step]
    stream: Code | str
    after: list[Step]


class ExchangePrinter:
    """Prints communication in program order, which is the same on all ranks.

    If it is awaited immediately it runs on the current stream, otherwise on the communication
    stream, with an event at its end. communicators: the expressions of the axes' communicators.
    """

    def __init__(
        self,
        variables: Variables,
        streams: StreamPrinter,
        communicators: Mapping[str, Code],
        channel: int,
    ) -> None:
        """Start without communication; channel: the number of the communication stream."""
        self.variables, self.streams, self.channel = variables, streams, channel
        self.communicators = communicators
        self.events = 0
        self._events: dict[str, int] = {}
        self._sent: Send | None = None

    @property
    def pending(self) -> frozenset[str]:
        """Return the buffers of communication that was started and not waited for yet."""
        return frozenset(self._events)

    def collective(self, exchange: Collective, *, later: bool) -> Iterator[Step]:
        """Yield the steps that start a collective."""
        buffers = exchange.target, exchange.source
        begin = self._begin(buffers, later=later)
        yield from begin.before
        yield Call(self._collective(exchange, begin.stream), str(exchange))
        yield from begin.after

    def send(self, exchange: Send) -> None:
        """Keep a send for the receive that it forms a group with."""
        if self._sent is not None:
            raise InternalError(f"`{self._sent}` goes without a `receive`")
        self._sent = exchange

    def receive(self, exchange: Receive, own: str, *, later: bool) -> Iterator[Step]:
        """Yield the steps that send and receive.

        own: the variable that is true if a rank is its own partner; it then sends nothing.
        """
        sent, self._sent = self._sent, None
        if sent is None or sent.axis != exchange.axis:
            raise InternalError(f"`{exchange}` comes without a `send`")
        begin = self._begin((exchange.target, sent.source), later=later)
        given = (*self._end(sent.source, sent.place), *self._end(exchange.target, exchange.place))
        self._called("send_and_receive")
        call = self._call("send_and_receive", given, exchange.axis, begin.stream)
        yield from begin.before
        yield Call(call, f"{sent}, {exchange}", unless=own)
        yield from begin.after

    def wait(self, buffer: str) -> Iterator[Step]:
        """Yield the wait of the current stream; nothing if the communication is on it."""
        event = self._events.get(buffer)
        if event is None:
            return
        self._events = {n: e for n, e in self._events.items() if e != event}
        steps, on = self.streams.enter()
        yield from steps
        self._called("await")
        yield Call(code("await({}, {}, {})", STREAMS, on, event), f"wait {buffer}")

    def share(self, share: Share, room: str, step: Dim) -> Iterator[Step]:
        """Yield the steps that gather the parts of all ranks, with a stride of `step` bytes."""
        steps, on = self.streams.enter()
        yield from steps
        sent = self.variables.at(share.source), "0"
        received = room, self.variables.text(step)
        rest = self.variables.bytes(share.source), str(len(share.views))
        yield Call(self._blocks((*sent, *received, *rest), share.axis, on), str(share))

    def _begin(self, buffers: tuple[str, str], *, later: bool) -> _Begin:
        before, on = self.streams.enter()
        if not later:
            return _Begin(before, on, [])
        event, self.events = self.events, self.events + 1
        self._events |= dict.fromkeys(buffers, event)
        self._called("mark")
        after: list[Step] = [Call(code("mark({}, {}, {})", STREAMS, self.channel, event))]
        return _Begin(
            [*before, *self.streams.fork(self.channel)],
            field_of("streams", f"all[{self.channel}]"),
            after,
        )

    def _collective(self, exchange: Collective, on: Code | str) -> Code:
        source, target = (self._buffer(n) for n in (exchange.source, exchange.target))
        ends, text = (exchange.source, exchange.target), self.variables.text
        match exchange.kind:
            case "all_gather":
                count = source.dense_bytes
                return self._nccl("AllGather", ends, count, (_BYTES,), exchange.axis, on)
            case "broadcast" if exchange.root is not None:  # to all ranks, even if few need it
                rest = _BYTES, code("(int)({})", text(exchange.root))
                return self._nccl("Broadcast", ends, target.dense_bytes, rest, exchange.axis, on)
            case "all_to_all":
                block = text(floordiv(source.dense_bytes, exchange.ranks))
                given = (part for name in ends for part in (self.variables.at(name), block))
                rest = block, str(exchange.ranks)
                return self._blocks((*given, *rest), exchange.axis, on)
            case "all_reduce" | "reduce_scatter":
                kind, operation, each = reduction_of(exchange.reduction, target.dtype, 1)
                rest = f"nccl{kind.capitalize()}", f"nccl{operation.capitalize()}"
                name = "AllReduce" if exchange.kind == "all_reduce" else "ReduceScatter"
                count = target.elements * each
                return self._nccl(name, ends, count, rest, exchange.axis, on)
            case other:
                raise Unsupported(f"NCCL has no operation named `{other}`")

    def _nccl(
        self,
        name: str,
        ends: tuple[str, str],
        count: Dim,
        rest: tuple[Code | str, ...],
        axis: str,
        on: Code | str,
    ) -> Code:
        source, target = map(self.variables.at, ends)
        pointers = f"(const void*){source}", f"(void*){target}"
        size = self.variables.cast(count, "size_t")
        return code("nccl({})", self._call(f"nccl{name}", (*pointers, size, *rest), axis, on))

    def _blocks(self, given: tuple[Code | str, ...], axis: str, on: Code | str) -> Code:
        self._called("exchange_blocks")
        return self._call("exchange_blocks", given, axis, on)

    def _end(self, buffer: str, place: Dim) -> tuple[str, Code, Code]:
        """Return the address of a slice, its bytes, and the index of the peer rank."""
        variables = self.variables
        return variables.at(buffer), variables.bytes(buffer), variables.text(place)

    def _call(
        self, function: str, given: tuple[Code | str, ...], axis: str, on: Code | str
    ) -> Code:
        return code("{}({})", function, joined(", ", (*given, self.communicators[axis], on)))

    def _buffer(self, name: str) -> Buffer:
        return self.variables.program.buffer[name]

    def _called(self, helper: str) -> None:
        self.variables.sizes.called.add(helper)
