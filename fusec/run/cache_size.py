"""How much the cache of kernels may hold, and what leaves it: the least recently used first."""

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
    """Return the bytes that the cache may hold, as FUSEC_CACHE_LIMIT says: `500M`, `1.5GiB`."""
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
    """Yield the entries of a cache; what else lies there is left out."""
    for folder in _listed(directory):
        if not FOLDER.fullmatch(folder.name) or not folder.is_dir(follow_symlinks=False):
            continue
        for file in _listed(folder):
            if ENTRY.fullmatch(file.name):
                with contextlib.suppress(OSError):
                    status = file.stat(follow_symlinks=False)
                    yield Entry(Path(file.path), status.st_size, status.st_mtime_ns)


def add(directory: Path, size: int, limit: int) -> None:
    """Count an entry that was written; where it is too much, remove others.

    The total stands in a file, so that the entries are looked through only where it exceeds the
    limit. Where that file is missing or wrong, it is made anew then.
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
    """Remove the entries of a cache, and all that it keeps about them; return count and bytes.

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
    """Note that an entry was used now; by the clock itself, as file systems count in ticks."""
    now = time.time_ns()
    os.utime(path, ns=(now, now))


def remove(path: Path) -> None:
    """Remove what lies in an entry's place, be it a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        import shutil

        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _listed(directory: Path | os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    """Yield what a folder holds; nothing where it is none, or cannot be read."""
    try:
        with os.scandir(directory) as found:
            yield from found
    except OSError:
        return


def _read_total(directory: Path) -> int | None:
    """Return the total that was kept, or None where there is none."""
    try:
        return int(read_text(directory / _TOTAL, "the total of a cache", RECORD_BYTES))
    except (FusecError, ValueError):
        return None


def _shrink(directory: Path, limit: int) -> int:
    """Remove entries until a tenth of the limit is free, where it is exceeded; return the total."""
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
