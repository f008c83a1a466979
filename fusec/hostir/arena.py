"""The alignment of buffers that share an arena."""

from __future__ import annotations

ALIGNMENT = 256
"""Alignment in bytes of every buffer in an arena, the same as cuMemAlloc's."""


def aligned(size: int) -> int:
    """Return a size rounded up to a multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT
