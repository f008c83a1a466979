"""A page of shared memory with a rank's status, which its watchdog can read at any time.

The rank writes without a system call, so that the status is available even while the rank is
stopped or its main thread is inside a driver call.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Mapping
from typing import Any

from fusec.dataclasses import dataclass
from fusec.run.distributed import wire

NO_RANK, ANY = -1, -2
"""Values of `Status.waits`: the rank waits for no other; for an unknown rank."""
SIZE = 4096
_HEAD = struct.Struct("=ddiI")
_TAIL = struct.Struct("=d")


@dataclass(frozen=True)
class Status:
    """What a rank is doing.

    waits: the rank that it waits for, itself if its current phase has a limit. limit: seconds
    without progress after which that rank counts as hung; 0: no limit. idle: seconds since the last
    progress.
    """

    doing: str = ""
    waits: int = NO_RANK
    limit: float = 0.0
    idle: float = 0.0

    @classmethod
    def of_frame(cls, frame: Mapping[str, Any]) -> Status:
        """Return the status that plain data describes; wire.Refused if it is malformed."""
        number = (int, float)
        wire.need(frame, doing=str, waits=int, limit=number, idle=number)
        return cls(frame["doing"], frame["waits"], frame["limit"], frame["idle"])


class StatusPage:
    """The page; one process writes it and another reads it."""

    def __init__(self, file: int) -> None:
        """Map the page of a file of `SIZE` bytes."""
        self._memory = mmap.mmap(file, SIZE)
        self._last: tuple[Any, ...] = (0.0, NO_RANK, b"")

    def write(self, status: Status) -> None:
        """Record what the rank starts to do."""
        self._last = (status.limit, status.waits, status.doing.encode()[: SIZE // 2])
        self.touch()

    def touch(self) -> None:
        """Record progress without a change of status."""
        limit, waits, text = self._last
        now = time.monotonic()
        page = _HEAD.pack(now, limit, waits, len(text)) + text + _TAIL.pack(now)
        self._memory[: len(page)] = page

    def read(self) -> Status:
        """Return what the rank is doing; a torn read is retried."""
        for _ in range(100):
            page = self._memory[:]
            since, limit, waits, length = _HEAD.unpack_from(page)
            end = min(_HEAD.size + length, SIZE - _TAIL.size)
            if _TAIL.unpack_from(page, end)[0] == since:
                text = page[_HEAD.size : end].decode(errors="replace")
                return Status(text, waits, limit, max(0.0, time.monotonic() - since))
        return Status()

    def close(self) -> None:
        """Unmap it."""
        self._memory.close()
