"""Barriers between ranks, and memory that is read where it lies: what goes wrong without them."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import fake_barrier
import numpy as np
import pytest
import rank_processes
from fake_gpus import FakeGpu, FakeGpus
from fake_nccl import FakeNccl
from streamed_programs import buffer
from test_gpu_transports import in_threads

from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Copy,
    Free,
    Instruction,
    Share,
    Unshare,
)
from fusec.hostir.program import HostProgram, check_program
from fusec.ir.dim import dim
from fusec.ir.sharding import Mesh
from fusec.run.distributed.exchange import Member
from fusec.run.distributed.links import Links, RankFailure
from fusec.run.execute import Executable
from fusec.run.interpret import interpret
from fusec.run.operations import Flag, FlagOperations, Operation
from fusec.run.transports.barriers import Barriers
from fusec.run.transports.choice import GpuTransport
from fusec.run.transports.host import HostTransport
from fusec.run.transports.peers import PeerTransport
from fusec.run.transports.protocol import Begin
from fusec.run.transports.reads import HostReads

B, H = 2, 4


# The barriers. z has the blocks of all ranks: each is copied out of that rank's memory.


def gathering(ranks: int, axis: str = "m", *, twice: bool = False) -> HostProgram:
    """Return z = x of all ranks in order of place, with x copied into memory that is shared.

    twice: x is copied there once more after all have read it, as the next run would.
    """
    views = tuple(f"v{k}" for k in range(ranks))
    small = [buffer(n, "temporary", B, H) for n in ("s", *views, *(f"z{k}" for k in range(ranks)))]
    buffers = (
        buffer("x", "input", B, H), *([buffer("y", "input", B, H)] if twice else []),
        buffer("z", "output", B * ranks, H), *small,
    )  # fmt: skip
    parts = [Alias(f"z{k}", "z", dim(k * B * H)) for k in range(ranks)]
    copies = [Copy(f"z{k}", name) for k, name in enumerate(views)]
    body: list[Instruction] = [
        Allocate("z"), *parts, Allocate("s"), Copy("s", "x"), Share("s", views, axis), *copies,
        Unshare("s", views, axis), *([Copy("s", "y")] if twice else []), Free("s"),
    ]  # fmt: skip
    made = HostProgram("gathering", buffers, (), tuple(body), ("z",))
    check_program(made)
    return made


def blocks(rank: int) -> dict[str, np.ndarray]:
    x = np.full((B, H), rank + 1, np.float32)
    return {"x": x, "y": -x}


def right(ranks: int) -> np.ndarray:
    return np.concatenate([blocks(rank)["x"] for rank in range(ranks)])


def interpreted(
    ranks: int, folder: Path, transport: Callable[[Links], Any] = HostTransport, slow: int = -1
) -> list[np.ndarray]:
    """Return z of each rank, a process; the slow one is late wherever it writes or reads."""
    program, mesh = gathering(ranks, twice=True), Mesh((("m", ranks),), tuple(range(ranks)))

    def work(links: Links) -> np.ndarray:
        made = transport(links)
        member, prepare = Member(mesh, links.rank, made), made.prepare

        def wait(*_: Any) -> None:
            time.sleep(0.05 if links.rank == slow else 0.0)

        def prepared(exchanges: Any) -> None:
            prepare(exchanges)
            links.gather(None, "start of the test")
            wait()

        made.prepare = prepared
        found = interpret(program, {}, blocks(links.rank), {}, member, observe=wait)["z"]
        links.gather(None, "end of the test")
        return found

    return rank_processes.run(ranks, work, folder)


@pytest.mark.parametrize("ranks", [2, 4])
def test_processes_read_what_others_have(ranks: int, tmp_path: Path) -> None:
    for z in interpreted(ranks, tmp_path):
        np.testing.assert_array_equal(z, right(ranks))


@pytest.mark.parametrize("left_out", [Share, Unshare])
def test_a_slow_rank_shows_a_barrier_that_is_left_out(left_out: type, tmp_path: Path) -> None:
    """Before it what is read is not yet written; behind it, it is written again."""

    class Hasty(HostReads):
        def meet(self, exchange: Any, group: tuple[int, ...]) -> None:
            if not isinstance(exchange, left_out):
                super().meet(exchange, group)

    def hasty(links: Links) -> HostTransport:
        made = HostTransport(links)
        made._reads = Hasty(links)
        return made

    # Without the first nobody waits for the slow one; without the second it waits for nobody.
    slow = 1 if left_out is Share else 0
    found = interpreted(2, tmp_path, hasty, slow)
    assert any(not np.array_equal(z, right(2)) for z in found)


def test_swapped_ranks_show(tmp_path: Path) -> None:
    class Swapped(HostTransport):
        def view(self, buffer: str, place: int) -> Any:
            return super().view(buffer, 1 - place)

    assert not np.array_equal(interpreted(2, tmp_path, Swapped)[0], right(2))


def test_what_a_rank_does_not_share_is_named(tmp_path: Path) -> None:
    def work(links: Links) -> str:
        transport = HostTransport(links)
        x = np.zeros(4, np.float32)
        name = "s" if links.rank else "other"
        transport.prepare([Begin(Share(name, ("a", "b"), "m"), None, x, (0, 1), links.rank)])
        links.gather(None, "start")
        try:
            transport.view(name, 1 - links.rank)
        except Exception as error:
            return str(error)
        finally:
            links.gather(None, "end")
        return ""

    found = rank_processes.run(2, work, tmp_path)
    assert "rank 1 does not share `other`" in found[0]


@pytest.mark.parametrize(
    ("how", "message"),
    [(signal.SIGKILL, "rank 1 died"), (signal.SIGSTOP, "rank 1 is stopped")],
)
def test_a_rank_that_is_lost_while_others_read_is_named(
    how: int, message: str, tmp_path: Path
) -> None:
    """More than sockets hold, so that who answers waits, too."""

    def work(links: Links) -> None:
        transport, source = HostTransport(links), np.full(1 << 21, links.rank, np.float32)
        exchanges = Share("s", ("a", "b", "c"), "m"), Unshare("s", ("a", "b", "c"), "m")
        begins = [Begin(each, None, source, (0, 1, 2), links.rank) for each in exchanges]
        transport.prepare(begins)
        for step in range(100000):
            transport.begin(exchanges[0], None, source, (0, 1, 2), links.rank)
            if links.rank == 1 and step == 2:
                os.kill(os.getpid(), how)
            for place in range(3):
                assert transport.view("s", place)[-1] == place
            transport.begin(exchanges[1], None, source, (0, 1, 2), links.rank)

    processes = rank_processes.start(3, work, tmp_path, 0.7)
    for process in (processes[0], processes[2]):
        process.join(20)
    processes[1].kill()
    found = rank_processes.results(processes, tmp_path)
    for error in (found[0], found[2]):
        assert isinstance(error, RankFailure)
        assert error.diagnostic.message == message
        assert any(doing in str(error) for doing in ("read s over m", "share s"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: [i for i in b if not isinstance(i, Unshare | Free)], "nothing waits for `share"),
        (lambda b: [i for i in b if not isinstance(i, Share)], "`v0`, which has no memory"),
        (lambda b: [*b[:-2], Copy("s", "x"), *b[-2:]], "does not wait for `share s"),
        (lambda b: [*b[:-2], Copy("v0", "x"), *b[-2:]], "the memory of another rank"),
        (lambda b: [*b[:-2], Free("s"), *b[-2:]], "does not wait for `share s"),
        (lambda b: [*b[:-1], Copy("z0", "v0"), b[-1]], "`v0`, which has no memory"),
        (lambda b: [*b[:-1], b[-2], b[-1]], "ends nothing that is shared"),
    ],
)
def test_programs_that_share_wrongly_are_refused(change: Any, message: str) -> None:
    program = gathering(2)
    wrong = HostProgram("w", program.buffers, (), tuple(change(program.instructions)), ("z",))
    with pytest.raises(Exception, match=message):
        check_program(wrong)


# On GPUs, whose streams run in any order that they allow.


def on_gpus(
    ranks: int, seed: int, *, access: bool = True, builds: bool = True, runs: int = 3
) -> list[list[np.ndarray]]:
    """Return z of each rank after each of several runs, issued one behind the other."""
    gpus = FakeGpus(ranks, Random(seed))
    mesh = Mesh((("m", ranks),), tuple(range(ranks)))
    program = gathering(ranks, twice=True)

    def work(links: Links) -> list[np.ndarray]:
        device: Any = gpus.devices[links.rank]
        transport = GpuTransport(links, device)
        if not access:
            transport._shared.access = [{rank} for rank in range(ranks)]
        if not builds:
            transport._shared.kernels = transport._shared.pushes = None
        member = Member(mesh, links.rank, transport)
        found = list[np.ndarray]()
        with Executable(device, program, {}, member).bind(blocks(links.rank), {}) as bound:
            for _ in range(runs):
                bound.reset()
                bound.run()
                transport.until(device.is_done, "the end of the run")
                found.append(bound.outputs()["z"].copy())
            for _ in range(runs):
                bound.run()
            transport.until(device.is_done, "the end of the runs")
            found.append(bound.outputs()["z"].copy())
            links.gather(None, "all have done")
            transport.close()
        return found

    return in_threads(ranks, work)


def check_on_gpus(ranks: int, seeds: int) -> None:
    for seed in range(seeds):
        for found in on_gpus(ranks, seed):
            for z in found:
                np.testing.assert_array_equal(z, right(ranks))


@pytest.mark.parametrize("ranks", [2, 3])
def test_gpus_read_in_every_order_of_streams(ranks: int) -> None:
    check_on_gpus(ranks, 4)


def test_operations_are_laid_out_as_the_driver_takes_them() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    device: Any = SimpleNamespace(driver=driver)
    flags = (Flag(waits, 0x1122334455667788, 1) for waits in (False, True))
    made = FlagOperations.of(device, 0, flags).batch
    # operation, address, value, flags: of a wait that the value is equal
    for kind, flags, operation in zip((2, 1), (0, 1), made, strict=True):
        raw = ctypes.string_at(operation.getPtr(), 32)
        assert struct.unpack("<QQQQ", raw) == (kind, 0x1122334455667788, 1, flags)


def test_barriers_at_which_nobody_waits_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_barrier, "WAITS", False)
    with pytest.raises(AssertionError):
        check_on_gpus(2, 12)


@pytest.mark.parametrize("left_out", [Share, Unshare])
def test_either_barrier_that_is_left_out_shows_on_gpus(
    left_out: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations = PeerTransport.begin_operations

    def without(self: PeerTransport, begin: Begin) -> list[Operation]:
        made = operations(self, begin)
        return [] if isinstance(begin.exchange, left_out) else made

    monkeypatch.setattr(PeerTransport, "begin_operations", without)
    with pytest.raises(AssertionError):
        check_on_gpus(2, 12)


def test_a_barrier_is_one_launch_without_stream_memory_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(FakeGpu, "_cuStreamBatchMemOp")
    check_on_gpus(2, 1)


def test_views_of_swapped_places_show(monkeypatch: pytest.MonkeyPatch) -> None:
    view = Barriers.view
    monkeypatch.setattr(Barriers, "view", lambda self, name, place: view(self, name, 1 - place))
    assert not np.array_equal(on_gpus(2, 0)[0][0], right(2))


@pytest.mark.parametrize("given", [{"access": False}, {"builds": False}])
def test_where_memory_cannot_be_read_nccl_gathers(
    given: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is out of reach, or no kernel of barriers can be built."""
    made: dict[Any, FakeNccl] = {}
    lock, local = threading.Lock(), threading.local()
    monkeypatch.setattr("fusec.run.transports.nccl._module", lambda name: local.nccl.module(name))
    start = GpuTransport.prepare

    def prepare(self: GpuTransport, exchanges: Any) -> None:
        gpus: Any = self._device
        with lock:
            local.nccl = made.setdefault(gpus.gpus, FakeNccl(gpus.gpus))
        start(self, exchanges)

    monkeypatch.setattr(GpuTransport, "prepare", prepare)
    for found in on_gpus(2, 0, **given):
        for z in found:
            np.testing.assert_array_equal(z, right(2))
