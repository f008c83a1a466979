"""Progress of long work: only on a terminal, on stderr, cleared when the work is done; and logs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from fusec.activity import activity, watched
from fusec.escape import visible
from fusec.options import environment

if TYPE_CHECKING:
    from fusec.run.build import Artifact, Progress

DELAY = 1.0
"""Seconds that a command may run before it shows its progress."""
TICK = 0.1
SPINNER = "|/-\\"
ERASE = "\r\x1b[2K"


class StatusLine:
    """One line on a terminal that shows the current activity once a command has run for a second.

    A thread updates it. Nothing else may be printed during an activity.
    """

    def __init__(self) -> None:
        """Start with an empty line."""
        self._began, self._lock = time.monotonic(), threading.Lock()
        self._doing: list[tuple[str, bool]] = []
        self._shown, self._ticks = False, 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, what: str, immediately: bool) -> None:
        """Add an innermost activity."""
        if not sys.stderr.isatty():
            return
        with self._lock:
            self._doing.append((what, immediately))
            self._draw()
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_drawing, daemon=True)
            self._thread.start()

    def update(self, what: str) -> None:
        """Set the state of the innermost activity."""
        with self._lock:
            if self._doing:
                self._doing[-1] = (what, self._doing[-1][1])
                self._draw()

    def end(self, what: str, seconds: float) -> None:
        """Remove the innermost activity."""
        with self._lock:
            if self._doing:
                self._doing.pop()
            if not self._doing:
                self._erase()

    def close(self) -> None:
        """End the thread and clear the line."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._erase()

    def _keep_drawing(self) -> None:
        while not self._stopped.wait(TICK):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        late = time.monotonic() - self._began > DELAY
        if not self._doing or not (late or any(immediately for _, immediately in self._doing)):
            return
        self._ticks += 1
        text = f"{SPINNER[self._ticks % len(SPINNER)]} {visible(self._doing[-1][0])}"
        with suppress(OSError, ValueError):
            sys.stderr.write(ERASE + text[: get_terminal_size().columns - 1])
            sys.stderr.flush()
            self._shown = True

    def _erase(self) -> None:
        if self._shown:
            self._shown = False
            with suppress(OSError, ValueError):
                sys.stderr.write(ERASE)
                sys.stderr.flush()


@contextmanager
def status_line() -> Generator[None]:
    """Show the current activity of the block on a terminal once it takes over a second."""
    line = StatusLine()
    try:
        with watched(line):
            yield
    finally:
        line.close()


class Log:
    """Lines on stderr: each activity when it has ended, with its duration."""

    def __init__(self) -> None:
        """Start outside of any activity."""
        self._depth = 0

    def begin(self, what: str, immediately: bool) -> None:
        """Go one activity deeper."""
        self._depth += 1

    def update(self, what: str) -> None:
        """Do nothing: intermediate progress is not logged."""

    def end(self, what: str, seconds: float) -> None:
        """Print the activity that has ended."""
        self._depth -= 1
        click.echo(f"{seconds * 1e3:10.1f} ms  {'  ' * self._depth}{visible(what)}", err=True)


def logged(wanted: bool) -> AbstractContextManager[None]:
    """Log the activities of the block if wanted, instead of showing a status line.

    With several ranks only the first one logs.
    """
    first = environment("FUSEC_RANK") in (None, "0")
    return watched(Log()) if wanted and first else nullcontext()


@contextmanager
def build_progress() -> Generator[Progress]:
    """Yield a callback for the builder that counts built kernels in the status line."""
    with activity("building kernels", immediately=True) as update:

        def show(artifact: Artifact, done: int, total: int) -> None:
            update(f"building {done}/{total} {artifact.name}")

        yield show


def working(what: str) -> AbstractContextManager[object]:
    """Show an activity on stderr while it runs, if that is a terminal."""
    return activity(what, immediately=True)
