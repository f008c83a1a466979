"""The program's random number generator: a seed, and an offset that every call advances.

Random operations without a seed of their own read both from memory: `rng_seed` and `rng_offset`,
two inputs that callers do not pass. The n-th such operation of a fusion adds n to the offset.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

DRAWS_PER_CALL = 1 << 16
"""Offsets per call: the maximum random operations in a fusion; a program has 2^48 calls."""
PARTS = ("seed", "offset")
"""The state of a generator: two inputs of a fusion that callers do not pass."""
_WORD = (1 << 64) - 1


class Generator:
    """A generator of (seed, offset) pairs; each pair is used once."""

    def __init__(self, seed: int = 0) -> None:
        """Start at offset 0."""
        self._lock = Lock()
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> None:
        """Restart at offset 0 with another seed, reduced to 64 bits."""
        with self._lock:
            self._seed, self._offset = int(seed) & _WORD, 0

    def next_pair(self) -> tuple[int, int]:
        """Return the seed and the offset of one call."""
        with self._lock:
            pair = self._seed, self._offset
            self._offset = (self._offset + DRAWS_PER_CALL) & _WORD
            return pair


default_generator = Generator()
"""The generator that `fd.execute` uses, unless PyTorch's own generator exists."""


def manual_seed(seed: int) -> None:
    """Seed the generator of this process; equal seeds give equal random numbers.

    seed: an integer; its low 64 bits are used.
    """
    default_generator.manual_seed(seed)


def next_torch_pair(generator: Any) -> tuple[int, int]:
    """Return seed and offset from a PyTorch generator of a GPU, and advance it."""
    offset = generator.get_offset()
    generator.set_offset(offset + DRAWS_PER_CALL)
    return generator.initial_seed(), offset
