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
from tempfile import TemporaryFile
from typing import IO, Any

import click

from fusec.commands.terminal.colour import tell
from fusec.commands.terminal.diagnose import Report
from fusec.dataclasses import dataclass
from fusec.diagnostics import Diagnostic, FusecError
from fusec.foreign import decode_json
from fusec.processors import usable_processors
from fusec.run.distributed.loss import GRACE, Loss
from fusec.run.distributed.monitor import Monitor
from fusec.run.distributed.ranks import LOCAL, timeout
from fusec.run.distributed.rendezvous import MEETING

JSON = "--json"
_TICK = 0.02
_FAILED_ELSEWHERE = 4


@dataclass(frozen=True)
class _Rank:
    """A process with its stderr, and its JSON output if that was requested."""

    number: int
    process: subprocess.Popen[bytes]
    said: IO[bytes]
    output: IO[bytes] | None

    @property
    def text(self) -> str:
        """Return its stderr output so far."""
        self.said.seek(0)
        return self.said.read().decode(errors="backslashreplace").strip()

    def report(self) -> dict[str, Any]:
        """Return its JSON report; empty if it was killed before, or if JSON was not requested."""
        if self.output is None:
            return {}
        self.output.seek(0)
        try:
            return decode_json(self.output.read(), "what a rank reports")
        except FusecError:
            return {}


def launch(arguments: Sequence[str], size: int, given: bytes | None, report: Report) -> int:
    """Run fusec with arguments as so many ranks; return the exit code.

    Rank 0 prints; the stderr of all ranks is printed at the end, equal errors once. given: the
    standard input of each rank. report: receives the facts of rank 0 and the errors of all, if the
    arguments contain `--json`.
    """
    token, ranks = secrets.token_hex(32), list[_Rank]()
    sys.stdout.flush()
    with ExitStack() as open_, Monitor.on_this_host(size, token, MEETING, timeout()) as monitor:
        try:
            for number in range(size):
                output = {
                    "FUSEC_RANK": str(number), "FUSEC_RANKS": str(size), "MASTER_ADDR": LOCAL,
                    "MASTER_PORT": str(monitor.port), "FUSEC_RANK_TOKEN": token,
                }  # fmt: skip
                said = open_.enter_context(TemporaryFile())
                as_json = open_.enter_context(TemporaryFile()) if JSON in arguments else None
                process = _start(number, size, arguments, output, said, as_json)
                ranks.append(_Rank(number, process, said, as_json))
                monitor.expect(number, process.pid)
                _give(process, given)
            _watch(ranks, monitor)
            codes = [rank.process.poll() for rank in ranks]
        finally:
            _end_all(ranks)
        more = _say(ranks, codes, monitor.loss)
        _gather(ranks, more, report)
        return _code(codes)


def _gather(ranks: Sequence[_Rank], more: Sequence[Diagnostic], report: Report) -> None:
    """Collect the facts of rank 0, and the diagnostics of all ranks without duplicates."""
    output = [rank.report() for rank in ranks]
    report.facts |= {
        k: v for k, v in output[0].items() if k not in ("schema_version", "diagnostics")
    }
    known = [d.as_dict() for d in report.diagnostics]
    for found in (d for each in output for d in each.get("diagnostics", ())):
        if found not in known:
            known.append(found)
            report.diagnostics.append(Diagnostic.of_dict(found))
    report.diagnostics += more


def _start(
    number: int,
    size: int,
    arguments: Sequence[str],
    output: dict[str, str],
    said: IO[bytes],
    as_json: IO[bytes] | None,
) -> subprocess.Popen[bytes]:
    threads = str(max(1, usable_processors() // size))
    out: Any = as_json or (subprocess.DEVNULL if number else None)
    return subprocess.Popen(
        [sys.executable, "-m", "fusec", *arguments],
        env={"OMP_NUM_THREADS": threads, **os.environ, **output},
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=said,
        process_group=0,
    )


def _give(process: subprocess.Popen[bytes], given: bytes | None) -> None:
    """Write a process's standard input."""
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(given or b"")


def _watch(ranks: list[_Rank], monitor: Monitor) -> None:
    """Wait for all ranks; after a loss for the grace period at most."""
    limit = float("inf")
    while any(rank.process.poll() is None for rank in ranks) and time.monotonic() < limit:
        for rank in ranks:
            code = rank.process.returncode
            if code:
                ended = f"rank {rank.number} ended with exit code {code}"
                died = Loss.died(rank.number)
                monitor.lose(died if code < 0 else Loss(rank.number, ended, failed=True))
        if monitor.loss is not None:
            limit = min(limit, time.monotonic() + GRACE)
        time.sleep(_TICK)


def _end_all(ranks: list[_Rank]) -> None:
    """Kill all processes, and their child processes."""
    for rank in ranks:
        with suppress(ProcessLookupError):
            os.killpg(rank.process.pid, signal.SIGKILL)
    for rank in ranks:
        rank.process.wait()


def _code(codes: Sequence[int | None]) -> int:
    """Return the exit code of a rank with an error of its own; else the one for lost peers."""
    own = [code for code in codes if code and code > 0 and code != _FAILED_ELSEWHERE]
    if own:
        return own[0]
    return _FAILED_ELSEWHERE if any(code != 0 for code in codes) else 0


def _say(ranks: list[_Rank], codes: Sequence[int | None], loss: Loss | None) -> list[Diagnostic]:
    """Print the ranks' messages, equal errors once; return errors that only this process knows.

    codes: the exit code of each, None for one that had to be killed.
    """
    known = set[str]()
    for rank in ranks:
        text = rank.text
        headline = text.partition("\n")[0]
        if text and headline not in known:
            known.add(headline)
            click.echo(text, err=True)
    more = list[Diagnostic]()
    if loss is not None and not loss.failed:
        found = loss.error().diagnostic
        if f"{found.severity}: {found.message}" not in known:
            more.append(found)
    for rank, code in zip(ranks, codes, strict=True):
        if code is not None and code < 0 and (loss is None or rank.number == loss.rank):
            why = f"rank {rank.number} was ended by {signal.Signals(-code).name}"
            more.append(Diagnostic("environment", why))
    for found in more:
        tell(found)
    return more
