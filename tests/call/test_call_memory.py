"""Memory that programs keep between calls: freed with them, and where another allocation fails."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from fusec.api import _programs, program_for  # pyright: ignore[reportPrivateUsage]
from fusec.call.memory import Arena, may_be_emptied, retried
from fusec.diagnostics import OutOfMemory
from fusec.parse import read_text


class Limited:
    """A device of so many bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held: dict[int, int] = {}
        self.asked: list[str] = []

    def call(self, function: str, *arguments: Any, what: str = "") -> Any:
        self.asked.append(function)
        if function == "cuMemAllocAsync":
            if sum(self.held.values()) + arguments[0] > self.size:
                raise OutOfMemory(what)
            address = 1000 * len(self.asked)
            self.held[address] = arguments[0]
            return address
        if function == "cuMemFreeAsync":
            del self.held[arguments[0]]
        return None


def arena_of(device: Any, scratch: int, counters: int = 0) -> Arena:
    made = Arena(device, 0)
    made.reserve(scratch, counters)
    may_be_emptied(made)
    return made


@pytest.mark.usefixtures("quick_collection")
def test_the_memory_of_a_collected_arena_is_freed_with_the_next_allocation() -> None:
    device = Limited(100)
    first = arena_of(device, 20, 10)
    assert sorted(device.held.values()) == [10, 20]
    del first
    gc.collect()
    assert len(device.held) == 2  # no call of the driver while garbage is collected
    second = arena_of(device, 5)
    assert list(device.held.values()) == [5]
    second.close()
    assert not device.held


def test_idle_arenas_are_emptied_where_an_allocation_fails() -> None:
    device = Limited(100)
    idle, busy, drawing = (arena_of(device, 20, 10) for _ in range(3))
    drawing.pair.size = 16
    before = idle.generation.value
    with busy.issuing():
        needy = arena_of(device, 35)
    assert sorted(device.held.values()) == [10, 10, 20, 20, 35]
    assert (idle.scratch.size, idle.generation.value > before) == (0, True)
    assert busy.scratch.size == drawing.scratch.size == 20
    needy.close()
    idle.reserve(20, 10)  # as its next call does
    assert idle.scratch.address in device.held
    with pytest.raises(OutOfMemory), busy.issuing():
        arena_of(device, 90)
    drawing.pair.size = 0


def test_arenas_of_captures_are_not_emptied_for() -> None:
    device: Any = Limited(30)
    idle = arena_of(device, 20)
    with pytest.raises(OutOfMemory):
        Arena(device, 1, capture=7).reserve(20, 0)
    assert idle.scratch.size == 20
    assert "cuCtxSynchronize" not in device.asked


def test_frameworks_allocate_again_after_their_own_errors_only() -> None:
    device: Any = Limited(30)
    idle = arena_of(device, 20)
    failures: list[Exception] = [MemoryError(), ZeroDivisionError()]

    def allocate() -> str:
        if failures:
            raise failures.pop(0)
        return "made"

    with pytest.raises(ZeroDivisionError):
        retried(allocate, MemoryError, device)
    assert not idle.scratch.size
    failures[:] = [MemoryError()]
    assert retried(allocate, MemoryError, device) == "made"


@pytest.mark.usefixtures("quick_collection")
def test_a_program_ends_with_its_fusion() -> None:
    text = "fusion: f\ninputs:\n  x: f32[8]\nops:\n  - y = neg(x)\noutputs: [y]\n"
    fusion, other = read_text(text), read_text(text)
    number = id(fusion)
    assert program_for(fusion) is program_for(fusion) is not program_for(other)
    del fusion
    gc.collect()
    assert number not in _programs
    assert id(other) in _programs
