"""The ranks of this process's run, connected once per process."""

from __future__ import annotations

import atexit
from functools import cache

from fusec.diagnostics import FusecError
from fusec.ir.sharding import Mesh
from fusec.run.device import Device, gpu_of
from fusec.run.distributed.exchange import Member
from fusec.run.distributed.links import Links
from fusec.run.distributed.ranks import from_environment, timeout
from fusec.run.distributed.rendezvous import meet
from fusec.run.distributed.watchdog_order import Ends
from fusec.run.transports.choice import GpuTransport


@cache
def links() -> Links:
    """Return the connections to the other ranks; the first call waits for all of them."""
    made = meet(from_environment(), timeout(), ends=Ends.PROGRAM)
    atexit.register(made.close)
    return made


def check_ranks(name: str, mesh: Mesh) -> None:
    """Raise FusecError unless this run has as many ranks as the mesh of a fusion."""
    size = from_environment().size
    if size != mesh.size:
        raise FusecError(
            f"{name}: the mesh has {mesh.size} ranks, but this run has {size}",
            help=f"torchrun --nproc-per-node {mesh.size}",
        )


def own_gpu() -> int:
    """Return the number of this rank's GPU, from the local rank in the environment."""
    ranks = from_environment()
    return gpu_of(ranks.local_rank, ranks.local_size)


def member_of(program: str, mesh: Mesh | None, device: Device) -> Member | None:
    """Return this rank of a mesh for one program on its GPU; None for a single rank.

    Collective over all ranks.
    """
    if mesh is None or mesh.size == 1:
        return None
    check_ranks(program, mesh)
    if device not in _transports:
        _transports[device] = GpuTransport(links(), device)
    transport = _transports[device].another(program)
    links().phase(f"calls of {program}")
    return Member(mesh, links().rank, transport)


_transports: dict[Device, GpuTransport] = {}


def barrier() -> None:
    """Wait for all ranks; RankFailure where one does not arrive."""
    if from_environment().started:
        links().gather(None, "barrier")
