"""Where the ranks of a run meet: each says where it listens, and is told of all others."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.run import wire
from fusec.run.links import Links, RankFailure
from fusec.run.ranks import LOCAL, Ranks

PORTS = 16
"""How many ports from the one given rank 0 tries: torchrun itself holds the first."""
MEETING = 60.0
"""Seconds for all ranks to come: some may start long after others."""
_STEP = 0.05
_SILENT = 0.3
"""Seconds after which who says nothing is taken for another program's server."""
_SLOW = 10.0
"""Seconds that a rank may take for what it says next: the machine may be busy."""


class Meeting:
    """A server that waits for all ranks, and tells each where the others are."""

    def __init__(self, size: int, token: str, listener: socket.socket, seconds: float) -> None:
        """Serve on a listening socket until all have come, or `seconds` have passed."""
        self._size, self._token, self._listener = size, token, listener
        self._limit = time.monotonic() + seconds
        self._seconds = seconds
        self._present: dict[int, tuple[socket.socket, dict[str, Any]]] = {}
        self._lock, self._links = threading.Lock(), set[socket.socket]()
        self._thread = threading.Thread(target=self._serve, name="fusec meeting", daemon=True)
        self._thread.start()

    @classmethod
    def on_this_host(cls, size: int, token: str, seconds: float) -> Meeting:
        """Serve on a port of this host that is free."""
        return cls(size, token, _listen(LOCAL, 0), seconds)

    @property
    def port(self) -> int:
        """Return where the ranks meet."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Meeting:
        """Return the meeting."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        self.close()

    def close(self) -> None:
        """Stop; whoever waits is let go."""
        self._limit = 0.0
        wire.end(self._listener)
        self._thread.join()

    def _serve(self) -> None:
        welcoming = list[threading.Thread]()
        with suppress(OSError):  # closed
            while len(self._present) < self._size and time.monotonic() < self._limit:
                self._listener.settimeout(_STEP)
                with suppress(TimeoutError):
                    link, _ = self._listener.accept()
                    self._links.add(link)
                    # Who says nothing holds up nobody.
                    thread = threading.Thread(target=self._welcome, args=(link,), daemon=True)
                    thread.start()
                    welcoming.append(thread)
        wire.close(self._listener)
        with self._lock:
            answer = self._answer()
            for link, _ in self._present.values():
                with suppress(wire.Ended):
                    wire.send(link, answer)
        for link in self._links:
            wire.end(link)
        for thread in welcoming:
            thread.join()
        for link in self._links:
            wire.close(link)

    def _answer(self) -> dict[str, Any]:
        """Return what all are told: where the others are, or who is missing."""
        missing = [r for r in range(self._size) if r not in self._present]
        if not missing:
            return {"ranks": [self._present[rank][1] for rank in range(self._size)]}
        who = f"{_ranks(missing)} of {self._size}"
        return {"error": f"{who} did not come within {self._seconds:g} s"}

    def _welcome(self, link: socket.socket) -> None:
        """Take down who has connected, or send it away."""
        link.settimeout(_SLOW)
        try:
            wire.admit(link, self._token)
            said, _ = wire.receive(link)
            rank, size = int(said["rank"]), int(said["size"])
        except (wire.Refused, wire.Ended, ValueError, KeyError, OSError):
            wire.close(link)
            return
        with self._lock:
            problem = ""
            if size != self._size:
                problem = f"rank {rank} was told of {size} ranks, not of {self._size}"
            elif rank in self._present:
                problem = f"two processes say that they are rank {rank}"
            else:
                self._present[rank] = (link, said)
        if problem:
            with suppress(wire.Ended):
                wire.send(link, {"error": problem})
            wire.close(link)


def meet(ranks: Ranks, patience: float, seconds: float = MEETING) -> Links:
    """Return connections to all other ranks; EnvironmentProblem where they do not come in time.

    patience: seconds for which ranks then wait for one another without progress.
    """
    limit = time.monotonic() + seconds
    everywhere = not (ranks.launched or ranks.on_one_host)
    own = _listen("" if everywhere else LOCAL, 0)
    meeting = None
    try:
        if not ranks.launched and ranks.rank == 0:
            listener = _listen_near("" if everywhere else LOCAL, ranks.port)
            meeting = Meeting(ranks.size, ranks.token, listener, seconds)
        told = _attend(ranks, own, limit)
        sockets = _connect_all(ranks, own, told, limit)
    finally:
        wire.close(own)
        if meeting is not None:
            meeting.close()
    hosts = tuple(str(entry["host"]) for entry in told)
    return Links(ranks.rank, sockets, hosts, patience)


def _attend(ranks: Ranks, own: socket.socket, limit: float) -> list[dict[str, Any]]:
    """Return what every rank says of itself."""
    with _find(ranks, limit) as link:
        host, port = link.getsockname()[0], own.getsockname()[1]
        said = {"rank": ranks.rank, "size": ranks.size, "host": host_name()}
        link.settimeout(max(_STEP, limit - time.monotonic()) + _SLOW)
        try:
            wire.send(link, {**said, "address": [host, port]})
            answer, _ = wire.receive(link)
        except wire.Ended:
            raise RankFailure("the ranks did not meet: the meeting was ended") from None
    if "error" in answer:
        raise RankFailure(f"the ranks did not meet: {answer['error']}")
    return answer["ranks"]


def _find(ranks: Ranks, limit: float) -> socket.socket:
    """Return a connection to where the ranks meet."""
    ports = range(ranks.port, ranks.port + (1 if ranks.launched else PORTS))
    refused = False
    while True:
        for port in ports:
            try:
                link = socket.create_connection((ranks.host, port), timeout=_SILENT)
            except OSError:
                continue
            try:
                if wire.join(link, ranks.token, _SLOW):
                    return link
            except wire.Refused:
                refused = True
            wire.close(link)
        if refused or time.monotonic() > limit:
            break
        time.sleep(_STEP)
    where = f"{ranks.host}:{ranks.port}"
    if refused:
        raise EnvironmentProblem(
            f"the ranks at {where} know another token",
            help="give all ranks the same FUSEC_RANK_TOKEN, and each run a port of its own",
        )
    raise RankFailure(f"rank {ranks.rank} found no other rank at {where}")


def _connect_all(
    ranks: Ranks, own: socket.socket, told: list[dict[str, Any]], limit: float
) -> dict[int, socket.socket]:
    """Connect to every rank below, and let every one above connect."""
    sockets: dict[int, socket.socket] = {}
    try:
        for other in range(ranks.rank):
            host, port = told[other]["address"]
            link = socket.create_connection((host, port), max(_STEP, limit - time.monotonic()))
            sockets[other] = link
            if not wire.join(link, ranks.token, _SLOW):
                raise wire.Refused
            wire.send(link, {"rank": ranks.rank})
        while len(sockets) < ranks.size - 1:
            own.settimeout(max(_STEP, limit - time.monotonic()))
            link, _ = own.accept()
            link.settimeout(_SLOW)
            with suppress(wire.Refused, wire.Ended, ValueError):
                wire.admit(link, ranks.token)
                said, _ = wire.receive(link)
                if said["rank"] not in sockets:
                    sockets[said["rank"]] = link
                    continue
            wire.close(link)
    except (OSError, wire.Ended, wire.Refused):
        for link in sockets.values():
            wire.close(link)
        missing = sorted(set(range(ranks.size)) - {ranks.rank} - sockets.keys())
        raise RankFailure(
            f"rank {ranks.rank} could not be connected to {_ranks(missing)}"
        ) from None
    for link in sockets.values():
        link.settimeout(None)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sockets


def host_name() -> str:
    """Return a name of this host, which no other has: of its last start."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        return f"{socket.gethostname()} {boot.read_text().strip()}"
    except OSError:
        return socket.gethostname()


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; OSError where the port is taken."""
    return socket.create_server((host, port), backlog=128)


def _listen_near(host: str, port: int) -> socket.socket:
    for tried in range(port, min(port + PORTS, 65536)):
        with suppress(OSError):
            return _listen(host, tried)
    raise FusecError(
        f"the ports from {port} to {min(port + PORTS, 65536) - 1} are in use",
        help="set MASTER_PORT to a port that is free",
    )


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks))}"
