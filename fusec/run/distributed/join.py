"""How a watchdog finds the monitor of its run."""

from __future__ import annotations

import select
import socket
import time

from fusec.run.distributed import wire
from fusec.run.distributed.loss import RankFailure
from fusec.run.distributed.monitor import SLOW
from fusec.run.distributed.ranks import Ranks

PORTS = 16
"""Number of ports, from the given one on, that rank 0 tries: torchrun uses the first itself."""
_STEP = 0.05
_SILENT = 0.3
"""Seconds after which a silent server is assumed to be another program's."""


def find_monitor(ranks: Ranks, seconds: float, rank: socket.socket) -> socket.socket:
    """Return a connection to the monitor; RankFailure where there is none within `seconds`.

    rank: the connection to the rank; the search ends when it is closed.
    """
    limit = time.monotonic() + seconds
    ports = range(ranks.port, ranks.port + (1 if ranks.launched else PORTS))
    where = f"{ranks.host}:{ranks.port}"
    while True:
        refused = closed = False
        for port in ports:
            try:
                link = socket.create_connection((ranks.address, port), timeout=_SILENT)
            except OSError as error:
                closed |= isinstance(error, ConnectionRefusedError)
                continue
            try:
                if wire.join(link, ranks.token, SLOW):
                    link.settimeout(None)
                    return link
            except wire.Refused:
                refused = True
            wire.close(link)
        if refused:
            raise RankFailure(
                f"the ranks at {where} have a different token",
                help=(
                    "use the same FUSEC_RANK_TOKEN for all ranks, and a different port for each run"
                ),
            )
        # The launcher serves before it starts ranks: if it does not, it is gone.
        if (closed and ranks.launched) or time.monotonic() > limit:
            raise RankFailure(f"rank {ranks.rank} could not reach any rank at {where}")
        if select.select([rank], [], [], _STEP)[0]:
            raise RankFailure(f"rank {ranks.rank} has ended")
