"""Host programs of several ranks on stand-ins of GPUs: streams, exchanges and flags together."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from fake_gpus import FakeGpus
from streamed_programs import buffer
from test_gpu_transports import in_threads

from fusec.diagnostics import FusecError
from fusec.hostir.instructions import (
    Alias,
    Allocate,
    Collective,
    Copy,
    For,
    Free,
    GetStream,
    Receive,
    Send,
    SetStream,
    Synchronize,
    Wait,
)
from fusec.hostir.program import HostProgram, check_program
from fusec.hostir.unroll import unroll
from fusec.ir.dim import dim, symbol
from fusec.ir.sharding import Mesh
from fusec.run.distributed.exchange import Member
from fusec.run.distributed.links import Links
from fusec.run.distributed.measure_together import measure_together
from fusec.run.execute import Executable
from fusec.run.transports.choice import GpuTransport

RANKS, B, H = 3, 2, 4
MESH = Mesh((("mesh", RANKS),), tuple(range(RANKS)))
GROUP = tuple(range(RANKS))
SEEN = 100
"""Orders within which what nothing waits for shows: threads take turns as they like."""


def ring(streams: int) -> HostProgram:
    """Return z = x of all ranks, by a loop in which each copies a part beside the exchange."""
    index, own = symbol("i"), symbol("mesh.place")
    place = (index + own) % RANKS
    body = (
        SetStream(index % streams + 1), Synchronize(symbol("outer")), Allocate("x_part"),
        Send("x", "mesh", (own - index) % RANKS), Receive("x_part", "mesh", place), Wait("x_part"),
        Alias("z_part", "z", place * (B * H)), Copy("z_part", "x_part"),
        Free("x_part"), SetStream(symbol("outer")),
    )  # fmt: skip
    joins = For("k", dim(streams), (Synchronize(symbol("k") + 1),))
    parts = [buffer("x_part", "temporary", B, H), buffer("z_part", "temporary", B, H)]
    buffers = (buffer("x", "input", B, H), buffer("z", "output", B * RANKS, H), *parts)
    loop = (Allocate("z"), GetStream("outer"), For("i", dim(RANKS), body), joins)
    made = HostProgram("ring", buffers, (), loop, ("z",))
    check_program(made)
    return made


def scattered(streams: int, *, joins: bool = True) -> HostProgram:
    """Return z = x of all ranks, by a loop in which each sends what one stream has computed.

    joins: whether exchanges begin behind that stream, and it behind what was exchanged before.
    """
    index, own = symbol("i"), symbol("mesh.place")
    kernels, on = dim(streams + 1), index % streams + 1
    after = (Synchronize(kernels),) if joins else ()
    body = (
        SetStream(kernels), Synchronize(symbol("outer")), *((Synchronize(on),) if joins else ()),
        Alias("p", "p.slices", (index % streams) * (B * H)), Copy("p", "x"),
        Alias("z_part", "z", (own - index - 1) % RANKS * (B * H)), SetStream(on), *after,
        Send("p", "mesh", (index + own + 1) % RANKS),
        Receive("z_part", "mesh", (own - index - 1) % RANKS), Wait("z_part"), *after,
        SetStream(symbol("outer")),
    )  # fmt: skip
    last = For("k", dim(streams), (Synchronize(symbol("k") + 1),))
    parts = [buffer("p", "temporary", B, H), buffer("z_part", "temporary", B, H)]
    slices = buffer("p.slices", "temporary", streams, B, H)
    buffers = (buffer("x", "input", B, H), buffer("z", "output", B * RANKS, H), slices, *parts)
    loop = (Allocate("z"), Allocate("p.slices"), GetStream("outer"), For("i", dim(RANKS), body))
    return HostProgram("scattered", buffers, (), (*loop, last, Free("p.slices")), ("z",))


def gathered(*, waits: bool = True) -> HostProgram:
    """Return z = x of all ranks, by one exchange."""
    buffers = (buffer("x", "input", B, H), buffer("z", "output", B * RANKS, H))
    body = (Allocate("z"), Collective("all_gather", "z", "x", "mesh", RANKS))
    last = (Wait("z"),) if waits else ()
    return HostProgram("gathered", buffers, (), (*body, *last), ("z",))


def run(program: HostProgram, seed: int, runs: int = 2) -> list[list[np.ndarray]]:
    """Return what each rank has in z after each run."""
    gpus = FakeGpus(RANKS, Random(seed))

    def work(links: Links) -> list[np.ndarray]:
        device: Any = gpus.devices[links.rank]
        transport = GpuTransport(links, device)
        member = Member(MESH, links.rank, transport)
        x = np.full((B, H), links.rank + 1, np.float32)
        found = list[np.ndarray]()
        with Executable(device, program, {}, member).bind({"x": x}, {}) as bound:
            for _ in range(runs):
                bound.reset()
                bound.run()
                transport.until(device.is_done, "the end of the run")
                found.append(bound.outputs()["z"].copy())
            assert measure_together(bound, transport, links, 2) == 0.0005
            transport.close()
        return found

    return in_threads(RANKS, work)


RIGHT = np.repeat(np.arange(1, RANKS + 1, dtype=np.float32), B)[:, None] * np.ones(H, np.float32)


def check(program: HostProgram, seeds: int) -> None:
    for seed in range(seeds):
        for found in run(program, seed):
            for z in found:
                np.testing.assert_array_equal(z, RIGHT)


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_a_ring_on_streams_is_right_in_every_order(streams: int) -> None:
    check(ring(streams), 4)


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_a_loop_that_sends_is_right_in_every_order(streams: int) -> None:
    made = scattered(streams)
    check_program(made)
    flat = unroll(made, {"mesh.place": 0})
    assert sum(isinstance(i, Send) for i in flat.instructions) == RANKS - 1
    check(made, 4)


def test_an_exchange_that_begins_before_its_kernel_shows() -> None:
    with pytest.raises((AssertionError, FusecError)):
        check(scattered(2, joins=False), SEEN)


def test_one_exchange_is_right_and_shows_where_nothing_waits_for_it() -> None:
    check(gathered(), 1)
    with pytest.raises((AssertionError, FusecError)):
        check(gathered(waits=False), SEEN)
