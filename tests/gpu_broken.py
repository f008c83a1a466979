"""Kernels of products on a GPU with something left out, as edits of device headers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

import fusec
from fusec.call.program import Lane, Program
from fusec.ir.graph import Fusion
from fusec.run.binary import headers
from fusec.run.device import Device

Edit = tuple[str, str, str]
"""A header, what is in it, and what is put in its place."""

ARRIVAL: tuple[Edit, ...] = (
    ("matmul_semaphores.cuh", "      spin_until(semaphore, turn);\n      fence_proxy_async();",
     "      while (load_acquire(semaphore) == 0) {}\n      fence_proxy_async();"),
    ("matmul_semaphores.cuh", "    wait_group<0>();\n    store_release(semaphore, turn + 1);",
     "    wait_group<0>();\n    add_release(semaphore, 1);"),
)  # fmt: skip
"""Parts are added in arrival order: right, and not the same again."""
NO_WRAP: tuple[Edit, ...] = (("grid.cuh", '"r"(count - 1)', '"r"(count)'),)
"""A counter does not start over with the last that arrives."""
NO_RESET: tuple[Edit, ...] = (("matmul_semaphores.cuh", "    *semaphore = 0;\n", ""),)
"""A semaphore stays where the last turn has left it."""
NO_TURN: tuple[Edit, ...] = (
    ("matmul_semaphores.cuh", "    wait_group<0>();\n    store_release(semaphore, turn + 1);",
     "    wait_group<0>();\n    store_release(semaphore, turn);"),
    ("matmul_semaphores.cuh", "if (threadIdx.x == 0) store_release(semaphore, turn + 1);",
     "if (threadIdx.x == 0) store_release(semaphore, turn);"),
)  # fmt: skip
"""A turn is not handed on."""
LOST: tuple[Edit, ...] = (
    (
        "matmul_slices.cuh",
        "for (int split = 0; split < splits",
        "for (int split = 1; split < splits",
    ),
)
"""The first slice is not added."""


def edited(edits: tuple[Edit, ...]) -> Mapping[str, str]:
    """Return all device headers, some of them edited."""
    texts = dict(headers.device_headers())
    for name, old, new in edits:
        assert texts[name].count(old) == 1, f"{name} has no `{old}`, or several"
        texts[name] = texts[name].replace(old, new)
    return MappingProxyType(texts)


def broken(fusion: Fusion, edits: tuple[Edit, ...], patch: pytest.MonkeyPatch) -> Program:
    """Return a fusion's program, built with edited headers."""
    texts = edited(edits)
    with patch.context() as within:
        within.setattr(headers, "device_headers", lambda: texts)
        return fusec.compile(fusion)


def share_lanes(patch: pytest.MonkeyPatch) -> None:
    """Have all streams of a program share one piece of memory."""
    own = Program._lane

    def shared(self: Program, device: Device, index: int, stream: int) -> Lane:
        lane = own(self, device, index, stream)
        first = next(iter(self._lanes.values())).arena
        lane.arena.scratch, lane.arena.counters = first.scratch, first.counters
        return lane

    patch.setattr(Program, "_lane", shared)
