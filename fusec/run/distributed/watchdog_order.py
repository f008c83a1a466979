"""The configuration of a watchdog, sent to it at its start."""

from __future__ import annotations

from enum import Enum
from typing import Any

from fusec.dataclasses import asdict, dataclass
from fusec.run.distributed.ranks import Ranks


class Ends(Enum):
    """Which processes a watchdog terminates after a loss.

    COMMAND: every one that is left after the grace period. PROGRAM: the same, except that a process
    that has seen the error may go on, since its program may have caught the error; it ends within
    the grace period once its connections are closed. NO_RANK: none; the watchdog is a thread, as
    for ranks that are threads of one process.
    """

    COMMAND = "command"
    PROGRAM = "program"
    NO_RANK = "nobody"


@dataclass(frozen=True)
class Order:
    """A rank, its run and its watchdog's timeouts.

    host: name of the rank's host. port: where the rank itself accepts connections. seconds: for the
    rendezvous. timeout: seconds after which a rank that does not answer is lost.
    """

    ranks: Ranks
    host: str
    port: int
    pid: int
    seconds: float
    timeout: float
    ends: str

    def frame(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @classmethod
    def of_frame(cls, frame: dict[str, Any]) -> Order:
        """Return the order that plain data describes."""
        given: dict[str, Any] = {**frame, "ranks": Ranks(**frame["ranks"])}
        return cls(**given)
