"""A host program as steps: each on a stream, with the steps of other streams it waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass
from fusec.diagnostics import InternalError
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    EncodeTensorMap,
    Free,
    Instruction,
    Receive,
    Send,
    SetStream,
    Share,
    Synchronize,
    Unshare,
    Wait,
)
from fusec.hostir.unroll import unroll

if TYPE_CHECKING:
    from fusec.hostir.program import HostProgram
    from fusec.ir.dim import Dim

START = -1
"""The step number for all work of the caller's stream before the program."""

Clock = Mapping[int, int]
"""By stream, the number of its last step that is guaranteed to be over."""
_NEVER = START - 1


@dataclass(frozen=True)
class Step:
    """One instruction on a stream; 0 is the caller's.

    after: the last steps of other streams, by number, that must be over before; START is one. over:
    the steps that are over when it begins. tag: for communication and its wait, the name of its
    buffer, unique to each time.
    """

    instruction: Instruction
    stream: int
    after: tuple[int, ...]
    over: Clock
    tag: str = ""


@dataclass(frozen=True)
class Steps:
    """The steps of a program, with its loops unrolled, in issue order.

    last: those that the caller's stream waits for at the end.
    """

    program: HostProgram
    steps: tuple[Step, ...]
    last: tuple[int, ...]

    @property
    def streams(self) -> int:
        """Return the number of streams, including the caller's."""
        return 1 + max((s.stream for s in self.steps), default=0)

    @property
    def awaited(self) -> tuple[int, ...]:
        """Return the numbers of the steps that a step of another stream waits for, in order."""
        return tuple(sorted({*self.last, *(n for s in self.steps for n in s.after)}))


def steps_of(program: HostProgram, sizes: Mapping[str, int]) -> Steps:
    """Return the steps of a program at given sizes and rank indices.

    A stream whose first step waits for nothing waits for the caller's; FusecError names a symbol
    without a size.
    """
    flat = unroll(program, sizes)
    found = _Running()
    for instruction in flat.instructions:
        found.run(instruction)
    return Steps(flat, tuple(found.steps), found.rest())


class _Running:
    """The steps so far, and the steps that each stream knows to be over."""

    def __init__(self) -> None:
        self.current = 0
        self.steps: list[Step] = []
        self.clocks: dict[int, Clock] = {START: {0: START}}  # when each step is over
        self.known: dict[int, Clock] = {0: {0: START}}
        self.waits: dict[int, set[int]] = {}  # of streams, for their next step to wait for
        self.begun: dict[str, list[tuple[str, int]]] = {}
        self.times = Counter[str]()

    def run(self, instruction: Instruction) -> None:
        """Add one more instruction."""
        match instruction:
            case SetStream(stream):
                self.current = _number(stream)
            case Synchronize(stream):
                self._synchronise(_number(stream))
            case Allocate() | Alias() | Free() | EncodeTensorMap():  # these put no work on a stream
                over = self._over(self.current, self._needed(self.current))
                self.steps.append(Step(instruction, self.current, (), over))
            case Collective() | Send() | Receive():
                self._begin(instruction)
            case Wait(buffer):
                self._wait(buffer)
            case Share(source) | Unshare(source):
                self._add(instruction, self.current, source)
            case _:
                self._add(instruction, self.current)

    def rest(self) -> tuple[int, ...]:
        """Return the steps that the caller's stream still has to wait for."""
        for stream in self.known:
            if stream:
                self.waits.setdefault(0, set()).update(self._given(stream))
        return self._needed(0)

    def _clock(self, stream: int) -> Clock:
        return self.known.get(stream, {})

    def _given(self, stream: int) -> set[int]:
        """Return the last step of a stream, with what its next one would wait for."""
        last = self._clock(stream).get(stream)
        return {*self.waits.get(stream, ()), *(() if last is None else (last,))}

    def _synchronise(self, stream: int) -> None:
        if stream != self.current:
            self.waits.setdefault(self.current, set()).update(self._given(stream))

    def _needed(self, stream: int) -> tuple[int, ...]:
        """Return the steps that the next step of a stream must wait for, without redundant ones."""
        wanted = set(self.waits.get(stream, ()))
        clock = self._clock(stream)
        if stream and 0 not in clock and not any(0 in self.clocks[n] for n in wanted):
            wanted.add(START)
        wanted = {n for n in wanted if clock.get(self._stream(n), _NEVER) < n}
        implied = {
            n
            for n in wanted
            for other in wanted - {n}
            if self.clocks[other].get(self._stream(n), _NEVER) >= n
        }
        return tuple(sorted(wanted - implied))

    def _stream(self, number: int) -> int:
        return 0 if number == START else self.steps[number].stream

    def _over(self, stream: int, after: tuple[int, ...]) -> Clock:
        clock = dict(self._clock(stream))
        for number in after:
            for other, last in self.clocks[number].items():
                clock[other] = max(clock.get(other, _NEVER), last)
        return clock

    def _add(self, instruction: Instruction, stream: int, tag: str = "") -> int:
        after, number = self._needed(stream), len(self.steps)
        over = self._over(stream, after)
        self.waits.pop(stream, None)
        self.steps.append(Step(instruction, stream, after, over, tag))
        self.known[stream] = self.clocks[number] = {**over, stream: number}
        return number

    def _begin(self, exchange: Collective | Send | Receive) -> None:
        name = exchange.source if isinstance(exchange, Send) else exchange.target
        tag = f"{name}#{self.times[name]}" if self.times[name] else name
        self.times[name] += 1
        number = self._add(exchange, self.current, tag)
        if not isinstance(exchange, Send):
            self.begun.setdefault(name, []).append((tag, number))

    def _wait(self, buffer: str) -> None:
        if not self.begun.get(buffer):
            raise InternalError(f"`{Wait(buffer)}` waits for a communication that was not started")
        for tag, number in self.begun.pop(buffer):
            if self._stream(number) != self.current:
                self.waits.setdefault(self.current, set()).add(number)
            self._add(Wait(buffer), self.current, tag)


def _number(stream: Dim) -> int:
    number = stream.value
    if number < 0:
        raise InternalError(f"stream `{stream}` has the number {number}")
    return number
