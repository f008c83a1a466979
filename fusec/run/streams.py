"""A program's streams other than the caller's, and the events that order them."""

from __future__ import annotations

from threading import Lock
from typing import Any

from fusec.hostir.steps import START, Step, Steps
from fusec.run.operations import Operation, RecordEvent, WaitEvent

NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: the stream does not wait for the default one."""
NO_TIMING = 2
"""CU_EVENT_DISABLE_TIMING."""


class Pool:
    """Unused streams and events of a device; streams that are being captured are not handed out.

    Streams may still have pending work, and new work is ordered after it.
    """

    def __init__(self, device: Any) -> None:
        """Start empty."""
        self._device, self._lock = device, Lock()
        self._streams: list[Any] = []
        self._events: list[Any] = []

    def streams(self, count: int) -> list[Any]:
        """Return `count` streams, creating those that are missing."""
        call = self._device.call
        with self._lock:
            free = [s for s in self._streams if not int(call("cuStreamIsCapturing", s))][:count]
            self._streams = [s for s in self._streams if s not in free]
        return free + [call("cuStreamCreate", NON_BLOCKING) for _ in range(count - len(free))]

    def events(self, count: int) -> list[Any]:
        """Return `count` events."""
        with self._lock:
            free, self._events = self._events[:count], self._events[count:]
        made = (self._device.call("cuEventCreate", NO_TIMING) for _ in range(count - len(free)))
        return [*free, *made]

    def give(self, streams: list[Any], events: list[Any]) -> None:
        """Return streams and events to the pool."""
        with self._lock:
            self._streams += streams
            self._events += events

    def close(self) -> None:
        """Destroy all unused streams and events."""
        for event in self._events:
            self._device.driver.cuEventDestroy(event)
        for stream in self._streams:
            self._device.driver.cuStreamDestroy(stream)
        self._streams, self._events = [], []


class Shared:
    """Streams and events of a device's pool that programs use one after the other."""

    def __init__(self, device: Any) -> None:
        """Start without any."""
        self._device = device
        self._streams: list[Any] = []
        self._events: list[Any] = []

    def streams(self, count: int) -> list[Any]:
        """Return the first `count` streams."""
        missing = count - len(self._streams)
        self._streams += self._device.pool.streams(missing) if missing > 0 else []
        return self._streams[:count]

    def events(self, count: int) -> list[Any]:
        """Return the first `count` events."""
        missing = count - len(self._events)
        self._events += self._device.pool.events(missing) if missing > 0 else []
        return self._events[:count]

    def give(self, streams: list[Any], events: list[Any]) -> None:
        """Keep them for the next program."""

    def close(self) -> None:
        """Return everything to the device's pool."""
        if self._streams:
            self._device.pool.give(self._streams, self._events)
        self._streams, self._events = [], []


class Streams:
    """The streams of a program's steps, and an event for each step that another stream awaits.

    A program that runs on the caller's stream alone has no events and makes no driver calls.
    """

    def __init__(
        self, device: Any, own: Any, steps: Steps, source: Pool | Shared | None = None
    ) -> None:
        """Acquire the streams and events that the steps need; `own` is the caller's stream.

        source: of streams and events, by default the device's pool.
        """
        self._device, self._last, self._source = device, steps.last, source
        self.handles: list[Any] = [own]
        self._events: dict[int, Any] = {}
        if steps.streams > 1:
            source, awaited = self._from(), steps.awaited
            self.handles += source.streams(steps.streams - 1)
            self._events = dict(zip(awaited, source.events(len(awaited)), strict=True))

    def _from(self) -> Pool | Shared:
        return self._source or self._device.pool

    @property
    def several(self) -> bool:
        """Return whether there are other streams than the caller's."""
        return len(self.handles) > 1

    def orders(self, number: int, step: Step) -> bool:
        """Return whether a step waits for other streams or is awaited by one."""
        return bool(step.after) or number in self._events

    def start(self) -> list[Operation]:
        """Return operations that record the caller's stream at the start of the program."""
        return self._record(START, 0)

    def before(self, step: Step) -> list[Operation]:
        """Return operations that make a step's stream wait for its dependences."""
        return [self._wait(step.stream, number) for number in step.after]

    def record_after(self, number: int, step: Step) -> list[Operation]:
        """Return operations that record a step's stream after it, if a stream waits for that."""
        return self._record(number, step.stream)

    def end(self) -> list[Operation]:
        """Return operations that make the caller's stream wait for all other streams."""
        return [self._wait(0, number) for number in self._last]

    def close(self) -> None:
        """Release streams and events."""
        if self.several:
            self._from().give(self.handles[1:], [*self._events.values()])
        self.handles, self._events = self.handles[:1], {}

    def _record(self, number: int, stream: int) -> list[Operation]:
        event = self._events.get(number)
        return [] if event is None else [RecordEvent(event, int(self.handles[stream]))]

    def _wait(self, stream: int, number: int) -> Operation:
        return WaitEvent(int(self.handles[stream]), self._events[number])
