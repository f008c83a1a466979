"""Current activities, for logs and for a status line on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol


class Watcher(Protocol):
    """Notified when an activity begins, continues and ends; activities nest."""

    def begin(self, what: str, immediately: bool) -> None:
        """Begin an activity; immediately: it is known to take long."""
        ...

    def update(self, what: str) -> None:
        """Set what the innermost activity is doing now."""
        ...

    def end(self, what: str, seconds: float) -> None:
        """End an activity, with the name it began with and its duration in seconds."""
        ...


_watchers: list[Watcher] = []

Update = Callable[[str], None]
"""Called with a description of an activity's progress."""


@contextmanager
def activity(what: str, *, immediately: bool = False) -> Generator[Update]:
    """Notify the watchers of the activity in the block, and yield a function that reports progress.

    immediately: it is known to take long, and is shown on a terminal from the start.
    """
    watchers = (*_watchers,)
    for watcher in watchers:
        watcher.begin(what, immediately)
    start = time.perf_counter()

    def update(text: str) -> None:
        for watcher in watchers:
            watcher.update(text)

    try:
        yield update
    finally:
        for watcher in watchers:
            watcher.end(what, time.perf_counter() - start)


@contextmanager
def watched(watcher: Watcher) -> Generator[None]:
    """Notify one watcher, and no other, of the activities in the block."""
    before = [*_watchers]
    _watchers[:] = [watcher]
    try:
        yield
    finally:
        _watchers[:] = before
