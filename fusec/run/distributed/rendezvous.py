"""Rendezvous: a rank meets the others and connects to each of them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fusec.diagnostics import FusecError
from fusec.run.distributed import wire
from fusec.run.distributed.join import PORTS
from fusec.run.distributed.links import Links
from fusec.run.distributed.loss import Loss, name_ranks
from fusec.run.distributed.monitor import SLOW
from fusec.run.distributed.ranks import LOCAL, Ranks
from fusec.run.distributed.status import Status
from fusec.run.distributed.watchdog import Watchdog
from fusec.run.distributed.watchdog_order import Ends, Order

MEETING = 60.0
"""Seconds for all ranks to connect: some may start long after others."""
_STEP = 0.05


def meet(
    ranks: Ranks, timeout: float, seconds: float = MEETING, *, ends: Ends = Ends.COMMAND
) -> Links:
    """Return connections to all other ranks; RankFailure where they do not come in time.

    timeout: seconds for which ranks then wait for each other without progress. ends: which
    processes a watchdog terminates when a rank is lost.
    """
    limit = time.monotonic() + seconds
    check_token(ranks)
    where = LOCAL if ranks.is_local else ""
    with socket.create_server((where, 0), backlog=128) as own:
        serves = not ranks.launched and ranks.rank == 0
        listener = _listen_near(where, ranks.port) if serves else None
        given = (ranks, host_name(), own.getsockname()[1], os.getpid(), seconds, timeout)
        watchdog = Watchdog(Order(*given, ends.value), listener)
        if listener is not None:
            listener.close()  # not shut down: the watchdog serves there
        watchdog.note(Status("rendezvous"))
        try:
            announced = watchdog.answer()
            sockets = _connect_all(ranks, own, announced, limit, watchdog)
        except BaseException:
            watchdog.leave()
            raise
    hosts = tuple(entry["host"] for entry in announced)
    return Links(ranks.rank, sockets, hosts, timeout, watchdog)


def _connect_all(
    ranks: Ranks,
    own: socket.socket,
    announced: Sequence[Mapping[str, Any]],
    limit: float,
    watchdog: Watchdog,
) -> dict[int, socket.socket]:
    """Connect to every lower rank, and accept connections from every higher one."""
    sockets: dict[int, socket.socket] = {}

    def give_up() -> None:
        for link in (own, *sockets.values()):
            wire.end(link)

    watchdog.on_loss(give_up)
    try:
        for other in range(ranks.rank):
            host, port = _address_of(announced, other)
            link = socket.create_connection((host, port), max(_STEP, limit - time.monotonic()))
            sockets[other] = link
            if not wire.join(link, ranks.token, SLOW):
                raise wire.Refused
            wire.send(link, {"rank": ranks.rank})
        while len(sockets) < ranks.size - 1:
            own.settimeout(max(_STEP, limit - time.monotonic()))
            link, _ = own.accept()
            link.settimeout(SLOW)
            with suppress(wire.Refused, wire.Ended):
                wire.admit(link, ranks.token)
                said, _ = wire.receive(link)
                wire.need(said, rank=int)
                other = said["rank"]
                if ranks.rank < other < ranks.size and other not in sockets:
                    sockets[other] = link
                    continue
            wire.close(link)
    except (OSError, wire.Ended, wire.Refused):
        for link in sockets.values():
            wire.close(link)
        missing = sorted(set(range(ranks.size)) - {ranks.rank} - sockets.keys())
        why = f"rank {ranks.rank} could not be connected to {name_ranks(missing)}"
        watchdog.report(Loss(ranks.rank, why, failed=True))
        raise watchdog.failure() from None
    for link in sockets.values():
        link.settimeout(None)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sockets


def check_token(ranks: Ranks) -> None:
    """Raise FusecError where anybody on a network could join the ranks."""
    if ranks.token or ranks.is_local:
        return
    known = "are" if ranks.local_size else "may be"
    raise FusecError(
        f"the {ranks.size} ranks {known} on several hosts, and FUSEC_RANK_TOKEN is not set",
        notes=("without a token, anyone who can reach their ports can join",),
        help=(
            "set FUSEC_RANK_TOKEN to the same random string on all ranks, e.g. from `openssl "
            "rand -hex 16`"
        ),
    )


def _address_of(announced: Sequence[Mapping[str, Any]], rank: int) -> tuple[str, int]:
    """Return the address at which a rank accepts connections; wire.Refused if malformed."""
    match announced[rank]["address"]:
        case [str(host), int(port)] if 0 < port < 65536:
            return host, port
        case _:
            raise wire.Refused(f"a malformed address of rank {rank}")


def host_name() -> str:
    """Return a name that is unique to this host since its last boot."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        return f"{socket.gethostname()} {boot.read_text().strip()}"
    except OSError:
        return socket.gethostname()


def _listen_near(host: str, port: int) -> socket.socket:
    for tried in range(port, min(port + PORTS, 65536)):
        with suppress(OSError):
            return socket.create_server((host, tried), backlog=128)
    raise FusecError(
        f"the ports from {port} to {min(port + PORTS, 65536) - 1} are in use",
        help="set MASTER_PORT to a free port",
    )
