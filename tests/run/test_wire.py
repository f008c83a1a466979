"""Frames that no rank sends, and ranks that anybody could join: refused without a traceback."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from rank_processes import TOKEN, launched
from test_foreign import damaged
from test_rank_failures import close_all, in_thread

from fusec.diagnostics import FusecError
from fusec.run.distributed import wire
from fusec.run.distributed.gathering import gather_arrays
from fusec.run.distributed.links import Links, RankFailure
from fusec.run.distributed.loss import Loss
from fusec.run.distributed.monitor import Monitor
from fusec.run.distributed.ranks import LOCAL, Ranks
from fusec.run.distributed.rendezvous import check_token, meet
from fusec.run.distributed.status import Status
from fusec.run.distributed.watchdog_order import Ends


@pytest.fixture(autouse=True)
def no_thread_fails(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail where a thread ends with an exception: its traceback would be printed."""
    failed = list[Any]()
    monkeypatch.setattr(threading, "excepthook", failed.append)
    yield
    assert failed == []


def received(data: bytes) -> Any:
    """Return what a frame of these bytes is taken for."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(data)
        there.shutdown(socket.SHUT_WR)
        return wire.receive(here, most=1 << 44)


def frame(head: bytes, size: int = 0, data: bytes = b"") -> bytes:
    return struct.pack("!IQ", len(head), size) + head + data


@pytest.mark.parametrize(
    "data",
    [
        frame(b"[" * 900_000),
        frame(b"[]"),
        frame(b"1"),
        frame(b"\xff\xfe"),
        frame(b'{"a": ' + b"1" * 5000 + b"}"),
        frame(b"{", 0),
        struct.pack("!IQ", 1 << 21, 0),
        struct.pack("!IQ", 2, 1 << 45) + b"{}",
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    here, there = socket.socketpair()
    sending = threading.Thread(target=there.sendall, args=(data,))
    with here, there:
        sending.start()
        with pytest.raises(wire.Refused):
            wire.receive(here, most=1 << 44)
        sending.join()


def test_an_announced_size_is_not_believed() -> None:
    with pytest.raises(wire.Ended):
        received(frame(b"{}", 1 << 43, b"abc"))


def test_large_frames_come_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_AHEAD", 64)
    data = random.Random(0).randbytes(50_000)
    head, taken = received(frame(b"{}", len(data), data))
    assert (head, bytes(taken)) == ({}, data)


@pytest.mark.parametrize("seconds", [0.5, pytest.param(20.0, marks=pytest.mark.nightly)])
def test_damaged_frames(seconds: float) -> None:
    rng, end = random.Random(0), time.monotonic() + seconds
    loss, status = Loss(1, "rank 1 died", ("a",)), Status("x", 0, 1.0)
    heads: list[tuple[Any, Callable[[Any], Any]]] = [
        (loss.frame(), Loss.of_frame),
        (vars(status), Status.of_frame),
        ({"rank": 1, "size": 3, "host": "h", "address": ["h", 5]}, lambda f: f),
    ]
    while time.monotonic() < end:
        head, of_frame = rng.choice(heads)
        data = damaged(frame(json.dumps(head).encode(), 3, b"abc"), rng)
        with suppress(wire.Ended, wire.Refused):
            of_frame(received(data)[0])


# --- at the rendezvous ---------------------------------------------------------------------------


def join(port: int, head: Any) -> socket.socket:
    """Return the connection of a stranger that knows the token and says something."""
    link = socket.create_connection((LOCAL, port))
    assert wire.join(link, TOKEN, 5.0)
    link.sendall(frame(json.dumps(head).encode()))
    return link


BOGUS = [
    {"rank": 100, "size": 2, "host": "h", "address": ["h", 1]},
    {"rank": -1, "size": 2, "host": "h", "address": ["h", 1]},
    {"rank": [1], "size": 2, "host": "h", "address": ["h", 1]},
    {"rank": True, "size": 2, "host": "h", "address": ["h", 1]},
    {"rank": 0},
    [1, 2],
    {"rank": "0", "size": "2"},
]


def test_strangers_do_not_end_the_meeting() -> None:
    with Monitor.on_this_host(2, TOKEN, 8.0) as meeting:
        strangers = [join(meeting.port, head) for head in BOGUS]
        found: list[Any] = []
        threads = [in_thread(launched(r, 2, meeting.port), found, 8.0) for r in range(2)]
        for thread in threads:
            thread.join()
        for stranger in strangers:
            stranger.close()
    assert all(isinstance(links, Links) for links in found), found
    close_all(found)


@pytest.mark.parametrize(
    "head",
    [
        {"status": [], "state": "R"},
        {"status": {"doing": 1, "waits": "a", "limit": 0, "idle": 0}, "state": "R"},
        {"loss": {"rank": "x"}},
        {"loss": 3},
        [],
    ],
)
def test_a_malformed_frame_to_the_monitor_loses_its_rank(head: Any) -> None:
    with Monitor.on_this_host(1, TOKEN, 5.0) as meeting:
        link = join(meeting.port, {"rank": 0, "size": 1, "host": "h", "address": ["h", 1]})
        link.sendall(frame(json.dumps(head).encode()))
        limit = time.monotonic() + 5.0
        while meeting.loss is None and time.monotonic() < limit:
            time.sleep(0.01)
        assert meeting.loss is not None
        assert "rank 0 has sent a malformed frame" in meeting.loss.message
        link.close()


# --- between ranks -------------------------------------------------------------------------------

MALFORMED = [
    {"key": ["gather 1"], "head": {}},
    {"key": "gather 1", "head": [1]},
    {"key": "gather 1"},
    {"read": 5, "as": "x"},
    [[]],
]


def linked(act: Callable[[Links], Any]) -> list[Any]:
    """Return what two linked ranks give, or the errors that they end with."""
    with Monitor.on_this_host(2, TOKEN, 5.0) as meeting:
        made, found = list[Any](), dict[int, Any]()

        def body(rank: int) -> None:
            try:
                with meet(launched(rank, 2, meeting.port), 5.0, ends=Ends.NO_RANK) as links:
                    found[rank] = act(links)
            except FusecError as error:
                found[rank] = error

        made = [threading.Thread(target=body, args=(rank,)) for rank in range(2)]
        for thread in made:
            thread.start()
        for thread in made:
            thread.join()
    return [found[rank] for rank in range(2)]


@pytest.mark.parametrize("head", MALFORMED)
def test_a_malformed_frame_between_ranks_names_who_sent_it(head: Any) -> None:
    def act(links: Links) -> Any:
        if links.rank == 1:
            links._sockets[0].sendall(frame(json.dumps(head).encode()))
        return links.gather(links.rank, "the test")

    first = linked(act)[0]
    assert isinstance(first, RankFailure)
    assert "rank 1 has sent a malformed frame" in str(first)


@pytest.mark.parametrize("value", [{"head": {}}, {"head": {"value": "text"}}])
def test_a_malformed_value_between_ranks_names_who_sent_it(value: Any) -> None:
    def act(links: Links) -> Any:
        if links.rank == 1:
            wire.send(links._sockets[0], {"key": "gather 1", **value})
            return None
        return links.gather(3, "the test")

    first = linked(act)[0]
    assert isinstance(first, RankFailure)
    assert "rank 1 sent a malformed message" in str(first)


@pytest.mark.parametrize(
    "head", [{}, {"dtype": "f32", "shape": "x"}, {"dtype": "f99", "shape": [1]}, {"dtype": []}]
)
def test_malformed_arrays_between_ranks_name_who_sent_them(head: Any) -> None:
    import numpy as np

    def act(links: Links) -> Any:
        if links.rank == 1:
            links.number()
            links.send(0, "1 x", "the test", head, b"abc")
            return None
        return gather_arrays(links, {"x": np.ones(3, np.float32)})

    first = linked(act)[0]
    assert isinstance(first, FusecError)
    assert not str(first).startswith("internal")


# --- who may join --------------------------------------------------------------------------------

SEVERAL = [
    Ranks(0, 4, 0, 2, "node0", 29500, "torchrun"),
    Ranks(0, 4, 0, 0, "node0", 29500, "PMI"),
]
ONE = [
    Ranks(0, 4, 0, 4, "node0", 29500, "torchrun"),
    Ranks(0, 4, 0, 0, LOCAL, 29500, "PMI"),
    Ranks(0, 4, 0, 0, "localhost", 29500, "Slurm"),
    Ranks(0, 2, 0, 2, LOCAL, 29500, "fusec", TOKEN),
]


@pytest.mark.parametrize("ranks", SEVERAL)
def test_several_hosts_need_a_token(ranks: Ranks) -> None:
    with pytest.raises(FusecError, match="FUSEC_RANK_TOKEN is not set") as caught:
        meet(ranks, 0.5)
    assert "openssl rand" in str(caught.value)
    check_token(Ranks(**{**vars(ranks), "token": TOKEN}))


@pytest.mark.parametrize("ranks", ONE)
def test_without_a_token_ranks_listen_on_loopback_alone(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = list[str]()
    create = socket.create_server

    class Heard(Exception):
        pass

    def note(address: tuple[str, int], **options: Any) -> socket.socket:
        listening.append(address[0])
        if len(listening) > 1 or ranks.launched:
            raise Heard
        return create(address, **options)

    monkeypatch.setattr(socket, "create_server", note)
    with pytest.raises(Heard):
        meet(ranks, 0.5)
    assert set(listening) == {LOCAL}
    assert ranks.address == LOCAL
