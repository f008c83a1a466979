"""Host memory of one role; the buffers of a program are regions of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusec.dataclasses import dataclass
from fusec.hostir.arena import aligned
from fusec.ir.evaluate import Array

POISON = 0xFF


class Arena:
    """One block of memory, allocated when all regions are known."""

    def __init__(self, size: int = 0) -> None:
        """Start with `size` bytes that are placed already."""
        self.size = size
        self.memory: Array = np.empty(0, np.uint8)

    def take(self, size: int) -> Region:
        """Append a region of `size` bytes at the end."""
        start, self.size = self.size, self.size + aligned(max(size, 1))
        return Region(self, start, size)

    def make(self) -> None:
        """Allocate the memory, poisoned."""
        self.memory = np.full(self.size, POISON, np.uint8)


@dataclass(frozen=True)
class Region:
    """A byte range of an arena."""

    arena: Arena
    start: int
    size: int

    @property
    def bytes(self) -> Any:
        """Return the memory itself."""
        return self.arena.memory[self.start : self.start + self.size]

    def part(self, offset: int, size: int) -> Region:
        """Return a subrange."""
        return Region(self.arena, self.start + offset, size)

    def poison(self) -> None:
        """Fill it with a poison value, so that reads before writes are detected."""
        self.bytes.fill(POISON)
