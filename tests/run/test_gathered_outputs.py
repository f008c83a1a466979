"""Outputs that NCCL gathers into the caller's memory, where copies from several GPUs are slow."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from fake_gpus import FakeGpus
from streamed_programs import buffer
from test_gpu_transports import Make, in_threads, nccl  # noqa: F401

from fusec.call.memory import Arena
from fusec.call.record import Record
from fusec.call.steps import Step
from fusec.hostir.instructions import Allocate, Collective, Copy, Wait
from fusec.hostir.program import HostProgram
from fusec.ir.sharding import Mesh
from fusec.run.distributed.exchange import Member
from fusec.run.distributed.links import Links
from fusec.run.execute import Executable
from fusec.run.operations import NcclCall
from fusec.run.transports.choice import GpuTransport
from fusec.schedule import gathered_outputs

H = 16


def program(ranks: int, rows: int, *, is_output: bool = True) -> HostProgram:
    """Return the rows of all ranks, or a copy of them."""
    x, y = buffer("x", "input", rows, H), buffer("y", "output", ranks * rows, H)
    z = buffer("z", "output", ranks * rows, H)
    gather = Allocate("y"), Collective("all_gather", "y", "x", "mesh", ranks), Wait("y")
    if is_output:
        return HostProgram("rows", (x, y), (), gather, ("y",))
    return HostProgram("rows", (x, y, z), (), (*gather, Allocate("z"), Copy("z", "y")), ("z",))


def steps_of(
    ranks: int, rows: int, make: Make, *, is_output: bool = True, with_nccl: bool = True
) -> list[Step]:
    """Assert what a call returns; return the steps of rank 0."""
    gpus, mesh = FakeGpus(ranks, Random(rows)), Mesh((("mesh", ranks),), tuple(range(ranks)))

    def work(links: Links) -> list[Step]:
        device: Any = gpus.devices[links.rank]
        make(links, device)  # what stands in for the library on this thread
        transport = GpuTransport(links, device)
        transport.has_nccl = with_nccl
        executable = Executable(device, program(ranks, rows, is_output=is_output), {})
        member = Member(mesh, links.rank, transport)
        record = Record(executable.among(member), {}, Arena(device, device.stream))
        size = rows * H * 4
        x, *made = (device.allocate(size * ranks, n) for n in ("xy" if is_output else "xyz"))
        device.upload(x, np.full((rows, H), links.rank, np.float32))
        record.issue([x, *made][: len(record.memory.inputs) + len(record.memory.fresh)], {})
        links.until(device.is_done, "the end of the call")
        links.gather(None, "all have done")
        found = device.download(made[0], size * ranks).view(np.float32)
        wanted = np.repeat(np.arange(ranks, dtype=np.float32), rows * H)
        np.testing.assert_array_equal(found, wanted)
        return record.steps

    return in_threads(ranks, work)[0]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_nccl_gathers_many_bytes_of_three_and_more_ranks(
    ranks: int,
    monkeypatch: pytest.MonkeyPatch,
    nccl: Make,  # noqa: F811
) -> None:
    """In one call without a copy; copy engines gather what is less, or not the caller's."""
    monkeypatch.setattr(gathered_outputs, "NCCL_GATHERS", 4 * H * ranks * 8)

    def by_nccl(rows: int, **given: bool) -> bool:
        steps = steps_of(ranks, rows, nccl, **given)
        calls = [s for s in steps if isinstance(s, NcclCall)]
        assert not calls or steps == calls
        return bool(calls)

    assert by_nccl(8) == (ranks > 2)
    assert not by_nccl(7)
    assert not by_nccl(8, with_nccl=False)
    assert not by_nccl(8, is_output=False)
