"""The connections of one rank to all others, with detection of lost ranks."""

from __future__ import annotations

import ctypes
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from queue import Queue
from types import TracebackType
from typing import Any

from fusec.dataclasses import dataclass
from fusec.foreign import decoding, memory_bytes
from fusec.run.distributed import wire
from fusec.run.distributed.loss import Loss, RankFailure
from fusec.run.distributed.status import ANY, NO_RANK, Status
from fusec.run.distributed.watchdog import Watchdog

__all__ = ["Links", "Message", "RankFailure"]


@dataclass(frozen=True)
class Message:
    """A message from a rank: a head of plain data, and bytes."""

    head: Mapping[str, Any]
    data: bytearray
    origin: int

    def field(self, name: str, kind: type) -> Any:
        """Return a field of the head of a given type; RankFailure where there is none."""
        with self.reading():
            wire.need(self.head, **{name: kind})
            return self.head[name]

    def reading(self) -> AbstractContextManager[None]:
        """Return a context that raises RankFailure where the message is not as expected."""
        return decoding(self._malformed)

    def _malformed(self, reason: str) -> RankFailure:
        return RankFailure(f"rank {self.origin} sent a malformed message", notes=(reason,))


class Links:
    """One rank's connections; a thread for each other rank receives its messages.

    Waits have no time limit of their own: each is recorded for the watchdog
    (`run/distributed/watchdog.py`), and ends with RankFailure when that reports a loss. timeout:
    seconds without progress after which a rank that is waited for counts as hung.
    """

    def __init__(
        self,
        rank: int,
        sockets: Mapping[int, socket.socket],
        hosts: tuple[str, ...],
        timeout: float,
        watchdog: Watchdog | None,
    ) -> None:
        """Take connected sockets by peer rank, and the hosts of all ranks."""
        self.rank, self.size, self.hosts = rank, len(hosts), hosts
        self.timeout = timeout
        self._watchdog = watchdog
        self._base = Status()
        self._sockets = dict(sockets)
        self._sending = {other: threading.Lock() for other in sockets}
        self._changed = threading.Condition()
        self._messages: dict[tuple[int, str], Message] = {}
        self._left: set[int] = set()
        self._waits = NO_RANK
        self._failure_word = ctypes.c_int(0)
        self._numbers = self._reads = 0
        self._closed = False
        self._asked: Queue[tuple[int, wire.Head] | None] = Queue()
        self._find: Callable[[str], Any] | None = None
        named = {other: f"fusec from rank {other}" for other in sockets}
        self._threads = [
            threading.Thread(target=self._read, args=(other,), name=name, daemon=True)
            for other, name in named.items()
        ]
        for thread in self._threads:
            thread.start()
        if watchdog is not None:
            watchdog.on_loss(self._give_up)
            self.phase("")

    @classmethod
    def alone(cls) -> Links:
        """Return the connections of a single rank."""
        return cls(0, {}, ("",), 1.0, None)

    def __enter__(self) -> Links:
        """Return the connections."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections; RankFailure if a rank is lost by then and nothing else failed."""
        self.close()
        if error is None:
            self.check()

    @property
    def others(self) -> tuple[int, ...]:
        """Return all ranks except this one."""
        return tuple(sorted(self._sockets))

    @property
    def failed(self) -> bool:
        """Return whether a rank is lost or has failed."""
        return self._watchdog is not None and self._watchdog.loss is not None

    @property
    def failure_address(self) -> int:
        """Return the address of a 32-bit word that is 1 once `failed` is true, for C to read."""
        return ctypes.addressof(self._failure_word)

    def on_host(self, group: tuple[int, ...]) -> bool:
        """Return whether ranks are all on one host."""
        return len({self.hosts[rank] for rank in group}) == 1

    @property
    def local_rank(self) -> int:
        """Return the index of this rank among those of its host."""
        return self.hosts[: self.rank].count(self.hosts[self.rank])

    def phase(self, doing: str, limit: float = 0.0) -> None:
        """Record what this rank does from now on, while it waits for no other.

        limit: seconds after which it counts as hung; 0: never.
        """
        self._base = Status(doing, self.rank if limit else NO_RANK, limit)
        self._note(self._base)

    def send(self, to: int, key: str, doing: str, head: Mapping[str, Any], data: Any = b"") -> None:
        """Send a message under a unique key; RankFailure where a rank is lost.

        A rank may send to itself.
        """
        frame, view = {"key": key, "head": dict(head)}, memoryview(data).cast("B")
        if to == self.rank:
            return self._take(to, frame, bytearray(view))
        with self._waiting(to, doing, self.timeout):
            self._deliver(to, frame, view)

    def _deliver(self, to: int, frame: wire.Head, data: Any = b"") -> None:
        with self._sending[to]:
            try:
                wire.send(self._sockets[to], frame, data, self._moved(to))
            except wire.Ended:
                raise self._why_ended(to) from None

    def receive(self, origin: int, key: str, doing: str, timeout: float | None = None) -> Message:
        """Return the message of a rank under a key; RankFailure where it cannot come."""
        with self._waiting(origin, doing, timeout or self.timeout), self._changed:
            while (origin, key) not in self._messages:
                self.check()
                if origin in self._left:
                    break
                self._changed.wait()
            else:
                return self._messages.pop((origin, key))
            raise self._why_ended(origin)

    def serve(self, find: Callable[[str], Any]) -> None:
        """Let others read memory of this rank while it does something else.

        find: returns the current bytes of a name, None for an unknown one.
        """
        if self._find is None:
            thread = threading.Thread(target=self._answer, name="fusec reads", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._find = find

    def read(self, origin: int, name: str, doing: str) -> bytearray | None:
        """Return bytes of another rank's memory, by name, without its cooperation."""
        self._reads += 1
        key = f"read {self._reads}"
        with self._waiting(origin, doing, self.timeout):
            self._deliver(origin, {"read": name, "as": key})
        message = self.receive(origin, key, doing)
        return message.data if message.field("found", bool) else None

    def _answer(self) -> None:
        """Serve the reads of other ranks."""
        while (asked := self._asked.get()) is not None:
            origin, frame = asked
            data = None if self._find is None else self._find(frame["read"])
            answer = {"key": frame["as"], "head": {"found": data is not None}}
            with suppress(RankFailure):
                self._deliver(origin, answer, b"" if data is None else data)

    def number(self) -> int:
        """Return a number for keys, the same on all ranks if they call it in the same order."""
        self._numbers += 1
        return self._numbers

    def gather(self, value: Any, doing: str, timeout: float | None = None) -> list[Any]:
        """Return the values of all ranks; all call it, in the same order."""
        key = f"gather {self.number()}"
        for other in self.others:
            self.send(other, key, doing, {"value": value})
        found = {self.rank: value}
        for other in self.others:
            found[other] = _value_like(value, self.receive(other, key, doing, timeout))
        return [found[rank] for rank in range(self.size)]

    def check(self) -> None:
        """Raise RankFailure where a rank is lost or has failed."""
        if self._watchdog is not None and self._watchdog.loss is not None:
            raise self._watchdog.failure()

    def until(self, done: Callable[[], bool], doing: str, timeout: float | None = None) -> None:
        """Return once `done` holds; RankFailure where a rank is lost first.

        It is done elsewhere, as on a GPU, where it is unknown which rank is waited for.
        """
        pause = 1e-5
        with self._waiting(ANY, doing, timeout or self.timeout):
            while not done():
                self.check()
                time.sleep(pause)
                pause = min(2 * pause, 1e-3)

    def fail(self, reason: str) -> RankFailure | None:
        """Report to all others that this rank has failed.

        Return an earlier loss of another rank, which may be the cause of the failure.
        """
        if self._watchdog is None:
            return None
        own = Loss(self.rank, f"rank {self.rank} failed", (reason,), failed=True)
        first = self._watchdog.report(own)
        return None if first.failed else first.error()

    def close(self) -> None:
        """Announce the end, and close all connections."""
        if self._closed:
            return
        self._closed = True
        self.phase("the end of the run")
        self._asked.put(None)
        # Without the announcement, the end of a connection counts as a death.
        for other, link in self._sockets.items():
            with self._sending[other], suppress(wire.Ended, OSError):
                wire.send(link, {"bye": True})
                link.shutdown(socket.SHUT_WR)
        # A connection that is closed with unread data may lose the data that it sent.
        limit = time.monotonic() + self.timeout
        for thread in self._threads:
            thread.join(max(0.0, limit - time.monotonic()))
        with self._changed:
            # A dying rank's connection ends before the watchdog reports its death.
            self._changed.wait_for(
                lambda: self.failed or self._left >= self._sockets.keys(),
                max(0.0, limit - time.monotonic()),
            )
        self._end_sockets()
        for thread in self._threads:
            thread.join()
        if self._watchdog is not None:
            self._watchdog.leave()
        for link in self._sockets.values():
            wire.close(link)

    @contextmanager
    def _waiting(self, other: int, doing: str, limit: float) -> Generator[None]:
        """Record which rank this one waits for, and in what."""
        self.check()
        self._waits = other
        self._note(Status(doing, other, limit))
        try:
            yield
        finally:
            self._waits = NO_RANK
            self._note(self._base)

    def _note(self, status: Status) -> None:
        if self._watchdog is not None:
            self._watchdog.note(status)

    def _moved(self, other: int) -> Callable[[int], None]:
        """Return a function that records progress while this rank waits for another."""

        def progress(_: int) -> None:
            if self._watchdog is not None and self._waits == other:
                self._watchdog.progress()

        return progress

    def _why_ended(self, other: int) -> RankFailure:
        """Return why a connection ended: the rank has left, or the watchdog reports a loss.

        Both messages may still be in flight.
        """
        assert self._watchdog is not None
        with self._changed:
            self._changed.wait_for(lambda: self.failed or other in self._left, self.timeout)
        gone = Loss.died(other)
        if other in self._left:
            gone = Loss(other, f"rank {other} ended before the others")
        self._watchdog.report(gone)
        return self._watchdog.failure()

    def _give_up(self) -> None:
        """Wake all waiting threads, after a loss."""
        self._end_sockets()
        with self._changed:
            self._failure_word.value = 1
            self._changed.notify_all()

    def _end_sockets(self) -> None:
        for link in self._sockets.values():
            wire.end(link)

    def _read(self, origin: int) -> None:
        """Receive a rank's messages until its connection ends."""
        progress = self._moved(origin)
        try:
            while True:
                frame = wire.receive(self._sockets[origin], progress, most=memory_bytes())
                _check_frame(frame[0])
                self._take(origin, *frame)
        except wire.Ended:
            pass
        except wire.Refused as error:
            wire.end(self._sockets[origin])
            if self._watchdog is not None:
                self._watchdog.report(Loss(origin, f"rank {origin} has sent {error}"))

    def _take(self, origin: int, head: Mapping[str, Any], data: bytearray) -> None:
        with self._changed:
            if "read" in head:
                self._asked.put((origin, head))
            elif "key" in head:
                self._messages[origin, head["key"]] = Message(head["head"], data, origin)
            elif "bye" in head:
                self._left.add(origin)
            self._changed.notify_all()


def _check_frame(head: Mapping[str, Any]) -> None:
    """Raise wire.Refused for a frame that is not of a known kind."""
    if "read" in head:
        wire.need(head, **{"read": str, "as": str})
    elif "key" in head:
        wire.need(head, key=str, head=dict)


def _value_like(own: Any, message: Message) -> Any:
    """Return the value that another rank has gathered, in the type of this rank's own."""
    with message.reading():
        value = message.head["value"]
        kinds = (bool, str, list, dict, (int, float))
        kind = next((k for k in kinds if isinstance(own, k)), None)
        if kind is not None and value is not None:
            wire.need(message.head, value=kind)
        return value
