"""Progress of long work: on a terminal only, on stderr, gone when the work is done; and logs."""

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
"""Seconds that a command may take before it says what it does."""
TICK = 0.1
SPINNER = "|/-\\"
ERASE = "\r\x1b[2K"


class StatusLine:
    """One line on a terminal that says what is being done, from when a command takes a second.

    A thread draws it. Nothing else may be printed during an activity.
    """

    def __init__(self) -> None:
        """Draw nothing yet."""
        self._began, self._lock = time.monotonic(), threading.Lock()
        self._doing: list[tuple[str, bool]] = []
        self._shown, self._ticks = False, 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, what: str, immediately: bool) -> None:
        """Take what begins."""
        if not sys.stderr.isatty():
            return
        with self._lock:
            self._doing.append((what, immediately))
            self._draw()
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_drawing, daemon=True)
            self._thread.start()

    def update(self, what: str) -> None:
        """Take what the innermost activity is at."""
        with self._lock:
            if self._doing:
                self._doing[-1] = (what, self._doing[-1][1])
                self._draw()

    def end(self, what: str, seconds: float) -> None:
        """Forget the innermost activity."""
        with self._lock:
            if self._doing:
                self._doing.pop()
            if not self._doing:
                self._erase()

    def close(self) -> None:
        """End the thread, and leave the line empty."""
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
    """Show on a terminal what is done in the block, where it takes over a second."""
    line = StatusLine()
    try:
        with watched(line):
            yield
    finally:
        line.close()


class Log:
    """Lines on stderr: each activity when it has ended, with the time that it took."""

    def __init__(self) -> None:
        """Be outside of any activity."""
        self._depth = 0

    def begin(self, what: str, immediately: bool) -> None:
        """Go one activity deeper."""
        self._depth += 1

    def update(self, what: str) -> None:
        """Leave out how far an activity is."""

    def end(self, what: str, seconds: float) -> None:
        """Print what has ended."""
        self._depth -= 1
        click.echo(f"{seconds * 1e3:10.1f} ms  {'  ' * self._depth}{visible(what)}", err=True)


def logged(wanted: bool) -> AbstractContextManager[None]:
    """Log what is done in the block where that is wanted, instead of a status line.

    Of several ranks the first one logs.
    """
    first = environment("FUSEC_RANK") in (None, "0")
    return watched(Log()) if wanted and first else nullcontext()


@contextmanager
def build_progress() -> Generator[Progress]:
    """Give a callback for the builder, by which the status line counts kernels."""
    with activity("building kernels", immediately=True) as update:

        def show(artifact: Artifact, done: int, total: int) -> None:
            update(f"building {done}/{total} {artifact.name}")

        yield show


def working(what: str) -> AbstractContextManager[object]:
    """Show what is being done while it takes, where stderr is a terminal."""
    return activity(what, immediately=True)
