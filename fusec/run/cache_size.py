"""The size limit of the kernel cache, with eviction of the least recently used entries."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.foreign import RECORD_BYTES, read_text

VARIABLE = "FUSEC_CACHE_LIMIT"
DEFAULT_LIMIT = 2_000_000_000
ENTRY = re.compile(r"[0-9a-f]{64}\.(?:kernel|plan|call)")
FOLDER = re.compile(r"[0-9a-f]{2}")
LOCKS = "locks"
_TOTAL = "total"
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_UNITS = ("", "k", "m", "g", "t")
_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class Entry:
    """A file of the cache; used: when it was last written or read, in nanoseconds."""

    path: Path
    size: int
    used: int


def size_limit(environment: Mapping[str, str] = os.environ) -> int:
    """Return the bytes that the cache may hold, from FUSEC_CACHE_LIMIT: `500M`, `1.5GiB`."""
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return DEFAULT_LIMIT
    found = _SIZE.fullmatch(text)
    if found is None:
        raise FusecError(
            f"{VARIABLE}={text} is not a size",
            help="expected bytes, or e.g. 500M or 2G; 0 disables the cache",
        )
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** _UNITS.index(found[2].lower()))


def entries(directory: Path) -> Iterator[Entry]:
    """Yield the entries of a cache; other files in the folder are skipped."""
    for folder in _listed(directory):
        if not FOLDER.fullmatch(folder.name) or not folder.is_dir(follow_symlinks=False):
            continue
        for file in _listed(folder):
            if ENTRY.fullmatch(file.name):
                with contextlib.suppress(OSError):
                    status = file.stat(follow_symlinks=False)
                    yield Entry(Path(file.path), status.st_size, status.st_mtime_ns)


def add(directory: Path, size: int, limit: int) -> None:
    """Add an entry to the total size; if it exceeds the limit, evict entries.

    The total is kept in a file, so that the entries are listed only when it exceeds the limit. If
    that file is missing or invalid, the total is computed again.
    """
    from filelock import FileLock

    lock = FileLock(directory / LOCKS / "total.lock", timeout=_TIMEOUT_SECONDS)
    with contextlib.suppress(OSError, NotImplementedError), lock:
        total = _read_total(directory)
        total = None if total is None else total + size
        if total is None or total > limit:
            total = _shrink(directory, limit)
        (directory / _TOTAL).write_text(str(total))


def clear(directory: Path) -> tuple[int, int]:
    """Remove the entries of a cache and its bookkeeping files; return count and bytes.

    OSError where something cannot be removed. Files that are not the cache's own stay.
    """
    removed = 0, 0
    for entry in list(entries(directory)):
        remove(entry.path)
        removed = removed[0] + 1, removed[1] + entry.size
    for folder in list(_listed(directory)):
        if FOLDER.fullmatch(folder.name) or folder.name == LOCKS:
            for file in list(_listed(folder)):
                if file.name.endswith((".part", ".lock")):
                    os.unlink(file.path)
            with contextlib.suppress(OSError):
                os.rmdir(folder.path)
    (directory / _TOTAL).unlink(missing_ok=True)
    return removed


def mark_used(path: Path) -> None:
    """Set an entry's time of last use to now; from the clock, since file systems are coarser."""
    now = time.time_ns()
    os.utime(path, ns=(now, now))


def remove(path: Path) -> None:
    """Remove an entry, or any other file or folder at its path."""
    if path.is_dir() and not path.is_symlink():
        import shutil

        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _listed(directory: Path | os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder; none where it is missing or cannot be read."""
    try:
        with os.scandir(directory) as found:
            yield from found
    except OSError:
        return


def _read_total(directory: Path) -> int | None:
    """Return the stored total, or None where there is none."""
    try:
        return int(read_text(directory / _TOTAL, "the total of a cache", RECORD_BYTES))
    except (FusecError, ValueError):
        return None


def _shrink(directory: Path, limit: int) -> int:
    """If the limit is exceeded, evict entries until a tenth of it is free; return the total."""
    found = sorted(entries(directory), key=lambda entry: entry.used)
    total = sum(entry.size for entry in found)
    wanted = limit if total <= limit else limit - limit // 10
    for entry in found:
        if total <= wanted:
            break
        with contextlib.suppress(OSError):
            remove(entry.path)
            total -= entry.size
    return total
