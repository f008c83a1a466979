"""Bandwidth and latency of collectives over the links between local GPUs, one rank per GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fusec.bench.graph import captured
from fusec.commands.running.launch import JSON, launch
from fusec.commands.terminal.diagnose import Report
from fusec.dataclasses import asdict, dataclass, field, replace
from fusec.diagnostics import EnvironmentProblem
from fusec.foreign import decoding, not_a, read_json
from fusec.hostir.instructions import Collective, Receive, Send, Share, Unshare
from fusec.ir.dim import dim
from fusec.ir.dtype import F32
from fusec.ops.communication import PEER_VIEWS
from fusec.run.device import Device
from fusec.run.distributed.links import Links
from fusec.run.distributed.ranks import Ranks, timeout
from fusec.run.distributed.rendezvous import meet
from fusec.run.operations import issue_all
from fusec.run.transports.choice import GpuTransport, device_of
from fusec.run.transports.nccl import nccl_problem
from fusec.run.transports.protocol import Begin, DeviceMemory, DeviceTransport, Exchange
from fusec.schedule.host.communication import bytes_sent
from fusec.schedule.host.pushed_sums import PUSHED_SLICES, PUSHED_SUM, most_added
from fusec.target import Target
from fusec.target.table import Link

SMALL, LARGE = 1 << 12, 1 << 28
"""Bytes per rank: few enough that only latency counts, and enough that only bandwidth does."""
BATCH, TIMES = 20, 3
"""Number of collectives started back to back per measurement, and number of measurements."""
REDUCING = ("reduce_scatter", "all_reduce")
AXIS = "ranks"
UNKNOWN = Link(1.0, 0.0)
"""A link without known properties."""
FOUND = "links.json"


def links_problem(gpus: int) -> str | None:
    """Return why links cannot be measured, or None."""
    return "there is one GPU" if gpus < 2 else nccl_problem()


def links_by_ranks(place: Path, gpus: int) -> dict[str, Link]:
    """Start one rank per GPU to measure together; EnvironmentProblem if one fails."""
    path = place / FOUND
    path.unlink(missing_ok=True)
    report = Report()
    code = launch(["doctor", "--measure", str(place), JSON], gpus, None, report)
    if code or not path.is_file():
        notes = [problem.message for problem in report.diagnostics]
        raise EnvironmentProblem(f"the {gpus} ranks that measure links failed", notes=notes)
    given: dict[str, dict[str, float]] = read_json(path, "a file of link rates")
    path.unlink()
    with decoding(not_a(path, "a file of link rates")):
        return {kind: Link(**values) for kind, values in given.items()}


def measure_as_rank(ranks: Ranks, place: Path, target: Callable[[Device], Target]) -> int:
    """Measure together with the other ranks; the first of them writes the results."""
    with meet(ranks, timeout()) as links, Device(device_of(links)) as device:
        links.phase("measuring links", 3 * links.timeout)
        transport = GpuTransport(links, device)
        probes = Probes(links, transport, device)
        try:
            known = target(device)
            found = {
                # The bandwidth of peer reads in kernels cannot be measured with collectives.
                kind: replace(link, latency=probes.barriers()) if kind == PEER_VIEWS.name
                # Two GPUs send no slices, nor do more of them few bytes, which tell the latency.
                else link if kind == PUSHED_SLICES
                else probes.link(kind, known.link, link)
                for kind, link in known.links.items()
            }  # fmt: skip
        finally:
            transport.close()
            probes.free()
        if not links.rank:
            path = place / FOUND
            path.write_text(json.dumps({kind: asdict(link) for kind, link in found.items()}))
    return 0


@dataclass(frozen=True)
class Probes:
    """Times collectives among all ranks; each rank makes the same calls.

    Other ranks map the buffers until the transport is closed, so call `free` after that.
    """

    links: Links
    transport: DeviceTransport
    device: Any
    clock: Callable[[], float] = time.perf_counter
    _allocated: list[int] = field(default_factory=list[int])

    def link(self, kind: str, rate: float, known: Link = UNKNOWN) -> Link:
        """Return the properties of a kind of collective over links of so many bytes per second.

        known: a link that provides contention and serial latency, which are not measured.
        """
        ranks = self.links.size
        large = most_added(kind, ranks) if kind == PUSHED_SUM else LARGE
        latency, seconds = (self.seconds(kind, given) for given in (SMALL, large))
        # A rank's own slice in a loop is not sent; here each goes to another rank.
        slices = kind in ("receive_slice", "send_slice")
        more = large - SMALL  # the time of the small transfer is part of the latency
        sent = more if slices else bytes_sent(kind, ranks, more)
        peers = 1 if slices else ranks - 1
        reached = known.slowdown(peers) * sent / max(seconds - latency, seconds / 2) / rate
        of_one = max(latency - known.least(peers) + known.latency, latency / peers)
        return replace(
            known, latency=float(f"{of_one:.3g}"), reach=round(min(1.0, reached), 3),
            serial=min(known.serial, float(f"{of_one:.3g}")),
        )  # fmt: skip

    def barriers(self) -> float:
        """Return how long it takes the slowest rank to share memory and to release it."""
        group, own = tuple(range(self.links.size)), self.links.rank
        source = self._allocate(SMALL, "what is shared")
        shared = DeviceMemory(source, SMALL // F32.size, F32, int(self.device.stream))
        views = tuple(f"view {place}" for place in group)
        exchanges = Share("source", views, AXIS), Unshare("source", views, AXIS)
        begins = [Begin(each, None, shared, group, own) for each in exchanges]
        self.transport.prepare(begins)
        best = self._best(begins, waits=False)
        found: list[float] = self.links.gather(best, "times of barriers")
        return float(f"{max(found):.3g}")

    def seconds(self, kind: str, given: int) -> float:
        """Return the slowest rank's time for a collective with so many bytes per rank."""
        sizes = {"all_gather": given * self.links.size, "reduce_scatter": given // self.links.size}
        taken = sizes.get(kind, given)
        source = self._allocate(given, "what is sent")
        target = self._allocate(taken, "what is received")
        self.device.fill(source, 0, given)
        begins = list(self._begins(kind, (source, given), (target, taken)))
        self.transport.prepare(begins)
        best = self._best(begins)
        return max(self.links.gather(best, f"times of {kind}"))

    def free(self) -> None:
        """Free the memory of all measurements, which no rank maps any more."""
        while self._allocated:
            self.device.free(self._allocated.pop())

    def _allocate(self, size: int, what: str) -> int:
        address: int = self.device.allocate(size, what)
        self._allocated.append(address)
        return address

    def _best(self, begins: list[Begin], *, waits: bool = True) -> float:
        """Return the shortest time of a replay in seconds, so host time does not count."""

        def issue() -> None:
            for b in begins:
                issue_all(self.device, self.transport.begin_operations(b))
            if waits:
                # On the stream that starts the next one, since it resets the flags that peers
                # write.
                self.transport.wait("target", int(self.device.stream))

        with captured(self.device, issue) as replay:
            return min(self._seconds(replay) for _ in range(1 + TIMES))

    def _seconds(self, work: Callable[[], None]) -> float:
        """Return how long some work takes that all ranks start together, in seconds."""
        self.links.gather(0, "start of a measurement")
        start = self.clock()
        for _ in range(BATCH):
            work()
        self.device.synchronise("measuring links")
        return (self.clock() - start) / BATCH

    def _begins(
        self, kind: str, source: tuple[int, int], target: tuple[int, int]
    ) -> Iterator[Begin]:
        own, size = self.links.rank, self.links.size
        group = tuple(range(size))
        given, taken = (
            DeviceMemory(address, count // F32.size, F32, int(self.device.stream))
            for address, count in (source, target)
        )
        exchange: Exchange
        if kind not in ("receive_slice", "send_slice"):
            pushed = kind == PUSHED_SUM
            name = "all_reduce" if pushed else kind
            reduction = "sum" if name in REDUCING else ""
            exchange = Collective(name, "target", "source", AXIS, size, reduction)
            yield Begin(exchange, taken, given, group, own, waits_immediately=pushed)
            return
        exchange = Send("source", AXIS, dim((own + 1) % size))
        yield Begin(exchange, None, given, group, own)
        exchange = Receive("target", AXIS, dim((own - 1) % size))
        yield Begin(exchange, taken, None, group, own)
