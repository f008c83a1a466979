"""Start a command as several ranks on this host, and end all of them with the first that fails."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any

import click

from fusec.diagnostics import Diagnostic
from fusec.run.ranks import LOCAL, patience
from fusec.run.rendezvous import MEETING, Meeting

GRACE = 5.0
"""Seconds at most that ranks have to end by themselves, with errors of their own, after one."""
_TICK = 0.02
_FAILED_ELSEWHERE = 4


@dataclass(frozen=True)
class _Rank:
    """A process with what it has said on stderr."""

    number: int
    process: subprocess.Popen[bytes]
    said: IO[bytes]

    @property
    def text(self) -> str:
        """Return what it has said so far."""
        self.said.seek(0)
        return self.said.read().decode(errors="backslashreplace").strip()


def launch(
    arguments: Sequence[str], size: int, given: bytes | None = None, *, aside: bool = False
) -> tuple[int, list[Diagnostic]]:
    """Run fusec with arguments as so many ranks; return the exit code and what went wrong.

    Rank 0 prints; what it and the others say on stderr comes at the end, the same error once.
    given: what each reads from standard input. aside: rank 0, too, prints to stderr.
    """
    token = secrets.token_hex(32)
    sys.stdout.flush()
    ranks, limit = list[_Rank](), min(GRACE, patience())
    with ExitStack() as open_, Meeting.on_this_host(size, token, MEETING) as meeting:
        try:
            for number in range(size):
                told = {
                    "FUSEC_RANK": str(number), "FUSEC_RANKS": str(size), "MASTER_ADDR": LOCAL,
                    "MASTER_PORT": str(meeting.port), "FUSEC_RANK_TOKEN": token,
                }  # fmt: skip
                said = open_.enter_context(TemporaryFile())
                process = _start(number, size, arguments, told, said, aside=aside)
                ranks.append(_Rank(number, process, said))
                _give(process, given)
            ended = _watch(ranks, limit)
        finally:
            _end_all(ranks)
        return _code(ranks, ended), _say(ranks, ended)


def _start(
    number: int,
    size: int,
    arguments: Sequence[str],
    told: dict[str, str],
    said: IO[bytes],
    *,
    aside: bool,
) -> subprocess.Popen[bytes]:
    threads = str(max(1, (os.cpu_count() or 1) // size))
    out: Any = subprocess.DEVNULL if number else sys.stderr.fileno() if aside else None
    return subprocess.Popen(
        [sys.executable, "-m", "fusec", *arguments],
        env={"OMP_NUM_THREADS": threads, **os.environ, **told},
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=said,
        process_group=0,
    )


def _give(process: subprocess.Popen[bytes], given: bytes | None) -> None:
    """Write what a process reads from standard input."""
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(given or b"")


def _watch(ranks: list[_Rank], grace: float) -> set[int]:
    """Wait for all ranks; return those that outlive one that failed by `grace` seconds."""
    limit = float("inf")
    while True:
        running = [rank for rank in ranks if rank.process.poll() is None]
        if not running:
            return set()
        if limit == float("inf") and any(rank.process.returncode for rank in ranks):
            limit = time.monotonic() + grace
        if time.monotonic() > limit:
            return {rank.number for rank in running}
        time.sleep(_TICK)


def _end_all(ranks: list[_Rank]) -> None:
    """Leave no process, nor any that one of them has started."""
    for rank in ranks:
        with suppress(ProcessLookupError):
            os.killpg(rank.process.pid, signal.SIGKILL)
    for rank in ranks:
        rank.process.wait()


def _code(ranks: list[_Rank], ended: set[int]) -> int:
    """Return the exit code of a rank that failed by itself; else that others could not go on."""
    codes = [rank.process.returncode for rank in ranks if rank.number not in ended]
    own = [code for code in codes if code > 0 and code != _FAILED_ELSEWHERE]
    if own:
        return own[0]
    return _FAILED_ELSEWHERE if ended or any(codes) else 0


def _say(ranks: list[_Rank], ended: set[int]) -> list[Diagnostic]:
    """Print what ranks have said, each error once; return how they failed."""
    known, failures = set[str](), list[Diagnostic]()
    for rank in ranks:
        text = rank.text
        headline = text.partition("\n")[0]
        if text and headline not in known:
            known.add(headline)
            click.echo(text, err=True)
            if rank.process.returncode and rank.number not in ended:
                severity, _, message = headline.partition(": ")
                failures.append(Diagnostic(severity, message))
        failures += _how_it_ended(rank, ended)
    return failures


def _how_it_ended(rank: _Rank, ended: set[int]) -> list[Diagnostic]:
    code = rank.process.returncode
    if rank.number in ended:
        why = f"rank {rank.number} did not end and was killed"
    elif code < 0:
        why = f"rank {rank.number} was ended by {signal.Signals(-code).name}"
    else:
        return []
    found = Diagnostic("environment", why)
    click.echo(found.render(), err=True)
    return [found]
