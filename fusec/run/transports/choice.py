"""The transport of GPUs: each exchange goes by what carries it best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fusec.diagnostics import EnvironmentProblem, InternalError
from fusec.run.device import Device, load_driver
from fusec.run.links import Links
from fusec.run.transports.carriers import NCCL, PEERS, Carrier, carrier_of, kind_of
from fusec.run.transports.nccl import NcclTransport
from fusec.run.transports.peers import PeerTransport
from fusec.run.transports.protocol import Begin, Exchange


def device_of(links: Links) -> int:
    """Return the number of this rank's GPU: its place on the host, or 0 where it sees but one.

    EnvironmentProblem where it sees fewer than the host has ranks, and more than one.
    """
    driver = load_driver()
    driver.cuInit(0)
    _, count = driver.cuDeviceGetCount()
    ranks = links.hosts.count(links.hosts[links.rank])
    if 1 < count < ranks:
        raise EnvironmentProblem(f"{ranks} ranks are on a host that has {count} GPUs")
    return links.local_rank if count > 1 else 0


def reachable(links: Links, device: Device) -> list[set[int]]:
    """Return for each rank those whose memory its GPU reaches, its own among them.

    EnvironmentProblem where two ranks use one GPU.
    """
    driver = device.driver
    own = device.call("cuDeviceGet", device.index)
    named = bytes(device.call("cuDeviceGetUuid", own).bytes).hex()
    names: list[str] = links.gather(named, "names of GPUs")
    for rank, name in enumerate(names):
        first = names.index(name)
        if first != rank:
            raise EnvironmentProblem(
                f"ranks {first} and {rank} use the same GPU",
                help="as many ranks on a host as it has GPUs, or --device reference",
            )
    seen: dict[str, Any] = {}
    for number in range(device.count):
        other = device.call("cuDeviceGet", number)
        seen[bytes(device.call("cuDeviceGetUuid", other).bytes).hex()] = other

    def reaches(name: str) -> bool:
        if name not in seen:
            return False
        status, can = driver.cuDeviceCanAccessPeer(own, seen[name])
        return not int(status) and bool(can)

    row = [rank for rank, name in enumerate(names) if rank == links.rank or reaches(name)]
    return [set(ranks) for ranks in links.gather(row, "reach of GPUs")]


class GpuTransport:
    """Gives each exchange to the transport that carries it; NCCL starts where it is needed."""

    def __init__(self, links: Links, device: Device) -> None:
        """Find out which GPUs reach one another; EnvironmentProblem where two ranks share one."""
        self._links, self._device = links, device
        self._access = reachable(links, device)
        self._peers = PeerTransport(links, device)
        self._nccl: NcclTransport | None = None

    def carrier(self, exchange: Exchange, group: tuple[int, ...]) -> Carrier:
        """Return what carries an exchange in a group of ranks."""
        access = all(b in self._access[a] for a in group for b in group)
        one_host = self._links.on_host(group)
        return carrier_of(kind_of(exchange), one_host=one_host, access=access)

    def prepare(self, exchanges: Sequence[Begin]) -> None:
        """Prepare what any rank needs, on all ranks alike."""
        carriers = [self.carrier(b.exchange, b.group).name for b in exchanges]
        wanted = self._links.gather([NCCL in carriers, PEERS in carriers], "choice of transports")
        if any(nccl for nccl, _ in wanted):
            if self._nccl is None:
                self._nccl = NcclTransport(self._links, self._device)
            # A group's communicator is split off by all ranks, whoever carries their own exchange.
            self._nccl.prepare(exchanges)
        if any(peers for _, peers in wanted):
            own = zip(exchanges, carriers, strict=True)
            self._peers.prepare([b for b, carrier in own if carrier == PEERS])

    def begin(
        self, exchange: Exchange, target: Any, source: Any, group: tuple[int, ...], place: int
    ) -> None:
        """Begin an exchange by its transport."""
        if self.carrier(exchange, group).name == PEERS:
            self._peers.begin(exchange, target, source, group, place)
            return
        if self._nccl is None:
            raise InternalError(f"`{exchange}` was not prepared")
        self._nccl.begin(exchange, target, source, group, place)

    def wait(self, buffer: str, stream: int = 0) -> None:
        """Let a stream wait for what was begun with a buffer, whoever carries it."""
        self._peers.wait(buffer, stream)
        if self._nccl is not None:
            self._nccl.wait(buffer, stream)

    def until(self, done: Callable[[], bool], doing: str) -> None:
        """Return when something is done."""
        self._links.until(done, doing)

    def close(self) -> None:
        """Close both."""
        self._peers.close()
        if self._nccl is not None:
            self._nccl.close()
            self._nccl = None
