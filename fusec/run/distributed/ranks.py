"""The ranks of a run, from the environment set by torchrun, MPI, Slurm or fusec itself."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.options import environment

DEFAULT_PORT = 29500
"""Default rendezvous port of ranks of one host: that of torchrun."""
TIMEOUT = 20.0
"""Seconds without progress after which a rank counts as hung."""
COMPILING = 600.0
"""Seconds for the slowest rank to compile or finish; no rank waits in a collective then."""
LOCAL = "127.0.0.1"
_LOOPBACK = (LOCAL, "localhost", "::1")


@dataclass(frozen=True)
class Ranks:
    """One rank of a run.

    local_rank, local_size: index and number of ranks on its host; a size of 0 is unknown. host,
    port: of the rendezvous. by: the launcher that started the ranks; empty for a process on its
    own. token: proves that a process is a rank of this run.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    host: str = LOCAL
    port: int = DEFAULT_PORT
    by: str = ""
    token: str = ""

    @property
    def started(self) -> bool:
        """Return whether a launcher started this process as one of several ranks."""
        return bool(self.by)

    @property
    def launched(self) -> bool:
        """Return whether fusec itself started it, and then waits for the ranks at the port."""
        return self.by == FUSEC

    @property
    def on_one_host(self) -> bool:
        """Return whether all ranks are known to be on one host."""
        return self.local_size == self.size

    @property
    def is_local(self) -> bool:
        """Return whether ranks meet on the loopback interface, unreachable from other hosts."""
        unknown = not self.local_size and self.host in _LOOPBACK
        return self.launched or self.on_one_host or unknown

    @property
    def address(self) -> str:
        """Return the host to connect to."""
        return LOCAL if self.is_local else self.host


FUSEC = "fusec"


@dataclass(frozen=True)
class _Starter:
    """Names of the environment variables that a launcher sets."""

    name: str
    rank: str
    sizes: tuple[str, ...]
    local_rank: str
    local_sizes: tuple[str, ...]


STARTERS = (
    _Starter(FUSEC, "FUSEC_RANK", ("FUSEC_RANKS",), "", ()),
    # Before torchrun's names, which are often set as well for programs under mpirun.
    _Starter(
        "Open MPI", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",),
        "OMPI_COMM_WORLD_LOCAL_RANK", ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    _Starter("torchrun", "RANK", ("WORLD_SIZE",), "LOCAL_RANK", ("LOCAL_WORLD_SIZE",)),
    _Starter("PMI", "PMI_RANK", ("PMI_SIZE",), "MPI_LOCALRANKID", ("MPI_LOCALNRANKS",)),
    # A step has as many tasks as were requested for it; a job may have more.
    _Starter(
        "Slurm", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        "SLURM_LOCALID", (),
    ),
)  # fmt: skip


def from_environment(variables: Mapping[str, str] | None = None) -> Ranks:
    """Return the rank of this process; a single rank if no launcher set any variable.

    FusecError names a variable that is missing although others are set, or has an invalid value.
    """
    given = os.environ if variables is None else variables
    for starter in STARTERS:
        # Slurm sets the size also for processes of a job that it did not start as ranks.
        names = (starter.rank, *(() if starter.name == "Slurm" else starter.sizes))
        if any(name in given for name in names):
            return _ranks(starter, given)
    return Ranks()


def _ranks(starter: _Starter, given: Mapping[str, str]) -> Ranks:
    size_name = next((n for n in starter.sizes if n in given), starter.sizes[0])
    rank = _whole(given, starter.rank, partner=size_name)
    size = _whole(given, size_name, partner=starter.rank, least=1)
    _below(starter.rank, rank, size_name, size)
    local_size = _local_size(starter, given, size)
    local_rank = rank
    if starter.local_rank in given:
        local_rank = _whole(given, starter.local_rank)
        _below(starter.local_rank, local_rank, "the number of ranks there", local_size or size)
    host, port = _meeting(given, starter, local_size == size)
    token = given.get("FUSEC_RANK_TOKEN", "")
    return Ranks(rank, size, local_rank, local_size, host, port, starter.name, token)


def _local_size(starter: _Starter, given: Mapping[str, str], size: int) -> int:
    """Return how many ranks the host has; 0 where it is unknown."""
    for name in starter.local_sizes:
        if name in given:
            local = _whole(given, name, least=1)
            if local > size:
                raise FusecError(f"{name}={local}, but there are {size} ranks")
            return local
    if starter.name == "Slurm":
        nodes = given.get("SLURM_STEP_NUM_NODES", given.get("SLURM_NNODES", "1"))
        return size if nodes == "1" else 0
    return size if starter.name == FUSEC else 0


def _meeting(given: Mapping[str, str], starter: _Starter, one_host: bool) -> tuple[str, int]:
    host = given.get("MASTER_ADDR", "")
    if not host:
        if not one_host or starter.name == "torchrun":
            raise _missing("MASTER_ADDR", starter.rank)
        host = LOCAL
    if "MASTER_PORT" not in given:
        if not one_host or starter.name == "torchrun":
            raise _missing("MASTER_PORT", starter.rank)
        return host, DEFAULT_PORT
    port = _whole(given, "MASTER_PORT", least=1)
    if port > 65535:
        raise FusecError(f"MASTER_PORT={port} is not a port: the maximum is 65535")
    return host, port


def _whole(given: Mapping[str, str], name: str, partner: str = "", least: int = 0) -> int:
    if name not in given:
        raise _missing(name, partner)
    text = given[name].strip()
    if not (text.isascii() and text.isdecimal()) or int(text) < least:
        raise FusecError(f"{name}={given[name]!r}: expected an integer of at least {least}")
    return int(text)


def _below(name: str, value: int, limit: str, size: int) -> None:
    if value >= size:
        raise FusecError(f"{name}={value} is out of range: {limit} is {size}")


def _missing(name: str, partner: str) -> FusecError:
    return FusecError(
        f"{partner} is set, but {name} is not",
        help=f"set {name}, or unset {partner} to run as one rank",
    )


def timeout() -> float:
    """Return for how many seconds a rank waits for another without progress."""
    text = environment("FUSEC_RANK_TIMEOUT")
    if text is None:
        return TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise FusecError(f"FUSEC_RANK_TIMEOUT={text!r}: expected seconds above 0")
    return seconds
