"""Memory of a role on the host, of which buffers take and free regions in the order of streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fusec.hostir.steps import Step
from fusec.ir.evaluate import Array

ALIGNMENT = 256
"""Of every region, in bytes."""
POISON = 0xFF


class Arena:
    """One block of memory; it is made when all regions are known."""

    def __init__(self, role: str) -> None:
        """Start empty."""
        self.role, self.size = role, 0
        self.spare: list[tuple[int, int, Step]] = []
        self.memory: Array = np.empty(0, np.uint8)

    def take(self, size: int, step: Step | None = None) -> Region:
        """Return a region of so many bytes for a step that allocates it, of freed memory if it can.

        That it can where all is over that was when the memory was freed.
        """
        wanted = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        fitting = (
            s for s in self.spare if s[1] >= wanted and step is not None and step.follows(s[2])
        )
        found = min(fitting, key=lambda s: s[1], default=None)
        if found is None:
            self.size += wanted
            return Region(self, self.size - wanted, size)
        self.spare.remove(found)
        start, whole, freed = found
        if whole > wanted:
            self.spare.append((start + wanted, whole - wanted, freed))
        return Region(self, start, size)

    def make(self) -> None:
        """Have the memory, poisoned."""
        self.memory = np.full(self.size, POISON, np.uint8)


@dataclass(frozen=True)
class Region:
    """Some bytes of an arena."""

    arena: Arena
    start: int
    size: int

    @property
    def bytes(self) -> Any:
        """Return the memory itself."""
        return self.arena.memory[self.start : self.start + self.size]

    def part(self, offset: int, size: int) -> Region:
        """Return some of the bytes."""
        return Region(self.arena, self.start + offset, size)

    def free(self, step: Step) -> None:
        """Give the memory to what a later step allocates."""
        whole = -(-max(self.size, 1) // ALIGNMENT) * ALIGNMENT
        self.arena.spare.append((self.start, whole, step))

    def poison(self) -> None:
        """Fill it with what nobody should read."""
        self.bytes.fill(POISON)

    def copy(self, source: Region, size: int) -> None:
        """Copy bytes into it."""
        self.bytes[:size] = source.bytes[:size]
