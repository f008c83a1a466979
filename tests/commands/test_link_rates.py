"""Rates of links from the times of exchanges, by a transport whose rates are known."""

from __future__ import annotations

from contextlib import nullcontext
from random import Random
from typing import Any

import pytest
from fake_gpus import FakeGpus
from test_gpu_transports import in_threads

from fusec.commands.calibrate import as_toml
from fusec.commands.link_rates import Probes, links_problem
from fusec.hostir.instructions import Collective, Receive, Send, Share, Unshare
from fusec.run.distributed.links import Links
from fusec.run.transports.peers import PeerTransport
from fusec.run.transports.protocol import Begin
from fusec.schedule.host.communication import bytes_sent
from fusec.target import find
from fusec.target.table import Link

RANKS, RATE = 4, 1e11


class Paced:
    """A transport, a device and links of one rank, on whose clock exchanges take their time."""

    def __init__(self, link: Link) -> None:
        self.paces, self.now, self.prepared = link, 0.0, list[Begin]()
        self.live: set[int] = set()
        self.rank, self.size, self.stream = 1, RANKS, 5

    def gather(self, value: Any, doing: str) -> list[Any]:
        return [value] * self.size

    def allocate(self, size: int, what: str) -> int:
        self.live.add(len(self.live) + 1)
        return len(self.live)

    def free(self, address: int) -> None:
        self.live.remove(address)

    def fill(self, address: int, byte: int, size: int) -> None:
        assert address in self.live

    def synchronise(self, what: str) -> None:
        pass

    def prepare(self, exchanges: list[Begin]) -> None:
        self.prepared = exchanges

    def begin_operations(self, begin: Begin) -> list[Any]:
        exchange, target, source = begin.exchange, begin.target, begin.source
        self.do(exchange, target, source, begin.group, begin.place, pushed=begin.waits_immediately)
        return []

    def do(
        self, exchange: Any, target: Any, source: Any, group: Any, place: int, *, pushed: bool
    ) -> None:
        assert any(b.exchange is exchange for b in self.prepared)
        assert (group, place) == (tuple(range(RANKS)), self.rank)
        if isinstance(exchange, Share | Unshare):
            assert len(exchange.views) == RANKS
            self.now += self.paces.latency / 2
            return
        if isinstance(exchange, Receive):
            assert exchange.place == 0
            return
        sent = source.size
        if isinstance(exchange, Collective):
            sent = bytes_sent("pushed_sum" if pushed else exchange.kind, RANKS, source.size)
            blocks = {"all_gather": RANKS, "reduce_scatter": 1 / RANKS}
            assert target.size == source.size * blocks.get(exchange.kind, 1)
        else:
            assert isinstance(exchange, Send)
            assert exchange.place == 2
        self.now += self.paces.latency + sent / (RATE * self.paces.reach)

    def wait(self, buffer: str, stream: int) -> None:
        assert (buffer, stream) == ("target", self.stream)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let work run again instead of a graph of it, which the paced device has not."""
    module = "fusec.commands.link_rates.captured"
    monkeypatch.setattr(module, lambda _, issue: nullcontext(issue))


KINDS = [kind for kind in find("sm_90a").links if kind != "peer_views"]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("kind", KINDS)
def test_rates_turn_times_round(kind: str) -> None:
    paced: Any = Paced(Link(0.625, 1e-5))
    probes = Probes(paced, paced, paced, lambda: paced.now)
    found = probes.link(kind, RATE)
    assert found.reach == pytest.approx(0.625, rel=1e-3)
    assert found.latency == pytest.approx(1e-5, rel=0.02)
    probes.free()
    assert not paced.live


@pytest.mark.parametrize("kind", ["all_gather", "all_to_all", "receive_slice", "send_slice"])
@pytest.mark.parametrize("seed", range(3))
def test_probes_end_on_streams_that_wait_for_flags(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait on another stream than the next exchange's loses a flag, and its peer never ends."""
    monkeypatch.setattr("fusec.commands.link_rates.SMALL", 1 << 6)
    monkeypatch.setattr("fusec.commands.link_rates.LARGE", 1 << 10)
    ranks = 2
    gpus = FakeGpus(ranks, Random(seed))

    def work(links: Links) -> Link:
        device: Any = gpus.devices[links.rank]
        transport = PeerTransport(links, device)
        probes = Probes(links, transport, device)
        found = probes.link(kind, RATE)
        assert not device.graphs, "NCCL waits for graphs where it is closed"
        transport.close()
        probes.free()
        return found

    assert all(link.latency > 0 for link in in_threads(ranks, work))
    assert not any(d.mapped or d.blocks for d in gpus.devices)


@pytest.mark.usefixtures("eager")
def test_barriers_are_measured_in_pairs() -> None:
    paced: Any = Paced(Link(0.625, 1e-5))
    probes = Probes(paced, paced, paced, lambda: paced.now)
    assert probes.barriers() == pytest.approx(1e-5, rel=0.02)
    assert [type(b.exchange) for b in paced.prepared] == [Share, Unshare]
    probes.free()
    assert not paced.live


def test_links_are_measured_between_several_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert links_problem(1) == "there is one GPU"
    module = "fusec.commands.link_rates.nccl_problem"
    monkeypatch.setattr(module, lambda: "NCCL is not there")
    assert links_problem(2) == "NCCL is not there"
    monkeypatch.setattr(module, lambda: None)
    assert links_problem(2) is None


def test_target_files_hold_links() -> None:
    known = find("sm_90a")
    text = as_toml(known, "nothing")
    assert "link = 450000000000.0" in text
    assert "[links.all_gather]\nreach = 0.85\nlatency = 2.2e-05" in text
