"""Host programs made by hand, with the segments that they run, and ranks as threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    For,
    Free,
    GetStream,
    Instruction,
    Post,
    Receive,
    Send,
    SetStream,
    Share,
    Synchronize,
    Unshare,
    Wait,
)
from fusec.hostir.program import Buffer, HostProgram, check_program, dense_strides
from fusec.ir.dim import Dim, dim, symbol
from fusec.ir.dtype import F32
from fusec.ir.graph import Fusion
from fusec.parse.reader import read_text
from fusec.run.transports.protocol import Begin, Exchange

B, H, INDEX = symbol("B"), symbol("H"), symbol("i")


def buffer(name: str, role: str, *shape: Dim | int, dtype: Any = F32) -> Buffer:
    """Return a dense buffer."""
    dims = tuple(dim(e) for e in shape)
    return Buffer(name, role, dtype, dims, dense_strides(dims))


def program(
    buffers: Sequence[Buffer],
    instructions: Sequence[Instruction],
    outputs: Sequence[str],
    *,
    wrong: bool = False,
) -> HostProgram:
    """Return a program that is well formed, unless it is to be wrong."""
    made = HostProgram("made", tuple(buffers), (), tuple(instructions), tuple(outputs))
    if not wrong:
        check_program(made)
    return made


def segment(op: str, shape: str, *inputs: str, out: str) -> Fusion:
    """Return a fusion of one operation on inputs of a shape; B and H are free."""
    given = "\n".join(f"  {name}: f32[{shape}]" for name in inputs)
    text = f"fusion: s\ndims: {{B: 8, H: 4}}\ninputs:\n{given}\nops:\n  - {out} = {op}\n"
    return read_text(f"{text}outputs: [{out}]\n", "made.yaml")


STREAMS = 2
"""Beside the caller's."""
PARTS = 4


def ring(ranks: int) -> tuple[HostProgram, dict[str, Fusion]]:
    """Return z = x whole + w by a loop over the ranks: each iteration adds to the rows of one."""
    own = symbol("mesh.place")
    place = (INDEX + own) % ranks
    at = place * (B * H)
    body = (
        SetStream(INDEX % STREAMS + 1), Synchronize(symbol("outer")),
        Allocate("x_part"),
        Send("x", "mesh", (own - INDEX) % ranks), Receive("x_part", "mesh", place), Wait("x_part"),
        Alias("w_part", "w", at), Alias("z_part", "z", at),
        Post("s0", ("x_part", "w_part"), ("z_part",)),
        Free("x_part"), SetStream(symbol("outer")),
    )  # fmt: skip
    joins = For("k", dim(STREAMS), (Synchronize(symbol("k") + 1),))
    buffers = [
        buffer("x", "input", B, H), buffer("w", "input", B * ranks, H),
        buffer("z", "output", B * ranks, H),
        *(buffer(f"{n}_part", "temporary", B, H) for n in "xwz"),
    ]  # fmt: skip
    loop = [Allocate("z"), GetStream("outer"), For("i", dim(ranks), body), joins]
    return program(buffers, loop, ["z"]), {"s0": segment("add(a, b)", "B, H", "a", "b", out="c")}


def streamed() -> tuple[HostProgram, dict[str, Fusion]]:
    """Return z = (2 x) + x by a loop over four parts of B, and its two segments."""
    rows = B.divide(PARTS) or B // PARTS
    views = [
        Alias("x_part", "x", INDEX * (rows * H)),
        Alias("y_part", "y", INDEX * (rows * H)),
        Alias("z_part", "z", INDEX * (rows * H)),
    ]
    body = (
        SetStream(INDEX % STREAMS + 1), Synchronize(symbol("outer")), *views,
        Post("s0", ("x_part",), ("y_part",)), Post("s1", ("x_part", "y_part"), ("z_part",)),
        SetStream(symbol("outer")),
    )  # fmt: skip
    joins = For("k", dim(STREAMS), (Synchronize(symbol("k") + 1),))
    buffers = [
        buffer("x", "input", B, H), buffer("y", "temporary", B, H), buffer("z", "output", B, H),
        *(buffer(f"{n}_part", "temporary", rows, H) for n in "xyz"),
    ]  # fmt: skip
    start = [Allocate("z"), Allocate("y"), GetStream("outer")]
    made = program(buffers, [*start, For("i", dim(PARTS), body), joins], ["z"])
    shape = "B // 4, H"
    segments = {
        "s0": segment("mul(a, 2.0)", shape, "a", out="b"),
        "s1": segment("add(a, b)", shape, "a", "b", out="c"),
    }
    return made, segments


@dataclass
class Exchanged:
    """What the ranks of threads have put down for one another."""

    boxes: dict[tuple[int, int, str], deque[Any]] = field(default_factory=dict[Any, deque[Any]])
    changed: threading.Condition = field(default_factory=threading.Condition)
    memory: dict[tuple[int, str], Any] = field(default_factory=dict[Any, Any])
    """By rank and name: what others may read."""

    def put(self, key: tuple[int, int, str], array: Any) -> None:
        """Leave an array for another rank."""
        with self.changed:
            self.boxes.setdefault(key, deque()).append(array.copy())
            self.changed.notify_all()

    def get(self, key: tuple[int, int, str]) -> Any:
        """Take what another rank has left."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.boxes.get(key), 10), f"{key} never came"
            return self.boxes[key].popleft()


@dataclass
class Threads:
    """A transport between threads; what it carries arrives when it is waited for."""

    shared: Exchanged
    rank: int
    left: int = 0
    count: int = 0
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict[str, Any])
    pending: dict[str, list[Callable[[], None]]] = field(default_factory=dict[str, Any])

    def prepare(self, exchanges: Sequence[Begin]) -> None:
        """Note how many there will be, and what others read."""
        self.left = len(exchanges)
        for begin in exchanges:
            if isinstance(begin.exchange, Share):
                self.shared.memory[self.rank, begin.exchange.source] = begin.source
                self.groups[begin.exchange.source] = begin.group

    def begin(
        self, exchange: Exchange, target: Any, source: Any, group: tuple[int, ...], place: int
    ) -> None:
        """Put down what is sent."""
        self.left -= 1
        if isinstance(exchange, Send):
            self.shared.put((self.rank, group[exchange.place.value], "p2p"), source)
            return
        if isinstance(exchange, Receive):
            key = (group[exchange.place.value], self.rank, "p2p")
            target.fill(np.nan)
            self.later(exchange.target, lambda: _fill(target, self.shared.get(key)))
            return
        if isinstance(exchange, Share | Unshare):
            self.meet(exchange, group)
            return
        self.count += 1
        key = f"{exchange.axis} {self.count}"  # every rank begins the same ones in one order
        for other in group:
            self.shared.put((self.rank, other, key), source)
        target.fill(np.nan)
        self.later(exchange.target, lambda: self._collect(key, exchange, target, group, place))

    def meet(self, exchange: Share | Unshare, group: tuple[int, ...]) -> None:
        """Wait for all ranks of a group."""
        for other in group:
            self.shared.put((self.rank, other, str(exchange)), np.empty(0))
        for other in group:
            self.shared.get((other, self.rank, str(exchange)))

    def view(self, buffer: str, place: int) -> Any:
        """Return another thread's memory itself."""
        return self.shared.memory[self.groups[buffer][place], buffer].reshape(-1)

    def later(self, name: str, end: Callable[[], None]) -> None:
        """Do something when a buffer is waited for."""
        assert name not in self.pending, f"two exchanges of {name}"
        self.pending[name] = [end]

    def wait(self, buffer: str, stream: int) -> None:
        """End what was begun with a buffer."""
        for end in self.pending.pop(buffer):
            end()

    def check(self) -> None:
        """No rank fails."""

    def until(self, done: Callable[[], bool], doing: str) -> None:
        """Nothing is waited for on a device."""

    def close(self) -> None:
        """Nothing is left to do."""

    def added(self, came: Sequence[Any]) -> Any:
        """Return the sum over ranks."""
        return sum(came)

    def _collect(
        self, key: str, exchange: Collective, target: Any, group: tuple[int, ...], place: int
    ) -> None:
        came = [self.shared.get((other, self.rank, key)) for other in group]
        match exchange.kind:
            case "all_gather":
                _fill(target, np.concatenate(came))
            case "all_reduce":
                _fill(target, self.added(came))
            case "reduce_scatter":
                _fill(target, np.split(self.added(came), len(group))[place])
            case "all_to_all":
                _fill(target, np.concatenate([np.split(a, len(group))[place] for a in came]))
            case kind:
                raise AssertionError(kind)


def _fill(target: Any, value: Any) -> None:
    target[...] = value


def by_ranks(
    count: int, run: Callable[[int, Threads], Any], kind: type[Threads] = Threads
) -> list[Any]:
    """Return what each rank returns, all of them run at once; kind: of the transport."""
    shared, found = Exchanged(), dict[int, Any]()

    def one(rank: int) -> None:
        try:
            found[rank] = run(rank, kind(shared, rank))
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=one, args=(r,)) for r in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rank in range(count):
        if isinstance(found[rank], BaseException):
            raise found[rank]
    return [found[rank] for rank in range(count)]
