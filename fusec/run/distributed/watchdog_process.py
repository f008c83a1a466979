"""`python -m fusec.run.distributed.watchdog_process`: the process that watches one rank.

It imports only the standard library, so that it starts in tens of milliseconds.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from fusec.run.distributed import wire
from fusec.run.distributed.join import find_monitor
from fusec.run.distributed.loss import GRACE, Loss, RankFailure
from fusec.run.distributed.monitor import Monitor
from fusec.run.distributed.process_state import GONE, Observed
from fusec.run.distributed.status import StatusPage
from fusec.run.distributed.watchdog_order import Ends, Order


class _Watch:
    """Connects a rank with the monitor, and ends the rank's process where necessary."""

    def __init__(self, rank: socket.socket, page: StatusPage, order: Order) -> None:
        self._rank, self._page, self._order = rank, page, order
        self._process = Observed(order.pid)
        self._monitor: socket.socket | None = None
        self._heard = time.monotonic()
        self._loss: Loss | None = None
        self._kill_at = float("inf")
        self._present = True

    def run(self) -> None:
        """Watch until the rank has left or is gone."""
        try:
            self._monitor = find_monitor(self._order.ranks, self._order.seconds, self._rank)
        except RankFailure as error:
            said = error.diagnostic
            self._say({"problem": said.message, "help": said.help})
            return
        self._heard = time.monotonic()
        with self._monitor:
            self._tell(self._hello())
            while self._present:
                self._step()

    def _hello(self) -> dict[str, Any]:
        assert self._monitor is not None
        ranks, address = self._order.ranks, self._monitor.getsockname()[0]
        said = {"rank": ranks.rank, "size": ranks.size, "host": self._order.host}
        return {**said, "address": [address, self._order.port]}

    def _step(self) -> None:
        """Wait for the next event, and handle it."""
        links = [self._rank] if self._monitor is None else [self._rank, self._monitor]
        pause = min(self._kill_at - time.monotonic(), self._order.timeout / 4)
        ready, _, _ = select.select(links, [], [], max(0.0, pause))
        if self._monitor in ready:
            self._hear_monitor()
        if self._present and self._rank in ready:
            self._hear_rank()
        now = time.monotonic()
        if not self._order.ranks.launched and now - self._heard > self._order.timeout:
            self._lose(Loss(0, "rank 0 does not answer"))
        if now > self._kill_at:
            self._end_rank()

    def _hear_rank(self) -> None:
        try:
            frame, _ = wire.receive(self._rank)
        except (wire.Ended, wire.Refused):
            self._present = False
            self._tell({"loss": Loss.died(self._order.ranks.rank).frame()})
            return
        if "loss" in frame:
            self._tell(frame)
        elif "left" in frame:
            self._present = False
            self._tell(frame)
        elif "seen" in frame and self._order.ends == Ends.PROGRAM.value:
            self._kill_at = float("inf")
        elif "ending" in frame:
            self._kill_at = min(self._kill_at, time.monotonic() + GRACE)

    def _hear_monitor(self) -> None:
        assert self._monitor is not None
        try:
            frame, _ = wire.receive(self._monitor)
            loss = Loss.of_frame(frame["loss"]) if "loss" in frame else None
        except (wire.Ended, wire.Refused):
            self._monitor = None
            if self._order.ranks.launched:
                self._end_rank()
            else:
                self._lose(Loss.died(0))
            return
        self._heard = time.monotonic()
        if "ask" in frame:
            self._answer()
        elif loss is not None:
            self._lose(loss)
        else:
            self._say(frame)

    def _answer(self) -> None:
        """Report the rank's status to the monitor.

        A rank that is gone may have announced its end first; that message is read before.
        """
        state = self._process.state()
        while state == GONE and self._present and select.select([self._rank], [], [], 0.0)[0]:
            self._hear_rank()
        if self._present:
            self._tell({"status": asdict(self._page.read()), "state": state})

    def _lose(self, loss: Loss) -> None:
        """Report a loss to the rank; it then has the grace period to end."""
        if self._loss is None:
            self._loss = loss
            self._say({"loss": loss.frame()})
            # A launcher ends its ranks first, and knows which of them it ended.
            grace = 2 * GRACE if self._order.ranks.launched else GRACE
            self._kill_at = time.monotonic() + grace

    def _end_rank(self) -> None:
        self._present = False
        if self._order.ends == Ends.NO_RANK.value:
            return
        if self._loss is not None and not self._order.ranks.launched:
            print(self._loss.error().render(), file=sys.stderr, flush=True)
        pid = self._order.pid
        with suppress(ProcessLookupError):
            # If it leads its process group, its children end, too.
            end = os.killpg if os.getpgid(pid) == pid else os.kill
            end(pid, signal.SIGKILL)

    def _say(self, frame: Mapping[str, Any]) -> None:
        with suppress(wire.Ended):
            wire.send(self._rank, frame)

    def _tell(self, frame: Mapping[str, Any]) -> None:
        if self._monitor is not None:
            with suppress(wire.Ended):
                wire.send(self._monitor, frame)


def watch(rank: socket.socket, page: StatusPage, listener: socket.socket | None) -> None:
    """Watch a rank until it ends; with a listener, serve all ranks as their monitor, too."""
    with rank:
        try:
            order = Order.of_frame(wire.receive(rank)[0])
        except (wire.Ended, wire.Refused):
            return
        ranks, monitor = order.ranks, None
        if listener is not None:
            given = (ranks.size, ranks.token, listener, order.seconds, order.timeout)
            monitor = Monitor(*given)
        _Watch(rank, page, order).run()
    page.close()
    if monitor is not None:
        monitor.drain()
        monitor.close()


def main() -> None:
    """Watch the rank given by open files: its connection, page, and listener if any."""
    rank, page, *served = map(int, sys.argv[1:])
    listener = socket.socket(fileno=served[0]) if served else None
    watch(socket.socket(fileno=rank), StatusPage(page), listener)


if __name__ == "__main__":
    main()
