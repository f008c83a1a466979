"""The GPU transport: selects the fastest transport for each communication operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fusec.dataclasses import dataclass, field, replace
from fusec.diagnostics import EnvironmentProblem, FusecError, InternalError
from fusec.hostir.instructions import Collective, Share, Unshare
from fusec.run.device import Device, gpu_of
from fusec.run.distributed.links import Links
from fusec.run.distributed.ranks import COMPILING
from fusec.run.operations import Operation, issue_all
from fusec.run.transports.barriers import MOST_BARRIER_RANKS
from fusec.run.transports.carriers import (
    NCCL,
    PEERS,
    PUSHES,
    READS,
    Carrier,
    carrier_of,
    kind_of,
)
from fusec.run.transports.kernels import TransportKernels, transport_kernels
from fusec.run.transports.nccl import NcclTransport, nccl_problem
from fusec.run.transports.peers import PeerTransport
from fusec.run.transports.protocol import Begin, DeviceMemory, Exchange
from fusec.run.transports.pushes import PushTransport, pushes
from fusec.run.transports.streams import SideStream
from fusec.schedule.gathered_outputs import GATHERED_OUTPUT
from fusec.schedule.host.pushed_sums import PUSHED_SUM


def device_of(links: Links) -> int:
    """Return the number of this rank's GPU, from its local rank among the connected ranks."""
    return gpu_of(links.local_rank, links.hosts.count(links.hosts[links.rank]))


def reachable(links: Links, device: Device) -> list[set[int]]:
    """Return for each rank the ranks whose memory its GPU can access, itself included.

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
                help="use at most one rank per GPU, or --device reference",
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


@dataclass
class _Shared:
    """State shared by the transports of a process: streams by rank, and NCCL if it is needed."""

    access: list[set[int]]
    kernels: TransportKernels | None
    pushes: PushTransport | None
    has_nccl: bool
    sides: dict[int, SideStream] = field(default_factory=dict[int, SideStream])
    nccl: NcclTransport | None = None


def _open_shared(links: Links, device: Device) -> _Shared:
    """Return what all transports of the process use; collective over all ranks."""
    access, kernels = reachable(links, device), transport_kernels(links, device)
    pushes = None if kernels is None else PushTransport(links, device, kernels)
    # It is selected only for three or more ranks, where copy engines could do the same.
    has_nccl = links.size > 2 and all(links.gather(nccl_problem() is None, "NCCL of ranks"))
    return _Shared(access, kernels, pushes, has_nccl)


class GpuTransport:
    """Dispatches each communication operation to a transport; starts NCCL on first use."""

    def __init__(self, links: Links, device: Device, sibling: GpuTransport | None = None) -> None:
        """Detect peer access between GPUs; EnvironmentProblem where two ranks share a GPU.

        sibling: the first transport of the process, used for another program; it is closed last.
        """
        self._links, self._device, self._first = links, device, sibling is None
        self._shared = _open_shared(links, device) if sibling is None else sibling._shared
        self._peers = PeerTransport(links, device, self._shared.sides, self._shared.kernels)
        self._gathered: dict[str, tuple[DeviceMemory, int]] = {}
        self.has_nccl = self._shared.has_nccl

    def another(self, program: str) -> GpuTransport:
        """Return a transport for another program; collective over all ranks.

        It waits for the slowest rank to compile. FusecError where a rank calls another program.
        """
        programs: list[str] = self._links.gather(program, "begin of calls", COMPILING)
        for rank, other in enumerate(programs):
            if other != program:
                raise FusecError(
                    f"rank {self._links.rank} calls {program}, rank {rank} calls {other}",
                    help="all ranks must call the same programs in the same order",
                )
        return GpuTransport(self._links, self._device, self)

    def carrier(self, begin: Begin) -> Carrier:
        """Return the transport of a communication operation."""
        if begin.by_nccl:
            return carrier_of(GATHERED_OUTPUT)
        group = begin.group
        access = all(b in self._shared.access[a] for a in group for b in group)
        pushed = self._shared.pushes is not None and pushes(begin)
        kind = PUSHED_SUM if pushed else kind_of(begin.exchange)
        one_host = self._links.on_host(group)
        barriers = self._shared.kernels is not None and len(group) <= MOST_BARRIER_RANKS
        return carrier_of(kind, one_host=one_host, access=access, barriers=barriers)

    def prepare(self, exchanges: Sequence[Begin]) -> None:
        """Prepare everything that any rank needs; collective over all ranks."""
        self._free_gathered()
        carriers = [self.carrier(b).name for b in exchanges]
        by_peers = [c in (PEERS, READS) for c in carriers]
        own_wants = [NCCL in carriers, any(by_peers), PUSHES in carriers]
        wanted = self._links.gather(own_wants, "choice of transports")
        if any(nccl for nccl, _, _ in wanted):
            if self._shared.nccl is None:
                self._shared.nccl = NcclTransport(self._links, self._device)
            # All ranks take part in splitting off a group's communicator, even those that do not
            # use it.
            self._shared.nccl.prepare(exchanges)
        if self._shared.pushes is not None and any(pushed for _, _, pushed in wanted):
            pairs = zip(exchanges, carriers, strict=True)
            self._shared.pushes.prepare([b for b, carrier in pairs if carrier == PUSHES])
        if any(peers for _, peers, _ in wanted):
            own = zip(exchanges, by_peers, strict=True)
            self._peers.prepare([b for b, is_own in own if is_own])
        for begin, carrier in zip(exchanges, carriers, strict=True):
            if isinstance(begin.exchange, Share) and carrier == NCCL:
                self._gathered[begin.exchange.source] = self._room_for(begin)

    def begin(
        self, exchange: Exchange, target: Any, source: Any, group: tuple[int, ...], place: int
    ) -> None:
        """Start a communication operation on its transport."""
        self._links.check()
        begin = Begin(exchange, target, source, group, place)
        issue_all(self._device, self.begin_operations(begin))

    def begin_operations(self, begin: Begin) -> list[Operation]:
        """Return the stream operations that start a collective, send or receive."""
        exchange = begin.exchange
        carrier = self.carrier(begin).name
        if carrier == PUSHES and self._shared.pushes is not None:
            return self._shared.pushes.begin_operations(begin)
        if carrier != NCCL:
            return self._peers.begin_operations(begin)
        if self._shared.nccl is None:
            raise InternalError(f"`{exchange}` was not prepared")
        if isinstance(exchange, Share):
            # Ranks that cannot read one another's memory read copies.
            name, (room, _) = f"{exchange.source}.gathered", self._gathered[exchange.source]
            gather = Collective("all_gather", name, exchange.source, exchange.axis,
                                len(begin.group))  # fmt: skip
            room = replace(room, stream=begin.source.stream)
            gathers = replace(begin, exchange=gather, target=room, waits_immediately=True)
            return self._shared.nccl.begin_operations(gathers)
        if isinstance(exchange, Unshare):
            return []
        return self._shared.nccl.begin_operations(begin)

    def wait(self, buffer: str, stream: int) -> None:
        """Make a stream wait for the operations that use a buffer, on any transport."""
        issue_all(self._device, self.wait_operations(buffer, stream))

    def wait_operations(self, buffer: str, stream: int) -> list[Operation]:
        """Return operations that make a stream wait for those that use a buffer."""
        made = self._peers.wait_operations(buffer, stream)
        if self._shared.nccl is not None:
            made += self._shared.nccl.wait_operations(buffer, stream)
        return made

    def view(self, buffer: str, place: int) -> int:
        """Return the address at which kernels read memory that `place` shares, or a copy of it."""
        room = self._gathered.get(buffer)
        if room is None:
            return self._peers.view(buffer, place)
        return room[0].address + place * room[1]

    def _room_for(self, begin: Begin) -> tuple[DeviceMemory, int]:
        """Return a buffer for what all ranks of a group share, and the bytes of each rank."""
        source: DeviceMemory = begin.source
        ranks = len(begin.group)
        address = self._device.allocate(source.size * ranks, "what ranks share")
        whole = DeviceMemory(address, source.elements * ranks, source.dtype, source.stream)
        return whole, source.size

    def _free_gathered(self) -> None:
        for room, _ in self._gathered.values():
            self._device.free(room.address)
        self._gathered = {}

    @property
    def failure_address(self) -> int:
        """Return the address of a word that is not 0 once a rank has failed."""
        return self._links.failure_address

    def check(self) -> None:
        """Raise RankFailure where a rank has died or failed."""
        self._links.check()

    def until(self, done: Callable[[], bool], doing: str) -> None:
        """Return once `done` holds."""
        self._links.until(done, doing)

    def close(self) -> None:
        """Close the transports, unless another program still uses them."""
        self._free_gathered()
        if not self._first:
            return
        self._peers.close()
        if self._shared.pushes is not None:
            self._shared.pushes.close()
        if self._shared.nccl is not None:
            self._shared.nccl.close()
            self._shared.nccl = None
