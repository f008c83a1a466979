"""Which transport carries an exchange between GPUs, and why."""

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
"""Kinds of exchanges that change no number."""
READ = ("peer_views", "share", "unshare")
"""Those of which kernels read memory of other ranks."""


@dataclass(frozen=True)
class Carrier:
    """The transport of an exchange, with the reason."""

    name: str
    because: str


def carrier_of(
    kind: str, *, one_host: bool = True, access: bool = True, barriers: bool = True
) -> Carrier:
    """Return what carries a kind of exchange among GPUs.

    kind: of a collective, send or receive, also as operations call them. one_host: whether all
    ranks of its group are on one host; access: whether their GPUs reach one another's memory;
    barriers: whether all ranks can build the kernel of barriers, for as many ranks. Where this is
    not known yet, it is what is to be expected on one host.
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
    """Return the kind of an exchange as `carrier_of` knows it."""
    return exchange.kind if isinstance(exchange, Collective) else type(exchange).__name__.lower()
