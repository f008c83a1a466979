"""The alignment of buffers that share an arena."""

from __future__ import annotations

ALIGNMENT = 256
"""Of every buffer in an arena, in bytes: as cuMemAlloc aligns."""


def aligned(size: int) -> int:
    """Return a size rounded up to whole units of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT
