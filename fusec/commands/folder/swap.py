"""Replace a folder atomically: after a kill, either the old or the new one is there."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

# From Linux's <fcntl.h> and <linux/fs.h>.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
"""Errors of renameat2 if the system or the file system cannot swap two paths."""

NEW, OLD = "new", "old"


@contextlib.contextmanager
def working_folder(place: Path) -> Generator[Path]:
    """Provide an empty folder next to `place`, removed on exit.

    It is locked meanwhile, so `tidy` can distinguish it from the leftovers of a killed process.
    """
    aside, lock = _locked_folder(place)
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        os.close(lock)


def put_in_place(aside: Path, place: Path) -> bool:
    """Move `aside/new` to its destination; return whether that was atomic.

    It is not if the file system cannot swap two folders: then a kill between the two renames leaves
    the old folder in `aside/old`, and `tidy` restores it. If a rename fails, it is restored.
    """
    fresh, old = aside / NEW, aside / OLD
    if not place.exists():
        os.rename(fresh, place)
        return True
    try:
        _exchange(fresh, place)
    except OSError as error:
        if error.errno not in _NO_EXCHANGE:
            raise
    else:
        return True
    os.rename(place, old)
    try:
        os.rename(fresh, place)
    except OSError:
        os.rename(old, place)
        raise
    return False


def tidy(place: Path) -> None:
    """Remove leftovers of killed processes next to `place`; restore a folder they moved away."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        found = os.listdir(place.parent)
    for name in found:
        aside = place.parent / name
        if name.startswith(_prefix(place)) and aside.is_dir() and not aside.is_symlink():
            with contextlib.suppress(OSError):
                _tidy_up(aside, place)


def _tidy_up(aside: Path, place: Path) -> None:
    """Remove a working folder; OSError if it is still in use."""
    lock = os.open(aside, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (aside / OLD).is_dir() and not place.exists():
            os.rename(aside / OLD, place)
        shutil.rmtree(aside, ignore_errors=True)
    finally:
        os.close(lock)


def _prefix(place: Path) -> str:
    return f".{place.name[:80]}.fusec-"


def _locked_folder(place: Path) -> tuple[Path, int]:
    """Return a new folder next to `place`, and the open file that holds its lock."""
    while True:
        aside = Path(tempfile.mkdtemp(prefix=_prefix(place), dir=place.parent))
        try:
            lock = os.open(aside, os.O_RDONLY)
        except FileNotFoundError:
            continue  # another process removed it before it was locked
        if _locked(lock) and aside.is_dir():
            return aside, lock
        os.close(lock)


def _locked(file: int) -> bool:
    """Lock an open file; return False if another process holds its lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # no locks on this file system, so no process can find it unlocked
    return True


def _exchange(one: Path, other: Path) -> None:
    """Swap two paths atomically; OSError if that is not possible."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    rename = getattr(library, "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    paths = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other))
    if rename(*paths, _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
