"""The watchdog of a rank: it ends what is left of a run, whatever the rank itself waits in."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import rank_processes
from paths import ROOT

from fusec.run.distributed import watchdog_process, wire
from fusec.run.distributed.links import Links
from fusec.run.distributed.loss import GRACE, Loss, RankFailure
from fusec.run.distributed.monitor import Monitor
from fusec.run.distributed.process_state import GONE, RUNNING, STOPPED, Observed
from fusec.run.distributed.ranks import LOCAL, Ranks
from fusec.run.distributed.rendezvous import meet
from fusec.run.distributed.status import ANY, SIZE, Status, StatusPage
from fusec.run.distributed.watchdog_order import Ends, Order

TIMEOUT = 1.0


def hold_lock(seconds: int) -> None:
    """Wait in a foreign call that holds Python's lock, as some calls of drivers do."""
    ctypes.PyDLL(None).sleep(seconds)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_inside_a_foreign_call_ends_with_a_lost_rank(how: int, tmp_path: Path) -> None:
    def work(links: Links) -> None:
        links.phase("a foreign call")
        links.gather(None, "begin")
        if links.rank == 1:
            os.killpg(os.getpid(), how)
        hold_lock(60)

    def before(_: int) -> None:
        os.setpgid(0, 0)  # the signal is for the rank and all that it has started

    ranks = rank_processes.start(2, work, tmp_path, TIMEOUT, before)
    begun = time.monotonic()
    for rank in ranks:
        rank.join(20)
    took = time.monotonic() - begun
    assert [rank.exitcode for rank in ranks] == [-signal.SIGKILL] * 2
    assert took < 15


def test_ranks_end_with_the_process_that_started_them_whatever_they_wait_in(
    tmp_path: Path,
) -> None:
    def work(links: Links) -> None:
        links.gather(None, "begin")
        (tmp_path / f"{links.rank}").touch()
        if links.rank:
            hold_lock(60)
        else:
            stop()

    monitors = list[Monitor]()
    make = Monitor.on_this_host

    def keep(*given: Any) -> Monitor:
        monitors.append(make(*given))
        return monitors[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Monitor, "on_this_host", keep)
        ranks = rank_processes.start(2, work, tmp_path, 30.0)
    while not all((tmp_path / f"{rank}").exists() for rank in range(2)):
        time.sleep(0.02)
    monitors[0].close()  # as the end of its process does
    begun = time.monotonic()
    for rank in ranks:
        rank.join(10)
    assert time.monotonic() - begun < GRACE  # at once
    assert [rank.exitcode for rank in ranks] == [-signal.SIGKILL] * 2


def torchrun(
    work: Callable[[Links], None], tmp_path: Path, timeout: float = TIMEOUT
) -> list[tuple[int, str]]:
    """Return how three ranks of a Python program end, as torchrun starts them: code and stderr."""
    with socket.create_server((LOCAL, 0)) as free:
        port = free.getsockname()[1]

    def meets(rank: int) -> Links:
        ranks = Ranks(rank, 3, rank, 3, LOCAL, port, "torchrun")
        return meet(ranks, timeout, ends=Ends.PROGRAM)

    def before(rank: int) -> None:
        os.dup2(os.open(tmp_path / f"{rank}.err", os.O_CREAT | os.O_WRONLY), 2)

    ranks = rank_processes.start(3, work, tmp_path, before=before, meets=meets)
    try:
        for rank in ranks:
            rank.join(30)
    finally:
        for rank in ranks:
            rank.kill()
    return [(rank.exitcode, (tmp_path / f"{n}.err").read_text()) for n, rank in enumerate(ranks)]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_program_that_never_looks_is_ended_by_its_watchdog(lost: int, tmp_path: Path) -> None:
    """Also where rank 0 is lost, whose watchdog is the monitor of all."""

    def work(links: Links) -> None:
        links.phase("the program")
        links.gather(None, "begin")
        if links.rank == lost:
            stop()
        hold_lock(60)

    others = sorted({0, 1, 2} - {lost})
    for number, (code, said) in enumerate(torchrun(work, tmp_path)):
        assert code == -signal.SIGKILL
        if number != lost:
            assert said == (
                f"environment: rank {lost} is stopped\n"
                f"  = ranks {others[0]}, {others[1]} were in `the program`\n"
            )


def test_a_program_that_has_caught_the_loss_may_go_on(tmp_path: Path) -> None:
    def work(links: Links) -> None:
        links.gather(None, "begin")
        if links.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(RankFailure, match="rank 1 died"):
            links.receive(1, "a key", "the exchange")
        time.sleep(GRACE + 1)
        (tmp_path / f"saved {links.rank}").touch()
        links.close()
        hold_lock(60)  # what it does at its end is limited again

    found = torchrun(work, tmp_path)
    assert [code for code, _ in found] == [-signal.SIGKILL] * 3
    assert {path.name for path in tmp_path.glob("saved *")} == {"saved 0", "saved 2"}


def test_the_watchdog_of_rank_0_serves_until_all_have_left(tmp_path: Path) -> None:
    def work(links: Links) -> None:
        links.gather(None, "begin")
        if links.rank == 0:
            links.close()
            return
        if links.rank == 1:
            time.sleep(TIMEOUT + 2)
            os.kill(os.getpid(), signal.SIGKILL)
        links.receive(1, "a key", "the exchange", 60.0)

    assert [code for code, _ in torchrun(work, tmp_path)] == [0, -signal.SIGKILL, 0]
    assert "RankFailure: rank 1 died" in (tmp_path / "2.trace").read_text()
    assert "  = rank 2 was in `the exchange`" in (tmp_path / "2.trace").read_text()


def test_a_rank_that_has_said_goodbye_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the monitor asks before its watchdog has heard the goodbye, on a busy host."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    rank, theirs = socket.socketpair()
    with socket.create_server((LOCAL, 0)) as listener:
        watches = socket.create_connection(listener.getsockname())
        monitor, _ = listener.accept()

    def find(*_: object) -> socket.socket:
        process.kill()
        process.wait()
        wire.send(rank, {"left": True})
        wire.send(monitor, {"ask": True})
        return watches

    monkeypatch.setattr(watchdog_process, "find_monitor", find)
    ranks = rank_processes.launched(0, 1, 0)
    wire.send(rank, Order(ranks, "here", 0, process.pid, 5.0, 5.0, Ends.COMMAND.value).frame())
    with (tmp_path / "page").open("w+b") as file:
        file.truncate(SIZE)
        watchdog_process.watch(theirs, StatusPage(file.fileno()), None)
    assert "rank" in wire.receive(monitor)[0]
    assert wire.receive(monitor)[0] == {"left": True}
    with pytest.raises(wire.Ended):
        wire.receive(monitor)
    for link in (rank, monitor):
        link.close()


PROGRAM = """
import os, signal
from fusec.run.distributed.process import links

made = links()
made.phase("the program")
made.gather(None, "begin")
if made.rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
made.receive(1, "a key", "the exchange")
"""


def test_the_process_of_a_program_ends_with_the_error(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    with socket.create_server((LOCAL, 0)) as free:
        port = str(free.getsockname()[1])
    told = {
        "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": LOCAL, "MASTER_PORT": port,
        "FUSEC_RANK_TIMEOUT": "2", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env={**os.environ, **told, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [rank.communicate(timeout=60)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [1, -signal.SIGKILL]
    assert said[0].endswith("RankFailure: rank 1 is stopped\n  = rank 0 was in `the exchange`\n")
    assert said[1] == "environment: rank 1 is stopped\n  = rank 0 was in `the exchange`\n"


def test_a_process_is_observed() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    observed = Observed(process.pid)
    assert observed.state() == RUNNING
    process.send_signal(signal.SIGSTOP)
    limit = time.monotonic() + 5
    while observed.state() != STOPPED and time.monotonic() < limit:
        time.sleep(0.01)
    assert observed.state() == STOPPED
    process.kill()
    limit = time.monotonic() + 5
    while observed.state() != GONE and time.monotonic() < limit:
        time.sleep(0.01)
    assert observed.state() == GONE  # as a zombie
    process.wait()
    assert observed.state() == GONE
    assert Observed(os.getpid()).state() == RUNNING


def test_a_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    with (tmp_path / "page").open("w+b") as file:
        file.truncate(SIZE)
        writer, reader = StatusPage(file.fileno()), StatusPage(file.fileno())
        assert reader.read().doing == ""
        for doing in ("all_reduce", "x" * 5000, "é"):
            writer.write(Status(doing, 3, 1.5))
            found = reader.read()
            assert (found.doing, found.waits, found.limit) == (doing[: SIZE // 2], 3, 1.5)
        time.sleep(0.05)
        assert reader.read().idle >= 0.05
        writer.touch()
        assert reader.read().idle < 0.05
        writer.close()
        reader.close()


class FakeWatchdog:
    """The connection of a watchdog that says what a test tells it to."""

    def __init__(self, monitor: Monitor, rank: int, size: int, *, answers: bool = True) -> None:
        self.link = socket.create_connection((LOCAL, monitor.port))
        wire.join(self.link, "", 5.0)
        wire.send(self.link, {"rank": rank, "size": size, "host": "here", "address": []})
        self.status, self.state = Status(), RUNNING
        self.answers = answers

    def loss(self, seconds: float = 10.0) -> Loss:
        """Answer the monitor until it tells of a loss."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            found = self.answer()
            if found is not None:
                return found
        raise AssertionError("no loss was told")

    def answer(self) -> Loss | None:
        """Take the next frame, and answer it; return the loss that it tells of."""
        self.link.settimeout(10.0)
        frame, _ = wire.receive(self.link)
        if "ask" in frame and self.answers:
            wire.send(self.link, {"status": vars(self.status), "state": self.state})
        return Loss.of_frame(frame["loss"]) if "loss" in frame else None


def test_a_watchdog_that_does_not_answer_is_a_lost_rank() -> None:
    with Monitor.on_this_host(2, "", 5.0, 0.5) as monitor:
        first = FakeWatchdog(monitor, 0, 2)
        silent = FakeWatchdog(monitor, 1, 2, answers=False)
        first.status = Status("the exchange", 1, 60.0)
        assert first.loss() == Loss(1, "rank 1 does not answer", ("rank 0 was in `the exchange`",))
    first.link.close()
    silent.link.close()


def test_a_run_that_is_suspended_as_a_whole_loses_no_rank() -> None:
    """As by Ctrl-Z under torchrun, which stops all ranks, but not their watchdogs."""
    with Monitor.on_this_host(2, "", 5.0, 0.5) as monitor:
        first, second = (FakeWatchdog(monitor, rank, 2) for rank in range(2))
        for watchdog in (first, second):
            watchdog.state, watchdog.status = STOPPED, Status("the exchange", ANY, 0.5, 60.0)
        limit = time.monotonic() + 1.0
        while time.monotonic() < limit:
            assert first.answer() is None
            assert second.answer() is None
        first.state = RUNNING
        thread = threading.Thread(target=second.loss)
        thread.start()
        assert first.loss().message == "rank 1 is stopped"
        thread.join()
    first.link.close()
    second.link.close()


@pytest.mark.parametrize(
    ("statuses", "message"),
    [
        # A circle: whom the first waits for.
        ([Status("a", 1, 0.1, 1.0), Status("b", 0, 9.0)], "rank 1 hangs"),
        # The end of a chain.
        ([Status("a", 1, 0.1, 1.0), Status("b", 2, 9.0), Status("c")], "rank 2 hangs"),
        # A phase of its own.
        ([Status("freeing memory", 0, 0.1, 1.0), Status("b", 0, 9.0)], "rank 0 hangs"),
        # A GPU does not tell for whom it waits: the one that waits for nobody, if there is one.
        ([Status("a", ANY, 0.1, 1.0), Status("b"), Status("c", ANY, 9.0)], "rank 1 hangs"),
        ([Status("a", ANY, 0.1, 1.0), Status("b", ANY, 9.0)], "the ranks hang"),
    ],
)
def test_the_rank_that_all_wait_for_is_named(statuses: list[Status], message: str) -> None:
    size = len(statuses)
    found = list[Loss]()
    with Monitor.on_this_host(size, "", 5.0, 2.0) as monitor:
        watchdogs = [FakeWatchdog(monitor, rank, size) for rank in range(size)]
        for watchdog, status in zip(watchdogs, statuses, strict=True):
            watchdog.status = status
        # Each answers in turn; the first loss is told to all.
        threads = [threading.Thread(target=lambda w=w: found.append(w.loss())) for w in watchdogs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {loss.message for loss in found} == {message}
    assert any("set FUSEC_RANK_TIMEOUT" in note for note in found[0].notes)
    assert any("for more than 0.1 s" in note for note in found[0].notes)
    for watchdog in watchdogs:
        watchdog.link.close()


def test_an_error_that_a_death_causes_does_not_hide_it() -> None:
    """A GPU fails where another rank's memory vanishes, before the end of that rank is known."""
    with Monitor.on_this_host(2, "", 5.0, 5.0) as monitor:
        first, second = (FakeWatchdog(monitor, rank, 2) for rank in range(2))
        second.state = GONE
        wire.send(first.link, {"loss": Loss(0, "rank 0 failed", ("CUDA",), True).frame()})

        def die() -> None:
            with suppress(wire.Ended):
                second.loss()

        dying = threading.Thread(target=die)
        dying.start()
        assert first.loss().message == "rank 1 died"
        monitor.close()
    dying.join()
    first.link.close()
    second.link.close()


def test_a_monitor_that_was_stopped_itself_accuses_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Monitor.on_this_host(1, "", 5.0, 1.0) as monitor:
        only = FakeWatchdog(monitor, 0, 1)
        assert only.answer() is None
        real = time.monotonic
        # The clock goes on by a minute between two looks, as where the process was stopped.
        monkeypatch.setattr(time, "monotonic", lambda: real() + 60.0)
        time.sleep(0.4)
        limit = real() + 1.0
        while real() < limit:
            assert only.answer() is None
        assert monitor.loss is None
    only.link.close()


def test_a_watchdog_loads_the_standard_library_alone() -> None:
    """It starts in some tens of milliseconds, and nothing of a rank's GPU is in it."""
    code = "import sys, fusec.run.distributed.watchdog_process; print(*sys.modules)"
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-S", "-P", "-c", code]
    loaded = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    names = {name.partition(".")[0] for name in loaded.stdout.split()}
    assert names - set(sys.stdlib_module_names) - {"__main__"} == {"fusec"}
