"""Sums over the GPUs of one host: one kernel per GPU writes to all peers and adds.

Each rank has mailboxes that its peers map. One serves all operations of a group that run one after
the other (`Begin.order`); it lives as long as the process, because captured graphs of other
programs may be replayed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fusec.dataclasses import dataclass
from fusec.hostir.instructions import Collective
from fusec.run.device import Device
from fusec.run.distributed.links import Links
from fusec.run.operations import LaunchKernel, Operation
from fusec.run.transports.kernels import TransportKernels
from fusec.run.transports.mapped import MappedMemory
from fusec.run.transports.protocol import Begin, DeviceMemory, Joined
from fusec.schedule.host.pushed_sums import (
    MOST_BLOCKS,
    MOST_CHUNKS,
    MOST_RANKS,
    PUSHED_SLICES,
    RESIDENT_THREADS,
    VECTOR,
    most_turns,
    pushed_kind,
    pushes_rows,
    pushes_sum,
)

SOURCE = Path(__file__).with_name("push_sum.cu")
THREADS, THREADS_OF_FEW = 512, 128
"""Threads per block of the kernel, in general and for small sums.

Each block waits for its counterparts on other ranks, so all blocks must be resident. Small sums are
spread over more SMs, so that each SM sends its part sooner.
"""
CHUNK_STEPS = 1
"""Minimum number of vectors per thread between two flags."""
FEW_BYTES = 1 << 17
"""Bytes per rank up to which each 4 bytes are sent with the round number instead of flags."""
_FLAGS = 256
"""Offset of the flags in a mailbox, after the round number and the counter."""
_PITCH = 8 * MOST_BLOCKS


class PushSum(ctypes.Structure):
    """The kernel's last parameter, `fusec::PushSum`."""

    _fields_ = (
        ("boxes", ctypes.c_uint64 * MOST_RANKS), ("capacity", ctypes.c_uint64),
        ("count", ctypes.c_int64), ("rank", ctypes.c_int32), ("ranks", ctypes.c_int32),
        ("flags", ctypes.c_int32), ("flag_pitch", ctypes.c_int32), ("lines", ctypes.c_int32),
        ("line_pitch", ctypes.c_int32), ("data", ctypes.c_int32), ("chunk_steps", ctypes.c_int32),
    )  # fmt: skip


@dataclass(frozen=True)
class Mailbox:
    """The mailboxes of a group, by rank index, as mapped on this rank; capacity: bytes per rank."""

    addresses: tuple[int, ...]
    capacity: int


class PushTransport:
    """Sums small tensors with kernels; its mailboxes belong to the process."""

    def __init__(self, links: Links, device: Device, kernels: TransportKernels) -> None:
        """Start without mailboxes."""
        self._links, self._device, self._kernels = links, device, kernels
        self._mapped = MappedMemory(links, device)
        self._boxes: dict[Any, Mailbox] = {}
        self._sms = min(links.gather(device.facts.sms, "SMs of GPUs"))

    def prepare(self, exchanges: Sequence[Begin]) -> None:
        """Allocate a mailbox for each operation; all ranks call it, even those without any."""
        sizes = dict[Any, int]()
        for begin in exchanges:
            sizes[_key(begin)] = max(sizes.get(_key(begin), 0), _capacity(begin))
            self._function(begin)
        keys = [*sizes]
        wanted = [[*key[0], self._holds(key, sizes[key])] for key in keys]
        told = self._links.gather(wanted, "mailboxes of sums")
        # A rank that has a mailbox allocates another if a rank of its group has none.
        counts = dict[tuple[int, ...], int]()
        fresh = dict[Any, tuple[int, int]]()
        for key in keys:
            group = key[0]
            number = counts[group] = counts.get(group, -1) + 1
            alike = [[w for w in told[rank] if w[:-1] == [*group]] for rank in group]
            if not all(of_rank[number][-1] for of_rank in alike):
                fresh[key] = number, self._allocate(sizes[key], len(group))
        own = {
            f"{key[0]} {number}": self._mapped.handle(address)
            for key, (number, address) in fresh.items()
        }
        handles = self._links.gather(own, "places of mailboxes")
        for key, (number, _) in fresh.items():
            group = key[0]
            found = (self._mapped.at(r, *handles[r][f"{group} {number}"]) for r in group)
            self._boxes[key] = Mailbox(tuple(found), sizes[key])

    def begin_operations(self, begin: Begin) -> list[Operation]:
        """Return the launch that computes a sum."""
        box = self._boxes[_key(begin)]
        if begin.joined is not None and self._joins(begin):
            return [self._joined(begin, box, begin.joined)]
        target: DeviceMemory = begin.target
        source: DeviceMemory = target if begin.source is None else begin.source
        ranks = len(begin.group)
        kind, threads = _kind(begin)
        pushed = -(-target.size // ranks) if kind == "slices" else target.size
        steps = -(-pushed // (VECTOR * threads * MOST_BLOCKS))
        how = _how(box, begin, max(CHUNK_STEPS, -(-steps // MOST_CHUNKS)))
        blocks = min(-(-pushed // (VECTOR * threads)), MOST_BLOCKS)
        name, function = self._function(begin)
        ends = source.place, target.place
        return [LaunchKernel(name, function, blocks, threads, ends, (how,), target.stream)]

    def _joins(self, begin: Begin) -> bool:
        """Return whether the kernel that reads the rows of a sum also adds them.

        All of its blocks must be resident at the same time on each GPU.
        """
        if begin.joined is None or not joins(begin, begin.joined):
            return False
        per_sm = max(1, RESIDENT_THREADS // begin.joined.threads)
        return _blocks_of_rows(begin, begin.joined) <= self._sms * per_sm

    def _joined(self, begin: Begin, box: Mailbox, joined: Joined) -> LaunchKernel:
        """Return the launch that computes a sum together with its fused consumer."""
        target, blocks = begin.target, _blocks_of_rows(begin, joined)
        return LaunchKernel(
            joined.name, joined.function, blocks, joined.threads, joined.buffers,
            (_how(box, begin, 1),), target.stream, joined.step,
        )  # fmt: skip

    def close(self) -> None:
        """Unmap the peers' mailboxes."""
        self._mapped.forget()
        self._boxes = {}

    def _holds(self, key: Any, size: int) -> bool:
        return key in self._boxes and self._boxes[key].capacity >= size

    def _allocate(self, capacity: int, ranks: int) -> int:
        size = _data(ranks) + 2 * (ranks - 1) * capacity
        address = self._device.allocate(size, "mailboxes of sums")
        self._device.fill(address, 0, _data(ranks))
        self._device.synchronise("clearing mailboxes")
        return address

    def _function(self, begin: Begin) -> tuple[str, Any]:
        """Return the kernel of an operation, as its name and the loaded function."""
        name = f"push_{_kind(begin)[0]}_{begin.target.dtype.name}"
        return name, self._kernels.load(SOURCE, name)


def pushes(begin: Begin) -> bool:
    """Return whether a kernel can add it: a small sum that its stream waits for immediately."""
    exchange, target = begin.exchange, begin.target
    return (
        isinstance(exchange, Collective)
        and begin.waits_immediately
        and exchange.kind == "all_reduce"
        and target.elements > 0
        and pushes_sum(exchange.reduction, target.dtype, target.size, len(begin.group))
    )


def joins(begin: Begin, joined: Joined) -> bool:
    """Return whether a kernel can sum the rows of a pushed sum itself: few per block.

    They must fit in the mailboxes: a slot for each peer holds all elements, two of them also the
    parts.
    """
    exchange, target, ranks = begin.exchange, begin.target, len(begin.group)
    if not isinstance(exchange, Collective) or target.elements % joined.columns:
        return False
    rows = target.elements // joined.columns
    is_pushed = pushes_rows(exchange.reduction, target.dtype, ranks)
    return is_pushed and -(-rows // joined.blocks) <= most_turns(target.size, ranks)


def _blocks_of_rows(begin: Begin, joined: Joined) -> int:
    """Return the fewest blocks that process the rows of a sum in the same number of rounds."""
    rows = begin.target.elements // joined.columns
    turns = -(-rows // joined.blocks)
    return -(-rows // turns)


def _how(box: Mailbox, begin: Begin, chunk_steps: int) -> PushSum:
    """Return the last parameter of the summing kernel."""
    ranks = len(begin.group)
    return PushSum(
        boxes=(ctypes.c_uint64 * MOST_RANKS)(*box.addresses), capacity=box.capacity,
        count=begin.target.elements, rank=begin.place, ranks=ranks, flags=_FLAGS,
        flag_pitch=_PITCH, lines=_lines(ranks), line_pitch=2 * FEW_BYTES, data=_data(ranks),
        chunk_steps=chunk_steps,
    )  # fmt: skip


def _key(begin: Begin) -> Any:
    return begin.group, begin.order


def _kind(begin: Begin) -> tuple[str, int]:
    """Return the kind of summing kernel, as in its name, and its number of threads."""
    size = begin.target.size
    if size <= FEW_BYTES:
        return "few", THREADS_OF_FEW
    is_divided = pushed_kind(size, len(begin.group)) == PUSHED_SLICES
    return "slices" if is_divided else "sum", THREADS


def _capacity(begin: Begin) -> int:
    """Return the bytes of a mailbox slot for one rank, rounded up to a power of two.

    With slices, a slot has space for the slice to be added and the one already added.
    """
    size = begin.target.size
    return 0 if size <= FEW_BYTES and begin.joined is None else 1 << (size - 1).bit_length()


def _lines(ranks: int) -> int:
    """Return the offset in a mailbox of elements that are sent with round numbers."""
    return _FLAGS + 2 * ranks * _PITCH


def _data(ranks: int) -> int:
    """Return the offset in a mailbox of elements that are sent as plain data."""
    return _lines(ranks) + 2 * (ranks - 1) * 2 * FEW_BYTES
