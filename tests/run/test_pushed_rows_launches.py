"""Launches of kernels that add their rows, on GPUs whose streams run in any order they allow."""

from __future__ import annotations

from random import Random
from typing import Any

import fake_rows
import numpy as np
import pytest
from fake_gpus import Deadlock, FakeGpus
from streamed_programs import buffer
from test_gpu_transports import in_threads

from fusec.call.memory import Arena
from fusec.call.record import Record
from fusec.call.steps import LaunchStep
from fusec.hostir.instructions import Allocate, Collective, Launch, Pushed, Wait
from fusec.hostir.program import HostProgram
from fusec.ir.dim import dim
from fusec.ir.dtype import BF16, F32
from fusec.ir.sharding import Mesh
from fusec.run.distributed.exchange import Member
from fusec.run.distributed.links import Links, RankFailure
from fusec.run.execute import Executable
from fusec.run.transports import pushes
from fusec.run.transports.choice import GpuTransport
from fusec.run.transports.protocol import Begin, DeviceMemory, Joined
from fusec.schedule.host.pushed_sums import MOST_CHUNKS, VECTOR, most_added
from fusec.schedule.plan import TensorArgument

H = 64
PLAIN, PUSHED = f"doubled_{H}", f"doubled_pushed_{H}"


def program(ranks: int, rows: int, blocks: int = 256) -> HostProgram:
    """Return y = 2 (x of all ranks, added) + residual, and room for the sum."""
    buffers = (
        buffer("x", "input", rows, H), buffer("residual", "input", rows, H),
        buffer("y", "output", rows, H), buffer("total", "output", rows, H),
    )  # fmt: skip
    arguments = tuple(TensorArgument(n, F32, n == "y") for n in ("total", "residual", "y"))
    joined = Pushed(PUSHED, "x", "total", ("x", "residual", "y"), H, 128, blocks)
    grid = dim(rows), dim(1), dim(1)
    total = Collective("all_reduce", "total", "x", "mesh", ranks, "sum")
    body = (
        Allocate("y"), Allocate("total"), total, Wait("total"),
        Launch(PLAIN, "s1", grid, (128, 1, 1), arguments, pushed=joined),
    )  # fmt: skip
    return HostProgram("rows", buffers, (), body, ("y", "total"))


CUBINS = {PLAIN: b"", PUSHED: b""}


def issued(ranks: int, seed: int, blocks: int = 256, sms: int = 132, calls: int = 6) -> set[str]:
    """Assert what calls of programs return, one behind the other; return the kernels launched."""
    gpus, mesh = FakeGpus(ranks, Random(seed)), Mesh((("mesh", ranks),), tuple(range(ranks)))
    launched = set[str]()

    def work(links: Links) -> None:
        device: Any = gpus.devices[links.rank]
        device.facts.sms = sms
        first = GpuTransport(links, device)
        made = list[tuple[int, Record]]()
        arena = Arena(device, device.stream)
        for rows in (1, 5, 8):
            member = Member(mesh, links.rank, first.another(f"{rows}"))
            executable = Executable(device, program(ranks, rows, blocks), CUBINS).among(member)
            made.append((rows, Record(executable, {}, arena)))
        launched.update(s.name for _, r in made for s in r.steps if isinstance(s, LaunchStep))
        found = list[tuple[int, int, int]]()
        for call in range(calls):
            rows, record = made[call % 3]
            size = rows * H * 4
            x, other, y, total = (device.allocate(size, n) for n in "xryt")
            device.upload(x, np.full((rows, H), links.rank + 10 * call, np.float32))
            device.upload(other, np.arange(rows * H, dtype=np.float32))
            record.issue([x, other, y, total], {})
            found.append((y, rows, size))
        links.until(device.is_done, "the end of the calls")
        links.gather(None, "all have done")
        for call, (y, rows, size) in enumerate(found):
            values = device.download(y, size).view(np.float32)
            total = sum(r + 10 * call for r in range(ranks))
            np.testing.assert_array_equal(values, 2 * total + np.arange(rows * H))

    in_threads(ranks, work)
    return launched


@pytest.mark.parametrize("ranks", [3, 4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_one_launch_takes_the_place_of_sum_and_kernel(ranks: int, seed: int) -> None:
    assert issued(ranks, seed) == {PUSHED}


@pytest.mark.parametrize("lacking", ["SMs", "flags"])
def test_otherwise_both_are_launched(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not all blocks run at once, or a block would take more rows than it has flags."""
    monkeypatch.setattr("fusec.schedule.host.pushed_sums.MOST_CHUNKS", 4)
    found = issued(3, 0, **({"sms": 0} if lacking == "SMs" else {"blocks": 1}))
    assert {PLAIN} <= found
    assert (PUSHED in found) == (lacking == "flags")  # of one row


@pytest.mark.parametrize("early", ["parts", "results"])
def test_the_stand_in_finds_rows_that_do_not_wait(
    early: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_rows, "EARLY", [early])

    def in_many_orders() -> None:
        for seed in range(20):
            issued(3, seed)

    with pytest.raises((AssertionError, RankFailure, Deadlock)):
        in_many_orders()


def test_a_bound_program_launches_once() -> None:
    ranks, rows = 3, 5
    gpus, mesh = FakeGpus(ranks), Mesh((("mesh", ranks),), tuple(range(ranks)))

    def work(links: Links) -> tuple[list[str], bool]:
        device: Any = gpus.devices[links.rank]
        transport = GpuTransport(links, device)
        member = Member(mesh, links.rank, transport)
        executable = Executable(device, program(ranks, rows), CUBINS, member)
        x = np.full((rows, H), links.rank + 1, np.float32)
        inputs = {"x": x, "residual": np.ones((rows, H), np.float32)}
        with executable.bind(inputs, {}) as bound:
            bound.reset()
            bound.run()
            links.until(device.is_done, "the end of the run")
            links.gather(None, "all have done")
            is_right = bool((bound.outputs()["y"] == 13).all())
            kinds = [type(s.instruction).__name__ for s in bound.steps]
            links.gather(None, "all have read")
            transport.close()
        return kinds, is_right

    for kinds, is_right in in_threads(ranks, work):
        assert is_right
        assert "Launch" not in kinds


@pytest.mark.parametrize("ranks", range(3, 9))
@pytest.mark.parametrize("columns", [24, 32, 40, 64, 72, 264, 8192])
def test_mailboxes_have_room_for_rows_and_parts(ranks: int, columns: int) -> None:
    """Each block has a flag for each of its rows, and the half of a mailbox holds all."""
    vectors = columns * 2 // VECTOR
    assert vectors >= ranks or columns < 64  # such rows have no part for each rank
    for rows in (1, 7, 64, 512, 10**4) if vectors >= ranks else ():
        memory = DeviceMemory(0, rows * columns, BF16, 0)
        joined = Joined("k", None, (), columns, 128, 256, 1)
        exchange = Collective("all_reduce", "z", "x", "mesh", ranks, "sum")
        begin = Begin(exchange, memory, memory, tuple(range(ranks)), 0, True, joined=joined)
        if not pushes.joins(begin, joined):
            assert memory.size > most_added("pushed_slices", ranks) or rows > 256 * MOST_CHUNKS
            continue
        part = -(-vectors // ranks)
        needed = VECTOR * rows * (vectors + (ranks - 1) * part)
        assert needed <= (ranks - 1) * pushes._capacity(begin)
        blocks = pushes._blocks_of_rows(begin, joined)
        assert blocks <= 256
        assert -(-rows // blocks) <= MOST_CHUNKS
