"""The program's random generator: a seed, and an offset that every call moves on.

Draws without a seed of their own read both from memory: `rng_seed` and `rng_offset`, two inputs
that no caller gives. The n-th such draw of a fusion adds n to the offset.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

DRAWS_PER_CALL = 1 << 16
"""Offsets that belong to one call. A fusion may draw as often, and a program call 2^48 times."""
PARTS = ("seed", "offset")
"""What the state of a generator is: two inputs of a fusion that no caller gives."""
_WORD = (1 << 64) - 1


class Generator:
    """A generator of (seed, offset) pairs; each pair is used once."""

    def __init__(self, seed: int = 0) -> None:
        """Start at offset 0."""
        self._lock = Lock()
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> None:
        """Start again at offset 0 with another seed, of which 64 bits count."""
        with self._lock:
            self._seed, self._offset = int(seed) & _WORD, 0

    def next_pair(self) -> tuple[int, int]:
        """Return the seed and the offset of one call."""
        with self._lock:
            pair = self._seed, self._offset
            self._offset = (self._offset + DRAWS_PER_CALL) & _WORD
            return pair


default_generator = Generator()
"""What `fd.execute` draws from, unless PyTorch's own generator is there."""


def manual_seed(seed: int) -> None:
    """Seed the generator of this process; equal seeds give equal random numbers.

    seed: an integer, of which the low 64 bits are used.
    """
    default_generator.manual_seed(seed)


def next_torch_pair(generator: Any) -> tuple[int, int]:
    """Return seed and offset from a generator of PyTorch for a GPU, which moves on."""
    offset = generator.get_offset()
    generator.set_offset(offset + DRAWS_PER_CALL)
    return generator.initial_seed(), offset
