"""The connections of one rank to all others: messages, signs of life, and how failures spread."""

from __future__ import annotations

import ctypes
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Queue
from types import TracebackType
from typing import Any

from fusec.diagnostics import EnvironmentProblem
from fusec.run import wire

_LONGEST_BEAT = 2.0


class RankFailure(EnvironmentProblem):
    """A rank has died, hangs or has failed: no other can go on."""


@dataclass(frozen=True)
class Message:
    """What came of a rank: a head of plain data, and bytes."""

    head: Mapping[str, Any]
    data: bytearray


class Links:
    """One rank's connections; a thread for each other rank takes what it sends.

    patience: seconds without progress after which a rank that is waited for counts as hung.
    """

    def __init__(
        self,
        rank: int,
        sockets: Mapping[int, socket.socket],
        hosts: tuple[str, ...],
        patience: float,
    ) -> None:
        """Take connected sockets by the rank at their other end, and the hosts of all ranks."""
        self.rank, self.size, self.hosts = rank, len(hosts), hosts
        self.patience = patience
        self._tick = min(0.2, patience / 8)
        self._sockets = dict(sockets)
        self._sending = {other: threading.Lock() for other in sockets}
        self._changed = threading.Condition()
        self._messages: dict[tuple[int, str], Message] = {}
        self._heard = dict.fromkeys(range(self.size), time.monotonic())
        self._progress = dict.fromkeys(range(self.size), 0.0)
        self._waiting_of: dict[int, int | None] = {}
        self._left: set[int] = set()
        self._failure: RankFailure | None = None
        self._failure_word = ctypes.c_int(0)
        self._waiting: int | None = None
        self._doing = ""
        self._numbers = self._reads = 0
        self._closed = threading.Event()
        self._asked: Queue[tuple[int, wire.Head] | None] = Queue()
        self._find: Callable[[str], Any] | None = None
        named = {other: f"fusec from rank {other}" for other in sockets}
        self._threads = [
            threading.Thread(target=self._read, args=(other,), name=name, daemon=True)
            for other, name in named.items()
        ]
        self._threads.append(threading.Thread(target=self._beat, name="fusec beat", daemon=True))
        for thread in self._threads:
            thread.start()

    @classmethod
    def alone(cls) -> Links:
        """Return what one rank without others has."""
        return cls(0, {}, ("",), 1.0)

    def __enter__(self) -> Links:
        """Return the connections."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End them."""
        self.close()

    @property
    def others(self) -> tuple[int, ...]:
        """Return all ranks but this one."""
        return tuple(sorted(self._sockets))

    @property
    def failed(self) -> bool:
        """Return whether a rank has died, hangs or has failed."""
        return self._failure is not None

    @property
    def failure_address(self) -> int:
        """Return the address of a 32-bit word that is 1 once `failed` is true, for C to read."""
        return ctypes.addressof(self._failure_word)

    def on_host(self, group: tuple[int, ...]) -> bool:
        """Return whether ranks are all on one host."""
        return len({self.hosts[rank] for rank in group}) == 1

    @property
    def local_rank(self) -> int:
        """Return the place of this rank among those of its host."""
        return self.hosts[: self.rank].count(self.hosts[self.rank])

    def send(self, to: int, key: str, doing: str, head: Mapping[str, Any], data: Any = b"") -> None:
        """Send a message under a key that no other has; RankFailure where the rank dies or hangs.

        A rank may send to itself.
        """
        frame, view = {"key": key, "head": dict(head)}, memoryview(data).cast("B")
        if to == self.rank:
            return self._take(to, frame, bytearray(view))
        with self._for(to, doing):
            self._deliver(to, frame, doing, view)

    def _deliver(self, to: int, frame: wire.Head, doing: str, data: Any = b"") -> None:
        view = memoryview(data).cast("B")
        head = wire.pack(frame, view.nbytes)

        def idle(seconds: float) -> None:
            self.check()
            if seconds > self.patience:
                raise self._fail(self._hung(to, doing, self.patience))

        with self._sending[to]:
            try:
                for part in (head, view):
                    wire.send_all(self._sockets[to], part, self._tick, idle)
            except wire.Ended:
                raise self._fail(self._last_words() or self._died(to)) from None

    def receive(self, origin: int, key: str, doing: str, patience: float | None = None) -> Message:
        """Return the message of a rank under a key; RankFailure where it cannot come."""
        with self._for(origin, doing):
            found = self._await(origin, key, doing, patience or self.patience)
        if isinstance(found, RankFailure):
            raise self._fail(found)
        return found

    def serve(self, find: Callable[[str], Any]) -> None:
        """Let others read memory of this rank while it does something else.

        find: returns the bytes that a name stands for at that moment, None for what there is not.
        """
        if self._find is None:
            thread = threading.Thread(target=self._answer, name="fusec reads", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._find = find

    def read(self, origin: int, name: str, doing: str) -> bytearray | None:
        """Return bytes of another rank's memory, by a name; that rank may do what it likes."""
        self._reads += 1
        key = f"read {self._reads}"
        with self._for(origin, doing):
            self._deliver(origin, {"read": name, "as": key}, doing)
        message = self.receive(origin, key, doing)
        return message.data if message.head["found"] else None

    def _answer(self) -> None:
        """Give others what they read."""
        while (asked := self._asked.get()) is not None:
            origin, frame = asked
            data = None if self._find is None else self._find(frame["read"])
            answer = {"key": frame["as"], "head": {"found": data is not None}}
            with suppress(RankFailure):
                self._deliver(origin, answer, "a read", b"" if data is None else data)

    def _await(self, origin: int, key: str, doing: str, limit: float) -> Message | RankFailure:
        begun = time.monotonic()
        with self._changed:
            while (origin, key) not in self._messages:
                if self._failure is not None:
                    return self._failure
                if origin in self._left:
                    return _failure(f"rank {origin} has ended before the others", self._in(doing))
                if time.monotonic() - max(begun, self._progress[origin]) > limit:
                    return self._hung(origin, doing, limit)
                self._changed.wait(self._tick)
            return self._messages.pop((origin, key))

    def number(self) -> int:
        """Return a number for keys, the same on all ranks where they ask in the same order."""
        self._numbers += 1
        return self._numbers

    def gather(self, value: Any, doing: str, patience: float | None = None) -> list[Any]:
        """Return the values of all ranks; all call it, in the same order."""
        key = f"gather {self.number()}"
        for other in self.others:
            self.send(other, key, doing, {"value": value})
        found = {self.rank: value}
        for other in self.others:
            found[other] = self.receive(other, key, doing, patience).head["value"]
        return [found[rank] for rank in range(self.size)]

    def check(self) -> None:
        """Raise RankFailure where a rank has died or failed."""
        if self._failure is not None:
            raise self._fail(self._failure)

    def until(self, done: Callable[[], bool], doing: str, patience: float | None = None) -> None:
        """Return when something is done; RankFailure where a rank dies first, or it takes long.

        It is done elsewhere, as on a GPU, which does not tell for which rank it waits.
        """
        limit, pause = patience or self.patience, 1e-5
        begun = time.monotonic()
        while not done():
            self.check()
            if time.monotonic() - begun > limit:
                silent = [r for r in self.others if self._is_silent(r)]
                who = f"rank {silent[0]} does not answer" if silent else "the ranks hang"
                raise self._fail(_failure(who, *_waited(self.rank, doing, limit)))
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)

    def fail(self, reason: str) -> None:
        """Tell all others that this rank fails, for a reason of its own."""
        self._fail(_failure(f"rank {self.rank} has failed", reason))

    def close(self) -> None:
        """Say goodbye, and end all connections."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._asked.put(None)
        for other, link in self._sockets.items():
            self._part(other)
            with suppress(OSError):
                link.shutdown(socket.SHUT_WR)
        # A connection that is closed before the other's last words were read loses its own.
        limit = time.monotonic() + (0.1 if self._failure else self.patience)
        for thread in self._threads:
            thread.join(max(0.0, limit - time.monotonic()))
        for link in self._sockets.values():
            wire.end(link)
        for thread in self._threads:
            thread.join()
        for link in self._sockets.values():
            wire.close(link)

    @contextmanager
    def _for(self, other: int, doing: str) -> Generator[None]:
        """Let the others know for whom this rank waits, and keep in what."""
        self._waiting, self._doing = other, doing
        try:
            self.check()
            yield
        finally:
            self._waiting = None

    def _fail(self, failure: RankFailure) -> RankFailure:
        """Keep the first failure, tell it to all others, and return it."""
        with self._changed:
            if self._failure is not None:
                return self._failure
            self._failure = failure
            self._failure_word.value = 1
            self._changed.notify_all()
        said = failure.diagnostic
        for other in self.others:
            self._say(other, {"failed": said.message, "notes": list(said.notes)})
        return failure

    def _hung(self, origin: int, doing: str, limit: float) -> RankFailure:
        """Return that a rank hangs: the one at the end of those that wait for one another."""
        seen, culprit = {self.rank}, origin
        while not self._is_silent(culprit) and culprit not in seen:
            seen.add(culprit)
            following = self._waiting_of.get(culprit)
            if following is None:
                break
            culprit = following
        if culprit == self.rank:
            culprit = origin
        state = "does not answer" if self._is_silent(culprit) else "hangs"
        return _failure(f"rank {culprit} {state}", *_waited(self.rank, doing, limit))

    def _died(self, other: int) -> RankFailure:
        return _failure(f"rank {other} has died", self._in(self._doing))

    def _in(self, doing: str) -> str:
        return f"rank {self.rank} was in `{doing}`" if doing else ""

    def _is_silent(self, other: int) -> bool:
        if other == self.rank:
            return False
        return time.monotonic() - self._heard[other] > max(self.patience / 2, 3 * self._tick)

    def _last_words(self) -> RankFailure | None:
        """Return why another rank has ended, which may still be on its way."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None, 1.0)
            return self._failure

    def _say(self, other: int, head: wire.Head) -> None:
        """Send a short frame if that needs no waiting."""
        lock = self._sending[other]
        if not lock.acquire(timeout=self._tick):
            return
        try:
            wire.offer(self._sockets[other], wire.pack(head, 0), self._tick)
        except (wire.Ended, OSError, ValueError):
            pass  # it is gone, as the thread that reads of it finds, too
        finally:
            lock.release()

    def _part(self, other: int) -> None:
        """Say goodbye: without it the connection's end is a death."""
        limit = self._tick if self._failure else self.patience

        def idle(seconds: float) -> None:
            if seconds > limit:
                raise wire.Ended

        with self._sending[other], suppress(wire.Ended):
            wire.send_all(self._sockets[other], wire.pack({"bye": True}, 0), self._tick, idle)

    def _beat(self) -> None:
        """Tell the others from time to time that this process runs, and for whom it waits."""
        while not self._closed.wait(min(_LONGEST_BEAT, self.patience / 8)):
            for other in self.others:
                self._say(other, {"waits": self._waiting})

    def _read(self, origin: int) -> None:
        """Take what a rank sends, up to its end."""

        def seen(_: int) -> None:
            self._heard[origin] = time.monotonic()

        def progress(_: int) -> None:
            self._heard[origin] = self._progress[origin] = time.monotonic()

        try:
            while True:
                head, data = wire.receive(self._sockets[origin], seen, progress)
                self._take(origin, head, data)
        except (wire.Ended, wire.Refused, ValueError):
            if not (self._closed.is_set() or origin in self._left):
                self._fail(self._died(origin))

    def _take(self, origin: int, head: Mapping[str, Any], data: bytearray) -> None:
        if "failed" in head:
            self._fail(_failure(head["failed"], *head["notes"]))
        with self._changed:
            if "read" in head:
                self._asked.put((origin, head))
            elif "key" in head:
                self._messages[origin, head["key"]] = Message(head["head"], data)
            elif "waits" in head:
                self._waiting_of[origin] = head["waits"]
            elif "bye" in head:
                self._left.add(origin)
            self._changed.notify_all()


def _failure(message: str, *notes: str) -> RankFailure:
    return RankFailure(message, notes=[note for note in notes if note])


def _waited(rank: int, doing: str, seconds: float) -> tuple[str, str]:
    how = "if ranks compute longer than that between exchanges, set FUSEC_RANK_TIMEOUT"
    return f"rank {rank} waited {seconds:g} s for `{doing}`", how
