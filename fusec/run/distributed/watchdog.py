"""The watchdog of a rank: a separate process, which ends the rank when it cannot continue.

A thread of the rank could not: it would wait while a driver call holds the GIL, and be stopped with
its process. `fusec.run.distributed.watchdog_process` is the other side.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from fusec.run.distributed import wire
from fusec.run.distributed.loss import Loss, RankFailure
from fusec.run.distributed.status import SIZE, Status, StatusPage
from fusec.run.distributed.watchdog_order import Ends, Order

_ROOT = Path(__file__).parents[3]
_PROGRAM = "fusec.run.distributed.watchdog_process"
_VERDICT = 2.0
"""Seconds at most for the monitor to report which loss was first."""
_END = 1.0
"""Seconds at most for the watchdog to end once its rank has left."""


class Watchdog:
    """The rank's end of the connection to its watchdog."""

    def __init__(self, order: Order, listener: socket.socket | None) -> None:
        """Start it; `listener`: where it serves as the monitor of all ranks, if it does."""
        self._rank, self._size, self._ends = order.ranks.rank, order.ranks.size, order.ends
        self._own, theirs = socket.socketpair()
        self._sending, self._changed = threading.Lock(), threading.Condition()
        self._answer: Mapping[str, Any] | None = None
        self._loss: Loss | None = None
        self._seen = self._left = False
        self._give_up: Callable[[], None] = lambda: None
        self._file = TemporaryFile()  # noqa: SIM115
        self._file.truncate(SIZE)
        self._page = StatusPage(self._file.fileno())
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: threading.Thread | None = None
        # As the monitor it stays until all other ranks have left.
        self._outlives = listener is not None
        if order.ends == Ends.NO_RANK.value:
            self._watch = _start_thread(theirs, self._file.fileno(), listener)
        else:
            with theirs:
                self._process = _start_process(theirs, self._file.fileno(), listener)
        self._tell(order.frame())
        self._thread = threading.Thread(target=self._hear, name="fusec watchdog", daemon=True)
        self._thread.start()

    @property
    def loss(self) -> Loss | None:
        """Return the first loss of a rank, None where there is none."""
        return self._loss

    def answer(self) -> list[Mapping[str, Any]]:
        """Return the addresses of all ranks, once all have met; RankFailure where they do not."""
        with self._changed:
            self._changed.wait_for(lambda: self._answer is not None or self._loss is not None)
            if self._loss is not None:
                raise self.failure()
            assert self._answer is not None
        if "problem" in self._answer:
            raise RankFailure(
                f"the ranks did not connect: {self._answer['problem']}",
                help=self._answer.get("help"),
            )
        return self._answer["ranks"]

    def on_loss(self, give_up: Callable[[], None]) -> None:
        """Register a function to call when a rank is lost, from another thread."""
        self._give_up = give_up
        if self._loss is not None:
            give_up()

    def failure(self) -> RankFailure:
        """Return the loss as an error, and mark it as seen by this process."""
        assert self._loss is not None
        if not (self._seen or self._left):
            self._seen = True
            self._tell({"seen": True})
        return self._loss.error()

    def report(self, loss: Loss) -> Loss:
        """Report a loss to all; return the one that was first."""
        if self._loss is None:
            self._tell({"loss": loss.frame()})
            with self._changed:
                self._changed.wait_for(lambda: self._loss is not None, _VERDICT)
                self._loss = self._loss or loss
        return self._loss

    def note(self, status: Status) -> None:
        """Record what the rank does from now on."""
        self._page.write(status)

    def progress(self) -> None:
        """Record progress."""
        self._page.touch()

    def leave(self) -> None:
        """Dismiss it; after a loss it stays, and ends this process after the grace period."""
        stays = self._loss is not None and self._process is not None
        self._left = True
        self._tell({"ending": True} if stays else {"left": True})
        with suppress(OSError):
            self._own.shutdown(socket.SHUT_RD if stays else socket.SHUT_RDWR)
        self._thread.join()
        if stays:
            self._own.detach()  # when it closes, the watchdog knows that this process ended
        self._own.close()
        self._page.close()
        self._file.close()
        if self._watch is not None and not self._outlives:
            self._watch.join(_END)
        if self._process is not None:
            if not (stays or self._outlives):
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_END)
            self._process.returncode = 0  # it may outlive this process

    def _tell(self, frame: Mapping[str, Any]) -> None:
        """Send a frame; if the watchdog is gone, `_hear` detects it."""
        with self._sending, suppress(wire.Ended):
            wire.send(self._own, frame)

    def _hear(self) -> None:
        """Receive the watchdog's messages until the connection ends."""
        try:
            while True:
                frame, _ = wire.receive(self._own)
                if "loss" in frame:
                    self._lose(Loss.of_frame(frame["loss"]))
                else:
                    _check_answer(frame, self._size)
                    with self._changed:
                        self._answer = frame
                        self._changed.notify_all()
        except wire.Refused as error:
            self._lose(Loss(self._rank, f"rank {self._rank} was sent {error}"))
        except wire.Ended:
            if self._answer is None or "ranks" in self._answer:
                self._lose(Loss(self._rank, f"the watchdog of rank {self._rank} has ended"))

    def _lose(self, loss: Loss) -> None:
        with self._changed:
            if self._loss is not None or self._left:
                return
            self._loss = loss
            self._changed.notify_all()
        self._give_up()


def _check_answer(frame: Mapping[str, Any], size: int) -> None:
    """Raise wire.Refused unless a frame has the addresses of all ranks, or the reason for none."""
    if "problem" in frame:
        wire.need({"help": "", **frame}, problem=str, help=(str, type(None)))
        return
    wire.need(frame, ranks=list)
    if len(frame["ranks"]) != size:
        raise wire.Refused("a malformed frame: other ranks")
    for entry in frame["ranks"]:
        wire.need(entry, host=str, address=list)


def _start_process(
    theirs: socket.socket, page: int, listener: socket.socket | None
) -> subprocess.Popen[bytes]:
    served = [] if listener is None else [listener.fileno()]
    files = [theirs.fileno(), page, *served]
    # Without `site`, whose hooks may load anything; -P: no modules of the current folder.
    command = [sys.executable, "-S", "-P", "-m", _PROGRAM, *map(str, files)]
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=files,
        start_new_session=True,  # signals to the rank's group do not reach it
    )


def _start_thread(
    theirs: socket.socket, page: int, listener: socket.socket | None
) -> threading.Thread:
    from fusec.run.distributed.watchdog_process import watch

    served = None if listener is None else listener.dup()
    given = (theirs, StatusPage(page), served)
    thread = threading.Thread(target=watch, args=given, name="fusec watch", daemon=True)
    thread.start()
    return thread
