"""Side streams for communication, and the events that order them with a program's streams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from fusec.run.device import Device
from fusec.run.operations import Operation, RecordEvent, WaitEvent

_NO_TIMING = 2
_NON_BLOCKING = 1


class SideStream:
    """A stream ordered by events: it follows a program's streams, which wait for it later."""

    def __init__(self, device: Device) -> None:
        """Create the stream, with the highest priority."""
        self._device = device
        _, greatest = device.call("cuCtxGetStreamPriorityRange")
        self.handle = int(device.call("cuStreamCreateWithPriority", _NON_BLOCKING, greatest))
        self._events: dict[str, Any] = {}

    def follow(self, stream: int, key: str) -> list[Operation]:
        """Return operations that make this stream wait for the work `stream` has so far."""
        event = self._event(f"begin {key}")
        return [RecordEvent(event, stream), WaitEvent(self.handle, event)]

    def mark(self, key: str) -> list[Operation]:
        """Return operations that record, under a key, all work this stream has so far."""
        return [RecordEvent(self._event(f"end {key}"), self.handle)]

    def release(self, stream: int, key: str) -> list[Operation]:
        """Return operations that make `stream` wait for the work recorded under a key."""
        return [WaitEvent(stream, self._event(f"end {key}"))]

    def close(self) -> None:
        """Destroy the stream and its events."""
        for event in self._events.values():
            self._device.driver.cuEventDestroy(event)
        self._events = {}
        self._device.driver.cuStreamDestroy(self.handle)

    def _event(self, key: str) -> Any:
        """Return the event of a key; if it is recorded again, only the latest time counts."""
        if key not in self._events:
            self._events[key] = self._device.call("cuEventCreate", _NO_TIMING)
        return self._events[key]


class Names:
    """Names of communication operations in flight, by the buffers they use."""

    def __init__(self) -> None:
        """Start with none."""
        self._open: dict[str, list[Any]] = defaultdict(list)

    def add(self, buffers: tuple[str, ...], entry: Any) -> None:
        """Add an entry under each of some buffers."""
        for buffer in set(buffers):
            self._open[buffer].append(entry)

    def take(self, buffer: str) -> list[Any]:
        """Remove and return the entries of a buffer, also from under other buffers."""
        found = self._open.pop(buffer, [])
        for entries in self._open.values():
            entries[:] = [e for e in entries if e not in found]
        return found

    def take_all(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """Remove and return all entries that satisfy a predicate, each once."""
        found = list[Any]()
        for entries in self._open.values():
            found += [e for e in entries if wanted(e) and e not in found]
            entries[:] = [e for e in entries if not wanted(e)]
        return found
