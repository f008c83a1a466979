"""The kernels of pushed sums for GPUs of tests: they write, then wait for flags, then add.

Those that send slices do so twice: parts of a slice to the rank that adds it, then its sum.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_dtypes import bfloat16

from fusec.run.transports.pushes import MOST_CHUNKS, VECTOR, PushSum

if TYPE_CHECKING:
    from fake_gpus import FakeGpu

TURNS = 2
"""Places of a mailbox that launches take in turns."""
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": bfloat16}


def push_sum(device: FakeGpu, name: str, blocks: int, packed: int) -> Callable[[], bool]:
    """Return the work of a launch, with the arguments that it has now."""
    pointers = ctypes.cast(packed, ctypes.POINTER(ctypes.c_void_p))
    x, y = (ctypes.c_uint64.from_address(pointers[k]).value for k in range(2))
    how = PushSum.from_buffer_copy(ctypes.string_at(pointers[2], ctypes.sizeof(PushSum)))
    kind, _, element = name.removeprefix("push_").partition("_")
    dtype: Any = np.dtype(TYPES[element])
    few, in_slices = kind == "few", kind == "slices"
    size, boxes, ranks, own = how.count * dtype.itemsize, how.boxes, how.ranks, how.rank
    pushed: list[int] = []
    added: list[int] = []
    vectors = -(-size // VECTOR)
    per_rank = -(-vectors // ranks) * VECTOR

    def at(address: int, bytes: int) -> np.ndarray:
        return device.gpus.at(device.rank, address, bytes)

    def flags(box: int, rank: int, group: int = 0) -> np.ndarray:
        first = box + how.flags + (group * ranks + rank) * how.flag_pitch
        return at(first, 8 * blocks).view(np.int64)

    def place(number: int, receiver: int, sender: int) -> int:
        return (number - 1) % TURNS * (ranks - 1) + sender - (sender > receiver)

    def lines(number: int, receiver: int, sender: int) -> np.ndarray:
        start = boxes[receiver] + how.lines + place(number, receiver, sender) * how.line_pitch
        return at(start, -(-size // 4) * 8).view(np.uint32).reshape(-1, 2)

    def data(number: int, receiver: int, sender: int) -> np.ndarray:
        start = boxes[receiver] + how.data + place(number, receiver, sender) * how.capacity
        return at(start, size)

    def slice_of(rank: int) -> tuple[int, int]:
        """Return where the slice begins that a rank adds, and its bytes."""
        return min(rank * per_rank, size), max(min(per_rank, size - rank * per_rank), 0)

    def part_of_slice(number: int, receiver: int, sender: int) -> np.ndarray:
        return data(number, receiver, sender)[: slice_of(receiver)[1]]

    def result(number: int, receiver: int, sender: int) -> np.ndarray:
        start = boxes[receiver] + how.data + place(number, receiver, sender) * how.capacity
        return at(start + how.capacity // 2, slice_of(sender)[1])

    def send(number: int, other: int) -> None:
        if few:
            words = np.zeros(-(-size // 4) * 4, np.uint8)
            words[:size] = at(x, size)
            sent = lines(number, other, own)
            sent[:, 0], sent[:, 1] = words.view(np.uint32), number
        else:
            if in_slices:
                first, length = slice_of(other)
                part_of_slice(number, other, own)[...] = at(x + first, length)
            else:
                data(number, other, own)[...] = at(x, size)
            flags(boxes[other], own)[...] = number * MOST_CHUNKS

    def arrived(number: int, other: int) -> bool:
        if few:
            return bool((lines(number, own, other)[:, 1] == number).all())
        return bool((flags(boxes[own], other) >= number * MOST_CHUNKS).all())

    def add_slice(number: int) -> None:
        """Add the own slice, and send it to all others."""
        first, length = slice_of(own)
        total = np.zeros(length // dtype.itemsize, np.float32)
        for rank in range(ranks):
            found = at(x + first, length) if rank == own else part_of_slice(number, own, rank)
            total += found.view(dtype).astype(np.float32)
        at(y + first, length).view(dtype)[...] = total.astype(dtype)
        for other in range(ranks):
            if other != own:
                result(number, other, own)[...] = at(y + first, length)
                flags(boxes[other], own, 1)[...] = number * MOST_CHUNKS

    def results_arrived(number: int, other: int) -> bool:
        return bool((flags(boxes[own], other, 1) >= number * MOST_CHUNKS).all())

    def part(number: int, rank: int) -> np.ndarray:
        if rank == own:
            found = at(x, size)
        elif few:
            found = lines(number, own, rank)[:, 0].copy().view(np.uint8)[:size]
        else:
            found = data(number, own, rank)
        return found.view(dtype).astype(np.float32)

    def operation() -> bool:
        others = [r for r in range(ranks) if r != own]
        if not pushed:
            number = int(at(boxes[own], 8).view(np.int64)[0]) + 1
            pushed.append(number)
            for other in others:
                send(number, other)
            return False
        (number,) = pushed
        if not all(arrived(number, other) for other in others):
            return False
        if in_slices:
            if not added:
                add_slice(number)
                added.append(number)
                return False
            if not all(results_arrived(number, other) for other in others):
                return False
            for other in others:
                first, length = slice_of(other)
                at(y + first, length)[...] = result(number, own, other)
            added.clear()
        else:
            total = np.zeros(how.count, np.float32)
            for rank in range(ranks):
                total += part(number, rank)
            at(y, size).view(dtype)[...] = total.astype(dtype)
        at(boxes[own], 8).view(np.int64)[0] = number
        pushed.clear()  # a graph may launch it again
        return True

    return operation
