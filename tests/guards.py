"""Host memory between guard zones, which kernels must neither write nor read.

A zone's bytes are NaNs in every type of float, and differ from place to place.
"""

from __future__ import annotations

import numpy as np


class Guarded(dict[str, np.ndarray]):
    """Buffers by name, aligned as GPU memory is, between guard zones."""

    def __init__(self) -> None:
        """Start without buffers."""
        super().__init__()
        self._raw: dict[str, np.ndarray] = {}
        self._offsets: dict[str, int] = {}

    def add(self, name: str, content: np.ndarray, offset: int = 0) -> None:
        """Copy an array between guard zones; offset: bytes by which it begins later, below 256."""
        raw, start = guarded(content.nbytes, offset)
        self._offsets[name] = offset
        raw[start : start + content.nbytes] = content.reshape(-1).view(np.uint8)
        self._raw[name] = raw
        self[name] = raw[start : start + content.nbytes].view(content.dtype)

    @property
    def buffers(self) -> list[tuple[int, int]]:
        """Where each buffer begins and ends."""
        return [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in self.values()]

    @property
    def zones(self) -> list[tuple[int, int]]:
        """Where each guard zone begins and ends."""
        return [
            zone
            for name, raw in self._raw.items()
            for start, size in [(self[name].ctypes.data, self[name].nbytes)]
            for zone in ((raw.ctypes.data, start), (start + size, raw.ctypes.data + raw.nbytes))
        ]

    def check(self, what: str) -> None:
        """Fail where a guard zone was written."""
        for name, raw in self._raw.items():
            check_guards(raw, self[name].nbytes, f"{what} and `{name}`", self._offsets[name])


GUARD = 1 << 16
"""Bytes of a guard zone."""


def guarded(size: int, offset: int = 0) -> tuple[np.ndarray, int]:
    """Return memory with guard zones, and where its `size` bytes begin, at a multiple of 256.

    offset: bytes by which they begin later, below 256.
    """
    raw = np.empty(size + 2 * GUARD + 512, np.uint8)
    start = _start(raw) + offset
    raw[:start] = PATTERN[:start]
    raw[start + size :] = PATTERN[: raw.nbytes - start - size]
    return raw, start


def _start(raw: np.ndarray) -> int:
    return GUARD + -(raw.ctypes.data + GUARD) % 256


_place = np.arange(GUARD + 1024)
PATTERN = np.where(_place % 2, 0xFF, 0xF0 | (_place // 2 * 7 + 3) % 16).astype(np.uint8)


def check_guards(raw: np.ndarray, size: int, what: str, offset: int = 0) -> None:
    """Fail where the guard zones of `guarded` memory were written."""
    start = _start(raw) + offset
    for zone, first in ((raw[:start], -start), (raw[start + size :], size)):
        expected = PATTERN[: zone.nbytes]
        if np.array_equal(zone, expected):
            continue
        where = first + int(np.flatnonzero(zone != expected)[0])
        raise AssertionError(f"{what}: wrote outside, at byte {where} of {size}")
