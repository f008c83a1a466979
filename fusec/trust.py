"""Trusted folders: fusec executes or plans by their files, so no other user may write them.

`docs/trust.md` describes what may come from other users.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from pathlib import Path

from fusec.diagnostics import warning
from fusec.foreign import Name, opened

PRIVATE = 0o700
_ROOT = 0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Untrusted(Exception):
    """A file or folder that another user may have written; the message says why."""


def why_untrusted(status: os.stat_result) -> str | None:
    """Return why another user may have written a file or a folder; None if only root may have."""
    user = os.geteuid()
    if status.st_uid not in (user, _ROOT):
        return f"it belongs to user {status.st_uid}, not to user {user}"
    if status.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(status.st_mode):
        return f"other users may write it (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def check(path: Path) -> None:
    """Raise Untrusted if another user may have written an existing file or folder."""
    for status_of in (os.lstat, os.stat):
        try:
            status = status_of(path)
        except OSError:
            return
        why = why_untrusted(status)
        if why is not None:
            raise Untrusted(f"`{path}`: {why}")


def read_own(path: Name, what: str, most: int) -> bytes:
    """Return the bytes of a file; Untrusted if another user may have written it."""
    with opened(path, what, most) as (file, status):
        why = why_untrusted(status)
        if why is not None:
            raise Untrusted(f"`{os.fspath(path)}`: {why}")
        return file.read(status.st_size)


def make_private(folder: Path) -> None:
    """Create a folder and its parents, for this user only; OSError if that fails."""
    if folder.exists():
        return
    make_private(folder.parent)
    folder.mkdir(mode=PRIVATE, exist_ok=True)


def way_out(variable: str) -> str:
    """Return how to make a folder usable; variable: the one that names another folder."""
    return (
        f"set {variable} to your own directory; or remove files that others may have put there "
        "and run `chmod -R go-w` on it (docs/trust.md)"
    )


_WARNED: set[str] = set()
_WARNING = threading.Lock()


def warn_unused(what: str, problem: Untrusted, variable: str) -> None:
    """Warn, once for each kind, that something is not used; variable: names another folder."""
    with _WARNING:
        if what in _WARNED:
            return
        _WARNED.add(what)
    told = warning(f"{what} is not used: {problem}", help=way_out(variable))
    print(told.render(), file=sys.stderr)
