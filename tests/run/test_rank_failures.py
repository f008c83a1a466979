"""Ranks that die, hang, fail or never come: the others end with an error that names them."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rank_processes
from rank_processes import TOKEN, launched

from fusec.diagnostics import EnvironmentProblem, FusecError
from fusec.hostir.instructions import Collective
from fusec.run.distributed import wire
from fusec.run.distributed.join import PORTS
from fusec.run.distributed.links import Links, RankFailure
from fusec.run.distributed.monitor import Monitor
from fusec.run.distributed.ranks import LOCAL, Ranks
from fusec.run.distributed.rendezvous import meet
from fusec.run.distributed.watchdog_order import Ends
from fusec.run.distributed.watchdog_process import _Watch
from fusec.run.transports.host import HostTransport

TIMEOUT = 0.7
"""Seconds; a loaded machine must not take a rank that computes for one that hangs."""
EXCHANGE = Collective("all_gather", "y", "x", "m", 3)


def gather_until(links: Links, stop: Callable[[int], None], elements: int = 10) -> int:
    """Exchange for ever; `stop` is called before each exchange with its number."""
    transport, group = HostTransport(links), tuple(range(links.size))
    for step in range(100000):
        stop(step)
        source = np.full(elements, links.rank)
        target = np.empty(elements * links.size, np.int64)
        transport.begin(EXCHANGE, target, source, group, links.rank)
        transport.wait("y", 0)
    return 0


def failing(
    tmp_path: Path,
    rank: int,
    act: Callable[[], Any],
    elements: int = 10,
    timeout: float = TIMEOUT,
) -> list[Any]:
    """Return how three ranks end where one does something at its third exchange."""

    def work(links: Links) -> Any:
        def stop(step: int) -> None:
            if links.rank == rank and step == 2:
                act()

        return gather_until(links, stop, elements)

    processes = rank_processes.start(3, work, tmp_path, timeout)
    begun = time.monotonic()
    others = [p for r, p in enumerate(processes) if r != rank]
    for process in others:
        process.join(20)
    took = time.monotonic() - begun
    processes[rank].kill()
    found = rank_processes.results(processes, tmp_path)
    assert took < 10
    return [found[r] for r in range(3) if r != rank]


@pytest.mark.parametrize("elements", [10, 1 << 18], ids=["small", "large"])
def test_a_rank_that_is_killed_is_named_by_the_others(tmp_path: Path, elements: int) -> None:
    for error in failing(tmp_path, 2, lambda: os.kill(os.getpid(), signal.SIGKILL), elements):
        assert isinstance(error, RankFailure)
        assert error.diagnostic.message == "rank 2 died"
        assert "all_gather y <- x over m: 3" in str(error)


def test_a_rank_that_is_stopped_is_named_by_the_others(tmp_path: Path) -> None:
    def stop() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    # More than sockets hold: the others wait until they can send, not only for what comes. They
    # have half of the patience to come to the exchange.
    for error in failing(tmp_path, 1, stop, 1 << 21, 4.0):
        assert isinstance(error, RankFailure)
        assert error.diagnostic.message == "rank 1 is stopped"
        assert error.diagnostic.notes == ("ranks 0, 2 were in `all_gather y <- x over m: 3`",)


def test_the_end_of_a_chain_of_waiting_ranks_is_named(tmp_path: Path) -> None:
    def work(links: Links) -> Any:
        if links.rank == 2:
            time.sleep(60)
        # 0 waits for 1, which waits for 2; all that 0 sees is that 1 does not come.
        links.receive(links.rank + 1, "a key", "the exchange", TIMEOUT * (2 - links.rank))
        return None

    processes = rank_processes.start(3, work, tmp_path, TIMEOUT)
    for process in processes[:2]:
        process.join(20)
    processes[2].kill()
    found = rank_processes.results(processes, tmp_path)
    assert [e.diagnostic.message for e in found[:2]] == ["rank 2 hangs"] * 2


def test_a_rank_that_fails_tells_why(tmp_path: Path) -> None:
    def work(links: Links) -> Any:
        def stop(step: int) -> None:
            if links.rank == 1 and step == 3:
                links.fail("error: an index is out of bounds")
                raise FusecError("an index is out of bounds")

        return gather_until(links, stop)

    found = rank_processes.results(rank_processes.start(3, work, tmp_path), tmp_path)
    assert str(found[1]) == "an index is out of bounds"
    for error in (found[0], found[2]):
        assert error.diagnostic.message == "rank 1 failed"
        assert error.diagnostic.notes == ("error: an index is out of bounds",)


def test_a_rank_that_ends_before_the_others_is_named(tmp_path: Path) -> None:
    def work(links: Links) -> Any:
        return None if links.rank == 1 else gather_until(links, lambda _: None)

    found = rank_processes.results(rank_processes.start(3, work, tmp_path), tmp_path)
    for error in (found[0], found[2]):
        assert error.diagnostic.message == "rank 1 ended before the others"


def test_something_elsewhere_is_waited_for_with_an_eye_on_the_ranks(tmp_path: Path) -> None:
    def work(links: Links) -> Any:
        if links.rank == 1:
            links.receive(0, "begin", "the start")
            os.kill(os.getpid(), signal.SIGKILL)
        links.until(lambda: True, "nothing")
        links.send(1, "begin", "the start", {})
        links.until(lambda: False, "the GPU")

    found = rank_processes.results(rank_processes.start(2, work, tmp_path), tmp_path)
    assert found[0].diagnostic.message == "rank 1 died"


def in_thread(ranks: Ranks, found: list[Any], timeout: float = 0.5) -> threading.Thread:
    def body() -> None:
        try:
            found.append(meet(ranks, timeout, ends=Ends.NO_RANK))
        except FusecError as error:
            found.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    return thread


def close_all(found: list[Any]) -> None:
    threads = [threading.Thread(target=links.close) for links in found if isinstance(links, Links)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_wrong_token_does_not_get_in_and_the_others_meet() -> None:
    with Monitor.on_this_host(2, TOKEN, 5.0) as meeting:
        with pytest.raises(EnvironmentProblem, match="have a different token"):
            meet(launched(1, 2, meeting.port, "guessed"), 0.5)
        found: list[Any] = []
        threads = [in_thread(launched(r, 2, meeting.port), found, 5.0) for r in range(2)]
        for thread in threads:
            thread.join()
    assert all(isinstance(links, Links) for links in found)
    close_all(found)


def test_a_stranger_that_says_nothing_does_not_hold_the_others_up() -> None:
    with Monitor.on_this_host(2, TOKEN, 5.0) as meeting:
        stranger = socket.create_connection((LOCAL, meeting.port))
        found: list[Any] = []
        threads = [in_thread(launched(r, 2, meeting.port), found, 5.0) for r in range(2)]
        for thread in threads:
            thread.join()
        stranger.close()
    assert all(isinstance(links, Links) for links in found)
    close_all(found)


def test_no_connection_is_closed_that_another_thread_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That thread may wait for whatever has the number of its connection next."""
    reading, wrong = dict[socket.socket, int](), list[socket.socket]()
    admit, close = wire.admit, wire.close

    def noting(link: socket.socket, token: str) -> None:
        reading[link] = threading.get_ident()
        try:
            admit(link, token)
        finally:
            del reading[link]

    def closing(link: socket.socket) -> None:
        own = threading.get_ident()
        if reading.get(link, own) != own:
            wrong.append(link)
        close(link)

    monkeypatch.setattr(wire, "admit", noting)
    monkeypatch.setattr(wire, "close", closing)
    test_a_stranger_that_says_nothing_does_not_hold_the_others_up()
    assert wrong == []


def test_ranks_that_do_not_come_are_named() -> None:
    with Monitor.on_this_host(3, TOKEN, 0.3) as meeting, pytest.raises(RankFailure) as caught:
        meet(launched(1, 3, meeting.port), 1.0)
    assert "ranks 0, 2 of 3 did not connect within 0.3 s" in str(caught.value)


def test_two_processes_with_one_rank_are_told() -> None:
    with Monitor.on_this_host(2, TOKEN, 0.3) as meeting:
        found: list[Any] = []
        threads = [in_thread(launched(1, 2, meeting.port), found) for _ in range(2)]
        for thread in threads:
            thread.join()
    assert any("two processes have rank 1" in str(error) for error in found)


def alone(rank: int, port: int) -> Ranks:
    """Return one of two ranks that torchrun started on this host."""
    return Ranks(rank, 2, rank, 2, LOCAL, port, "torchrun")


def test_a_port_in_use_by_others_is_passed_over() -> None:
    # torchrun's own store holds the port that it tells its ranks.
    with socket.create_server((LOCAL, 0)) as taken:
        found: list[Any] = []
        port = taken.getsockname()[1]
        threads = [in_thread(alone(rank, port), found, 5.0) for rank in range(2)]
        for thread in threads:
            thread.join()
    assert all(isinstance(links, Links) for links in found), found
    close_all(found)


def test_ports_that_are_all_in_use_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusec.run.distributed.rendezvous.PORTS", 1)
    with socket.create_server((LOCAL, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FusecError, match=f"the ports from {port} to {port} are in use"):
            meet(alone(0, port), 0.5)
    assert PORTS > 1


@pytest.mark.parametrize("slow", [0.0, 0.2], ids=["at_once", "slow"])
def test_nothing_is_left_open(slow: float, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _Watch.run

    def run_slowly(self: _Watch) -> None:
        run(self)
        time.sleep(slow)

    monkeypatch.setattr(_Watch, "run", run_slowly)

    def open_files() -> set[str]:
        return {
            os.readlink(f"/proc/self/fd/{name}")
            for name in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{name}")
        }

    before, threads = open_files(), set(threading.enumerate())
    shared = set(os.listdir("/dev/shm"))
    with Monitor.on_this_host(2, TOKEN, 5.0) as meeting:
        found: list[Any] = []
        started = [in_thread(launched(r, 2, meeting.port), found, 5.0) for r in range(2)]
        for thread in started:
            thread.join()
    close_all(found)
    assert not open_files() - before  # what others have left may be closed meanwhile
    assert not set(threading.enumerate()) - threads
    assert set(os.listdir("/dev/shm")) == shared
