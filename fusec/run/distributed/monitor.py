"""The rendezvous server of a run, which decides which rank was lost.

The watchdog of each rank connects to the monitor at the rendezvous and stays connected. The monitor
polls every watchdog several times per timeout for the status of its rank, and reports the first
loss to all of them.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from fusec.dataclasses import dataclass, field, replace
from fusec.run.distributed import wire
from fusec.run.distributed.loss import Loss, name_ranks
from fusec.run.distributed.process_state import GONE, STOPPED, Observed
from fusec.run.distributed.ranks import LOCAL
from fusec.run.distributed.status import ANY, Status

SLOW = 10.0
"""Seconds that a rank may take for each answer at the rendezvous: the machine may be busy."""
_LONGEST_TICK = 0.5
_CONFIRM = 0.5
"""Seconds at most for watchdogs to report what their ranks were doing when one was lost."""


@dataclass
class _Member:
    """A rank whose watchdog is connected.

    stopped: the time since when its process is stopped, else 0. resumed: when it, or the monitor
    itself, last resumed.
    """

    link: socket.socket
    hello: Mapping[str, Any]
    heard: float
    status: Status = field(default_factory=Status)
    stopped: float = 0.0
    resumed: float = 0.0
    answered: bool = True
    left: bool = False


class Monitor:
    """A server to which the watchdogs of all ranks are connected."""

    def __init__(
        self, size: int, token: str, listener: socket.socket, seconds: float, timeout: float
    ) -> None:
        """Serve on a listening socket.

        seconds: how long to wait for all ranks to connect. timeout: seconds after which a rank that
        does not answer is lost; half of them for a rank that is stopped.
        """
        self._size, self._token, self._listener = size, token, listener
        self._seconds, self._timeout = seconds, timeout
        self._tick = min(_LONGEST_TICK, timeout / 8)
        self._members: dict[int, _Member] = {}
        self._expected: dict[int, tuple[Observed, float]] = {}
        self._links = set[socket.socket]()
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._suspect: Loss | None = None
        self._decide_at = 0.0
        self._loss: Loss | None = None
        self._checked = time.monotonic()
        self._thread = threading.Thread(target=self._serve, name="fusec monitor", daemon=True)
        self._thread.start()

    @classmethod
    def on_this_host(cls, size: int, token: str, seconds: float, timeout: float = 20.0) -> Monitor:
        """Serve on a free port of this host."""
        listener = socket.create_server((LOCAL, 0), backlog=128)
        return cls(size, token, listener, seconds, timeout)

    @property
    def port(self) -> int:
        """Return the port of the rendezvous."""
        return int(self._listener.getsockname()[1])

    @property
    def loss(self) -> Loss | None:
        """Return the first loss of a rank, None where there is none."""
        return self._loss

    def __enter__(self) -> Monitor:
        """Return the monitor."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the monitor."""
        self.close()

    def expect(self, rank: int, pid: int) -> None:
        """Observe the process of a rank whose watchdog is not connected yet."""
        with self._changed:
            self._expected[rank] = (Observed(pid), 0.0)

    def lose(self, loss: Loss) -> None:
        """Record a loss; only the first counts, but a process that is gone explains an error."""
        with self._changed:
            if self._loss is not None:
                return
            if self._suspect is not None:
                if self._suspect.failed and not loss.failed:
                    self._suspect = loss
                return
            self._suspect = loss
            self._decide_at = time.monotonic() + _CONFIRM
            self._ask()
            self._decide()

    def drain(self) -> None:
        """Return once all ranks have left or are lost."""
        with self._changed:
            self._changed.wait_for(lambda: all(m.left for m in self._members.values()))

    def close(self) -> None:
        """Stop; the watchdogs of ranks that have not left terminate them."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        wire.end(self._listener)
        self._thread.join()

    def _serve(self) -> None:
        threads = list[threading.Thread]()
        limit = time.monotonic() + self._seconds
        with suppress(OSError):  # closed
            while self._gathers() and time.monotonic() < limit:
                self._listener.settimeout(min(0.05, self._tick))
                with suppress(TimeoutError):
                    link, _ = self._listener.accept()
                    self._links.add(link)
                    # A connection that sends nothing does not block the others.
                    thread = threading.Thread(target=self._follow, args=(link,), daemon=True)
                    thread.start()
                    threads.append(thread)
                self._check()
        wire.close(self._listener)
        self._answer_all()
        while not self._closed.is_set():
            with self._changed:
                self._changed.wait(self._tick if self._suspect is None else 0.02)
            self._check()
        for link in self._links:
            wire.end(link)
        for thread in threads:
            thread.join()
        for link in self._links:
            wire.close(link)

    def _gathers(self) -> bool:
        """Return whether ranks are still missing."""
        return not self._closed.is_set() and len(self._members) < self._size

    def _answer_all(self) -> None:
        """Send all ranks the addresses of the others, or report which ranks are missing."""
        with self._changed:
            missing = [r for r in range(self._size) if r not in self._members]
            answer: dict[str, Any] = {}
            if missing:
                who = f"{name_ranks(missing)} of {self._size}"
                answer["problem"] = f"{who} did not connect within {self._seconds:g} s"
            else:
                answer["ranks"] = [dict(self._members[rank].hello) for rank in range(self._size)]
            for member in self._members.values():
                self._tell(member, answer)

    def _follow(self, link: socket.socket) -> None:
        """Register the rank that connected, and read its messages until the connection ends."""
        link.settimeout(SLOW)
        try:
            wire.admit(link, self._token)
            hello, _ = wire.receive(link)
            wire.need(hello, rank=int, size=int, host=str, address=list)
            rank, size = hello["rank"], hello["size"]
        except (wire.Refused, wire.Ended, OSError):
            wire.end(link)
            return
        link.settimeout(None)
        with self._changed:
            member = _Member(link, hello, time.monotonic())
            problem = ""
            if size != self._size:
                problem = f"rank {rank} was started with {size} ranks, not {self._size}"
            elif not 0 <= rank < size:
                problem = f"there is no rank {rank} among {size}"
            elif rank in self._members:
                problem = f"two processes have rank {rank}"
            if problem:
                self._tell(member, {"problem": problem})
                wire.end(link)
                return
            self._members[rank] = member
            if self._loss is not None:
                self._tell(member, {"loss": self._loss.frame()})
        with suppress(wire.Ended):
            try:
                while True:
                    frame, _ = wire.receive(link)
                    self._hear(rank, member, frame)
            except wire.Refused as error:
                self.lose(Loss(rank, f"rank {rank} has sent {error}"))
        if not (member.left or self._closed.is_set()):
            self._die(rank, member)
        self._leave(member)

    def _hear(self, rank: int, member: _Member, frame: Mapping[str, Any]) -> None:
        """Process a message of a watchdog."""
        if "status" in frame:
            wire.need(frame, status=dict, state=str)
            status = Status.of_frame(frame["status"])
            with self._changed:
                member.heard, member.answered = time.monotonic(), True
                is_stopped = frame["state"] == STOPPED
                member.stopped = (member.stopped or member.heard) if is_stopped else 0.0
                member.resumed = member.heard if is_stopped else member.resumed
                running = member.heard - member.resumed
                member.status = replace(status, idle=min(status.idle, running))
            if frame["state"] == GONE:
                self._die(rank, member)
            with self._changed:
                self._decide()
        elif "loss" in frame:
            self.lose(Loss.of_frame(frame["loss"]))
        elif "left" in frame:
            self._leave(member)

    def _die(self, rank: int, member: _Member) -> None:
        with self._changed:
            member.left = True
            self.lose(Loss.died(rank))
            self._leave(member)

    def _leave(self, member: _Member) -> None:
        with self._changed:
            member.left = True
            self._decide()
            self._changed.notify_all()

    def _present(self) -> Iterator[tuple[int, _Member]]:
        return ((r, m) for r, m in sorted(self._members.items()) if not m.left)

    def _check(self) -> None:
        """Detect lost ranks, and poll the status of all."""
        with self._changed:
            now = time.monotonic()
            if self._suspect is not None:
                self._decide()
                return
            if now - self._checked < 0.9 * self._tick:
                return
            if now - self._checked > self._timeout / 2:
                # This process was stopped, or the machine slept: the state of other ranks is
                # unknown.
                self._excuse(now)
            self._checked = now
            found = next(self._lost(now), None)
            if found is None:
                self._ask()
        if found is not None:
            self.lose(found)

    def _excuse(self, now: float) -> None:
        """Restart the timeouts of all ranks now."""
        for member in self._members.values():
            member.heard = member.resumed = now
            member.stopped = now if member.stopped else 0.0

    def _lost(self, now: float) -> Iterator[Loss]:
        """Yield the ranks that are stopped, silent or hung."""
        for rank, (process, since) in self._expected.items():
            if rank not in self._members:
                is_stopped = process.state() == STOPPED
                since = (since or now) if is_stopped else 0.0
                self._expected[rank] = (process, since)
                if since and now - since > self._timeout / 2:
                    yield Loss(rank, f"rank {rank} is stopped")
        if not self._expected and all(member.stopped for _, member in self._present()):
            # The whole run is suspended, as by Ctrl-Z, which does not reach ranks of `fusec run`.
            self._excuse(now)
        for rank, member in self._present():
            if member.stopped and now - member.stopped > self._timeout / 2:
                yield Loss(rank, f"rank {rank} is stopped")
            elif now - member.heard > self._timeout:
                yield Loss(rank, f"rank {rank} does not answer")
        for rank, member in self._present():
            status = member.status
            if 0 < status.limit < status.idle and not member.stopped:
                yield self._hang(rank, status)

    def _hang(self, rank: int, status: Status) -> Loss:
        """Return the loss of a hung rank: the last in the chain of ranks that wait for another."""
        culprit = self._culprit(rank, status)
        who = "the ranks hang" if culprit < 0 else f"rank {culprit} hangs"
        how = "if ranks compute longer than that between collectives, set FUSEC_RANK_TIMEOUT"
        return Loss(culprit, who, (how,))

    def _culprit(self, rank: int, status: Status) -> int:
        if status.waits == ANY:
            others = [r for r, m in self._present() if r != rank and m.status.limit == 0]
            return others[0] if len(others) == 1 else -1
        seen = [rank]
        while (following := self._waits_of(seen[-1])) is not None:
            if following in seen:
                return status.waits
            seen.append(following)
        return seen[-1] if len(seen) > 1 else status.waits

    def _waits_of(self, rank: int) -> int | None:
        member = self._members.get(rank)
        return None if member is None or member.status.waits < 0 else member.status.waits

    def _ask(self) -> None:
        for _, member in self._present():
            member.answered = False
            self._tell(member, {"ask": True})

    def _decide(self) -> None:
        """Report the lost rank to all once the others have reported what they were doing."""
        loss = self._suspect
        if loss is None or self._loss is not None:
            return
        others = [(r, m) for r, m in self._present() if r != loss.rank]
        if not all(m.answered for _, m in others) and time.monotonic() < self._decide_at:
            return
        if not loss.failed:
            survivors = {rank: member.status for rank, member in self._present()}
            if loss == Loss.died(loss.rank) or not self._answers(loss.rank):
                survivors.pop(loss.rank, None)
            loss = replace(loss, notes=(*_describe(survivors), *loss.notes))
        self._loss = loss
        for _, member in self._present():
            self._tell(member, {"loss": loss.frame()})
        self._changed.notify_all()

    def _answers(self, rank: int) -> bool:
        """Return whether a rank is neither stopped nor silent."""
        member = self._members.get(rank)
        if member is None or member.stopped:
            return False
        return time.monotonic() - member.heard < self._timeout / 2

    def _tell(self, member: _Member, frame: Mapping[str, Any]) -> None:
        with suppress(wire.Ended):  # the thread that reads from it finds that, too
            wire.send(member.link, frame)


def _describe(survivors: Mapping[int, Status]) -> list[str]:
    """Return what ranks were doing, with one line for all ranks that did the same."""
    doing = dict[str, list[int]]()
    for rank, status in survivors.items():
        text = f"in `{status.doing}`" if status.doing else "not in a collective"
        if 0 < status.limit < status.idle:
            text += f", for more than {status.limit:g} s"
        doing.setdefault(text, []).append(rank)
    verbs = {text: "was" if len(ranks) == 1 else "were" for text, ranks in doing.items()}
    return [f"{name_ranks(ranks)} {verbs[text]} {text}" for text, ranks in doing.items()]
