"""Selection of the transport for a communication operation between GPUs, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusec.dataclasses import dataclass
from fusec.hostir.instructions import Collective
from fusec.schedule.host.pushed_sums import PUSHED_SLICES, PUSHED_SUM

if TYPE_CHECKING:
    from fusec.run.transports.protocol import Exchange

PEERS, NCCL, READS, PUSHES = "peer copies", "NCCL", "peer reads", "pushed sums"
MOVING = (
    "all_gather", "all_to_all", "broadcast", "send", "receive", "send_slice", "receive_slice",
    "peer_views", "share", "unshare",
)  # fmt: skip
"""Kinds of communication that move data without arithmetic."""
READ = ("peer_views", "share", "unshare")
"""Kinds in which kernels read peer memory directly."""


@dataclass(frozen=True)
class Carrier:
    """The transport of a communication operation, and why it was selected."""

    name: str
    because: str


def carrier_of(
    kind: str, *, one_host: bool = True, access: bool = True, barriers: bool = True
) -> Carrier:
    """Return the transport for a kind of communication among GPUs.

    kind: of a collective, send or receive, also as operations call them. one_host: whether all
    ranks of the group are on one host; access: whether their GPUs have peer access to each other;
    barriers: whether all ranks can build the barrier kernel, for as many ranks. The defaults are
    what is expected on one host, for callers that do not know yet.
    """
    from fusec.schedule.gathered_outputs import GATHERED_OUTPUT

    if kind in (PUSHED_SLICES, PUSHED_SUM) and one_host and access:
        return Carrier(PUSHES, "small: one kernel per GPU pushes to the others and adds")
    if kind == GATHERED_OUTPUT:
        return Carrier(NCCL, "it gathers into the caller's memory, from several GPUs")
    if kind not in MOVING:
        return Carrier(NCCL, "it is a reduction, which copy engines cannot do")
    if not one_host:
        return Carrier(NCCL, "the ranks are on several hosts")
    if not access:
        return Carrier(NCCL, "not all GPUs have peer access to each other")
    if kind in READ and not barriers:
        return Carrier(NCCL, "no barrier kernel: NVRTC is missing, or there are more than 16 ranks")
    if kind in READ:
        return Carrier(READS, "kernels read peer memory directly")
    return Carrier(PEERS, "copy engines transfer it and leave all SMs to kernels")


def kind_of(exchange: Exchange) -> str:
    """Return the kind of a communication operation, as `carrier_of` expects it."""
    return exchange.kind if isinstance(exchange, Collective) else type(exchange).__name__.lower()
