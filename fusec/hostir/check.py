"""Preconditions of each instruction of a host program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    EncodeTensorMap,
    For,
    Free,
    GetStream,
    Instruction,
    Launch,
    Post,
    Receive,
    Send,
    SetStream,
    Share,
    Synchronize,
    Unshare,
    Wait,
    reads,
    writes,
)
from fusec.schedule.plan import ScalarArgument, TensorMapArgument

if TYPE_CHECKING:
    from fusec.ir.dim import Dim

IN_LOOPS = (".index", ".join", ".caller")
"""Suffixes of symbols bound only inside loops: their indices, and the enclosing streams."""


@dataclass(frozen=True)
class _Pending:
    """A communication operation in flight: the buffer it writes and the buffer it reads."""

    text: str
    target: str | None
    source: str | None
    between_two: bool


class Check:
    """The state so far: live buffers, bound symbols, communication in flight."""

    def __init__(self, name: str, scalars: Iterable[str], given: Iterable[str]) -> None:
        """Start with a program's name, its scalar inputs and its other inputs."""
        self.name, self.scalars = name, set(scalars)
        self.live = set(given)
        self.written = set(self.live)
        self.of = dict[str, str]()
        self.maps = set[str]()
        self.known = set[str]()
        self.pending = list[_Pending]()
        self.views = set[str]()

    def need(self, name: str, what: Instruction | str) -> None:
        """Raise FusecError where a buffer that an instruction uses has no memory."""
        if name not in self.live:
            raise self._error(f"`{what}` uses `{name}`, which has no memory")

    def ends(self, outputs: Iterable[tuple[str, bool]]) -> None:
        """Raise FusecError where an output does not exist at the end; each may be empty or not."""
        for exchange in self.pending:
            raise self._error(f"nothing waits for `{exchange.text}`")
        for name, empty in outputs:
            self.need(name, f"return {name}")
            if not empty and not self.written.intersection(self._larger(name)):
                raise self._error(f"it returns `{name}`, which nothing writes")

    def instruction(self, instruction: Instruction) -> None:
        """Check one more instruction."""
        for size in _sizes(instruction):
            for name in sorted(size.symbols - self.known):
                if name.endswith(IN_LOOPS):
                    raise self._error(f"`{instruction}` uses `{name}`, which is not known there")
        match instruction:
            case Allocate(buffer):
                self.live.add(buffer)
                self.written.discard(buffer)
            case Free(buffer):
                self.need(buffer, instruction)
                self._not_pending(instruction, frozenset(), frozenset({buffer}))
                self.live.remove(buffer)
            case Alias(buffer, of, _):
                self.need(of, instruction)
                self.live.add(buffer)
                self.of[buffer] = of
            case EncodeTensorMap(name, described):
                self.need(described.buffer, instruction)
                self.maps.add(name)
            case For():
                self._loop(instruction)
            case GetStream(name):
                self.known.add(name)
            case Wait(buffer):
                self._wait(instruction, buffer)
            case Share(source, views):
                self.need(source, instruction)
                self._not_pending(instruction, frozenset({source}), frozenset())
                self.pending.append(_Pending(str(instruction), None, source, False))
                for known in (self.live, self.views, self.written):
                    known.update(views)
            case Unshare(source, views):
                self._unshare(instruction, source, views)
            case _:
                self._used(instruction)

    def _used(self, instruction: Instruction) -> None:
        read, changed = reads(instruction), writes(instruction)
        for name in sorted(read | changed):
            if not (isinstance(instruction, Post) and name in self.scalars):
                self.need(name, instruction)
        self._not_pending(instruction, read, changed)
        for name in sorted(changed & self.views):
            raise self._error(f"`{instruction}` writes `{name}`, the memory of another rank")
        for name in changed:
            self.written.update(self._larger(name))
        for argument in instruction.arguments if isinstance(instruction, Launch) else ():
            if isinstance(argument, TensorMapArgument) and argument.name not in self.maps:
                raise self._error(f"`{instruction}` uses tensor map `{argument.name}`, not encoded")
            if isinstance(argument, ScalarArgument) and argument.name not in self.scalars:
                raise self._error(f"`{instruction}` uses `{argument.name}`, not a scalar input")
        match instruction:
            case Collective(_, target, source):
                self.pending.append(_Pending(str(instruction), target, source, False))
            case Send(source):
                self.pending.append(_Pending(str(instruction), None, source, True))
            case Receive(target):
                self.pending.append(_Pending(str(instruction), target, None, True))
            case _:
                pass

    def _loop(self, loop: For) -> None:
        if loop.index in self.known:
            raise self._error(f"`{loop}` is in a loop over the same index")
        before, known, outside = set(self.live), set(self.known), list(self.pending)
        self.known.add(loop.index)
        for instruction in loop.body:
            self.instruction(instruction)
        freed = before - self.live
        if freed:
            raise self._error(f"`{loop}` frees `{min(freed)}`, which it has not allocated")
        for exchange in self.pending:
            if exchange not in outside:
                raise self._error(f"nothing in `{loop}` waits for `{exchange.text}`")
        # Buffers and views of a loop's body do not exist after the loop.
        self.live, self.known = before, known

    def _unshare(self, unshare: Unshare, source: str, views: Iterable[str]) -> None:
        """End the sharing of a buffer; its views no longer exist."""
        over = str(Share(source, tuple(views), unshare.axis))
        if all(e.text != over for e in self.pending):
            raise self._error(f"`{unshare}` ends nothing that is shared")
        self.pending = [e for e in self.pending if e.text != over]
        self.live -= set(views)
        self.views -= set(views)

    def _wait(self, wait: Wait, buffer: str) -> None:
        """Complete the collective of a buffer, or all pending sends and receives."""
        over = [e for e in self.pending if buffer in (e.target, e.source if e.between_two else "")]
        if not over:
            raise self._error(f"`{wait}` waits for nothing that was begun")
        together = any(e.between_two for e in over)
        self.pending = [
            e for e in self.pending if e not in over and not (together and e.between_two)
        ]

    def _not_pending(
        self, instruction: Instruction, read: frozenset[str], changed: frozenset[str]
    ) -> None:
        """Raise FusecError where an instruction conflicts with communication in flight."""
        for exchange in self.pending:
            for name in sorted(read | changed):
                target = exchange.target is not None and self._share(name, exchange.target)
                source = exchange.source is not None and self._share(name, exchange.source)
                if target or (source and name in changed):
                    raise self._error(f"`{instruction}` does not wait for `{exchange.text}`")

    def _larger(self, name: str) -> Iterator[str]:
        """Yield a buffer, and the buffers that it is a view of."""
        yield name
        while name in self.of:
            name = self.of[name]
            yield name

    def _share(self, left: str, right: str) -> bool:
        """Return whether one buffer equals or contains the other; distinct parts do not overlap."""
        return left in self._larger(right) or right in self._larger(left)

    def _error(self, message: str) -> FusecError:
        return FusecError(f"host program `{self.name}`: {message}")


def _sizes(instruction: Instruction) -> Iterator[Dim]:
    """Yield the sizes of an instruction that may change from iteration to iteration."""
    match instruction:
        case Alias(_, _, size) | SetStream(size) | Synchronize(size):
            yield size
        case Send(_, _, size) | Receive(_, _, size):
            yield size
        case _:
            pass
