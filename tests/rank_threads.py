"""Ranks as threads of one process, which exchange over the host transport's own sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import combinations
from typing import Any, cast

from fusec.run.distributed.links import Links
from fusec.run.distributed.loss import Loss, RankFailure
from fusec.run.distributed.watchdog import Watchdog
from fusec.run.transports.host import HostTransport

SECONDS = 60.0
"""What all ranks together may take: longer is a deadlock."""


class _Group:
    """Stands for the watchdogs of all ranks: one that fails ends the waits of the others."""

    def __init__(self) -> None:
        self.loss: Loss | None = None
        self._lock = threading.Lock()
        self._give_up: list[Callable[[], None]] = []

    def on_loss(self, give_up: Callable[[], None]) -> None:
        """Have a function called when a rank is lost."""
        self._give_up.append(give_up)

    def report(self, loss: Loss) -> Loss:
        """Tell all of a loss; return the first one."""
        with self._lock:
            first, self.loss = self.loss is None, self.loss or loss
        if first:
            for give_up in self._give_up:
                give_up()
        return self.loss

    def failure(self) -> RankFailure:
        """Return the loss as an error."""
        assert self.loss is not None
        return self.loss.error()

    def note(self, status: object) -> None:
        """Ignore what a rank does."""

    def progress(self) -> None:
        """Ignore that a rank goes on."""

    def leave(self) -> None:
        """Ignore that a rank leaves."""


def over_sockets(count: int, run: Callable[[int, HostTransport], Any]) -> list[Any]:
    """Return what each rank returns, all run at once; the error of the first that fails."""
    group, sockets = _Group(), [dict[int, socket.socket]() for _ in range(count)]
    for low, high in combinations(range(count), 2):
        sockets[low][high], sockets[high][low] = socket.socketpair()
    hosts = ("here",) * count
    watchdog = cast(Watchdog, group)
    links = [Links(rank, own, hosts, 5.0, watchdog) for rank, own in enumerate(sockets)]
    found, errors = dict[int, Any](), list[BaseException]()

    def one(rank: int) -> None:
        transport = HostTransport(links[rank])
        try:
            found[rank] = run(rank, transport)
            transport.close()
        except BaseException as error:
            errors.append(error)
            group.report(Loss(rank, f"rank {rank} has failed", failed=True))
        with suppress(RankFailure):
            links[rank].close()

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    if any(thread.is_alive() for thread in threads):
        group.report(Loss(-1, f"the ranks wait for one another for {SECONDS:.0f} s"))
        for thread in threads:
            thread.join(SECONDS)
    if errors:
        raise errors[0]
    return [found[rank] for rank in range(count)]
