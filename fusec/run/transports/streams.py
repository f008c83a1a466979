"""Streams beside those of a program, and events between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from fusec.run.device import Device
from fusec.run.operations import Operation, RecordEvent, WaitEvent

_NO_TIMING = 2
_NON_BLOCKING = 1


class SideStream:
    """A stream that begins behind a program's streams, and for which these wait later."""

    def __init__(self, device: Device) -> None:
        """Create the stream, ahead of others where both have work."""
        self._device = device
        _, greatest = device.call("cuCtxGetStreamPriorityRange")
        self.handle = int(device.call("cuStreamCreateWithPriority", _NON_BLOCKING, greatest))
        self._events: dict[str, Any] = {}

    def follow(self, stream: int, key: str) -> list[Operation]:
        """Return what lets this stream wait for all that `stream` was given so far."""
        event = self._event(f"begin {key}")
        return [RecordEvent(event, stream), WaitEvent(self.handle, event)]

    def mark(self, key: str) -> list[Operation]:
        """Return what notes that all that was given to this stream so far belongs to a key."""
        return [RecordEvent(self._event(f"end {key}"), self.handle)]

    def release(self, stream: int, key: str) -> list[Operation]:
        """Return what lets `stream` wait for what belongs to a key."""
        return [WaitEvent(stream, self._event(f"end {key}"))]

    def close(self) -> None:
        """Give the stream and its events back."""
        for event in self._events.values():
            self._device.driver.cuEventDestroy(event)
        self._events = {}
        self._device.driver.cuStreamDestroy(self.handle)

    def _event(self, key: str) -> Any:
        """Return the event of a key: recorded again, it stands for the latest time alone."""
        if key not in self._events:
            self._events[key] = self._device.call("cuEventCreate", _NO_TIMING)
        return self._events[key]


class Names:
    """Names of exchanges that are open, by the buffers that they hold."""

    def __init__(self) -> None:
        """Start with none."""
        self._open: dict[str, list[Any]] = defaultdict(list)

    def add(self, buffers: tuple[str, ...], entry: Any) -> None:
        """Keep an entry under each of some buffers."""
        for buffer in set(buffers):
            self._open[buffer].append(entry)

    def take(self, buffer: str) -> list[Any]:
        """Return the entries of a buffer, which no longer are under any."""
        found = self._open.pop(buffer, [])
        for entries in self._open.values():
            entries[:] = [e for e in entries if e not in found]
        return found

    def take_all(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """Return all entries of some kind, each once, which no longer are under any buffer."""
        found = list[Any]()
        for entries in self._open.values():
            found += [e for e in entries if wanted(e) and e not in found]
            entries[:] = [e for e in entries if not wanted(e)]
        return found
