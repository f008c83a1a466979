"""Files of the cache on disk, written atomically, read only where no other user can write.

An entry is one file: a layout line, the digest of the rest, the rest. It is written to a temporary
file and renamed, so that a reader sees a complete entry or none; an entry of another layout, or one
that was damaged later and does not match its digest, is ignored. Where the folder cannot be
written, or another user may have written it, everything works without a cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from fusec import trust
from fusec.dataclasses import dataclass
from fusec.diagnostics import FusecError
from fusec.foreign import CODE_BYTES
from fusec.run.cache_size import DEFAULT_LIMIT, add, mark_used, remove

VARIABLE = "FUSEC_CACHE_DIR"
_STALE_SECONDS = 3600.0


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return FUSEC_CACHE_DIR, or fusec's folder under XDG_CACHE_HOME, or ~/.cache/fusec."""
    if chosen := environment.get(VARIABLE):
        return Path(chosen)
    if base := environment.get("XDG_CACHE_HOME"):
        return Path(base) / "fusec"
    return Path(os.path.expanduser("~")) / ".cache" / "fusec"


def digest_of(parts: Iterable[str]) -> str:
    """Return the digest of texts in order, which is the key of an entry."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(b"%d:" % len(encoded))
        digest.update(encoded)
    return digest.hexdigest()


@dataclass(frozen=True)
class Entries:
    """A folder of entries by key; with None nothing is kept. limit: maximum size in bytes."""

    directory: Path | None
    limit: int = DEFAULT_LIMIT

    def read(self, key: str, kind: str, layout: bytes) -> bytes | None:
        """Return the content of an entry; None where it is missing, damaged or another user's.

        kind: the suffix of its file name; layout: the expected first line.
        """
        if not self.is_usable():
            return None
        path = entry_path(self.folder, key, kind)
        try:
            trust.check(path.parent)
            content = trust.read_own(path, "an entry of the cache", CODE_BYTES)
        except (FusecError, OSError):
            return None
        except trust.Untrusted as problem:
            trust.warn_unused("an entry of the cache", problem, VARIABLE)
            return None
        found, _, rest = content.partition(b"\n")
        digest, _, body = rest.partition(b"\n")
        if found != layout or hashlib.sha256(body).hexdigest().encode() != digest:
            return None
        with contextlib.suppress(OSError):
            mark_used(path)
        return body

    def write(
        self, key: str, kind: str, layout: bytes, body: bytes, *, counts: bool = True
    ) -> bool:
        """Write an entry; if the folder cannot be written, warn once and return False.

        counts: whether it is added to the total now; else together with the next entry that is.
        """
        if self.limit == 0 or not self.is_usable():
            return False
        content = b"\n".join([layout, hashlib.sha256(body).hexdigest().encode(), body])
        fits = len(content) <= self.limit
        try:
            if fits:
                _write(entry_path(self.folder, key, kind), content)
        except OSError as error:
            _say_unwritable(self.folder, error)
            return False
        if counts:
            add(self.folder, len(content) if fits else 0, self.limit)
        return fits

    def is_usable(self) -> bool:
        """Return whether there is a folder that only this user can write; warn if not."""
        if self.directory is None:
            return False
        try:
            trust.check(self.directory)
        except trust.Untrusted as problem:
            trust.warn_unused("the kernel cache", problem, VARIABLE)
            return False
        return True

    @property
    def folder(self) -> Path:
        """Return the folder, where there is one."""
        assert self.directory is not None
        return self.directory


def entry_path(directory: Path, key: str, kind: str) -> Path:
    """Return an entry's file, spread over 256 folders."""
    return directory / key[:2] / f"{key}.{kind}"


def _write(path: Path, content: bytes) -> None:
    """Write an entry to a temporary file and rename it, replacing anything at its path."""
    if path.parent.exists() and not path.parent.is_dir():
        path.parent.unlink()
    trust.make_private(path.parent)
    _remove_stale(path.parent)
    import tempfile

    handle, aside = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mark_used(Path(aside))
        if path.is_dir():
            remove(path)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


def _remove_stale(folder: Path) -> None:
    """Remove partial files left by killed processes."""
    oldest = time.time() - _STALE_SECONDS
    for part in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            if part.stat().st_mtime < oldest:
                part.unlink()


_SAID: set[Path] = set()
_SAYING = threading.Lock()


def _say_unwritable(directory: Path, error: OSError) -> None:
    """Warn, once per folder, why kernels are built again in the next run."""
    with _SAYING:
        if directory in _SAID:
            return
        _SAID.add(directory)
    reason = error.strerror or str(error)
    print(f"fusec: kernel cache disabled: cannot write `{directory}`: {reason}", file=sys.stderr)
