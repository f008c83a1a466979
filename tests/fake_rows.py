"""A kernel that reads rows of a sum over ranks, for GPUs of tests, and its twin that adds them.

`doubled` returns y = 2 total + residual; `doubled_pushed` does so for rows of the sum that it adds,
whose columns follow its name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fusec.run.transports.pushes import PushSum
from fusec.schedule.host.pushed_sums import MOST_CHUNKS, VECTOR

if TYPE_CHECKING:
    from fake_gpus import FakeGpu

HALF_FORMATS = 2
"""Of a mailbox, which launches take in turns."""
EARLY: list[str] = []
"""Waits that are left out: for `parts`, or for `results`."""


def doubled(device: FakeGpu, name: str, blocks: int, packed: int) -> Callable[[], bool]:
    """Return the work of a launch."""
    pointers = ctypes.cast(packed, ctypes.POINTER(ctypes.c_void_p))
    first, residual, y = (ctypes.c_uint64.from_address(pointers[k]).value for k in range(3))
    if "pushed" in name:
        how = PushSum.from_buffer_copy(ctypes.string_at(pointers[3], ctypes.sizeof(PushSum)))
        columns = int(name.rpartition("_")[2])
        return _Pushed(device, columns, blocks, (first, residual, y), how)

    def operation() -> bool:
        # The grid is of rows.
        size = blocks * 4 * int(name.rpartition("_")[2])
        total, other, made = (
            device.gpus.at(device.rank, a, size).view(np.float32) for a in (first, residual, y)
        )
        made[...] = 2 * total + other
        return True

    return operation


class _Pushed:
    """Pushes parts of rows, adds its own, pushes these and computes what came, step by step."""

    def __init__(
        self, device: FakeGpu, columns: int, blocks: int, ends: tuple[int, int, int], how: PushSum
    ) -> None:
        self.device, self.columns, self.blocks, self.ends, self.how = (
            device, columns, blocks, ends, how,
        )  # fmt: skip
        self.row = columns * 4
        self.rows = how.count // columns
        self.part = -(-(self.row // VECTOR) // how.ranks) * VECTOR
        self.number = self.stage = 0

    def at(self, address: int, size: int) -> np.ndarray:
        return self.device.gpus.at(self.device.rank, address, size)

    def half(self, receiver: int) -> int:
        how = self.how
        place = self.number % HALF_FORMATS * (how.ranks - 1)
        return how.boxes[receiver] + how.data + place * how.capacity

    def flags(self, box: int, rank: int, group: int) -> np.ndarray:
        how = self.how
        first = how.boxes[box] + how.flags + (group * how.ranks + rank) * how.flag_pitch
        return self.at(first, 8 * self.blocks).view(np.int64)

    def columns_of(self, rank: int) -> slice:
        return slice(min(rank * self.part, self.row), min((rank + 1) * self.part, self.row))

    def totals(self, receiver: int, rank: int) -> np.ndarray:
        whole = self.at(self.half(receiver), self.rows * self.row).reshape(self.rows, self.row)
        return whole[:, self.columns_of(rank)]

    def parts(self, receiver: int, sender: int) -> np.ndarray:
        place = (sender - (sender > receiver)) * self.rows * self.part
        start = self.half(receiver) + self.rows * self.row + place
        found = self.at(start, self.rows * self.part).reshape(self.rows, self.part)
        columns = self.columns_of(receiver)
        return found[:, : columns.stop - columns.start]

    def own(self, rank: int) -> np.ndarray:
        x = self.at(self.ends[0], self.rows * self.row).reshape(self.rows, self.row)
        return x[:, self.columns_of(rank)]

    @property
    def others(self) -> list[int]:
        return [r for r in range(self.how.ranks) if r != self.how.rank]

    def arrived(self, group: int) -> bool:
        last = (self.number + 1) * MOST_CHUNKS
        own = self.how.rank
        return all(bool((self.flags(own, r, group) >= last).all()) for r in self.others)

    def __call__(self) -> bool:
        how, own = self.how, self.how.rank
        last = (self.number + 1) * MOST_CHUNKS
        if self.stage == 0:
            self.number = int(self.at(how.boxes[own], 8).view(np.int64)[0])
            last = (self.number + 1) * MOST_CHUNKS
            for other in self.others:
                self.parts(other, own)[...] = self.own(other)
                self.flags(other, own, 0)[...] = last
            self.stage = 1
            return False
        if self.stage == 1:
            if not self.arrived(0) and "parts" not in EARLY:
                return False
            total: Any = 0
            for rank in range(how.ranks):
                found = self.own(own) if rank == own else self.parts(own, rank)
                total = total + np.ascontiguousarray(found).view(np.float32)
            for rank in range(how.ranks):
                self.totals(rank, own)[...] = total.view(np.uint8)
            for other in self.others:
                self.flags(other, own, 1)[...] = last
            self.stage = 2
            return False
        if not self.arrived(1) and "results" not in EARLY:
            return False
        size = self.rows * self.row
        sums = self.at(self.half(own), size).view(np.float32)
        residual, y = (self.at(a, size).view(np.float32) for a in self.ends[1:])
        y[...] = 2 * sums + residual
        self.at(how.boxes[own], 8).view(np.int64)[0] = self.number + 1
        self.stage = 0  # a graph may launch it again
        return True
