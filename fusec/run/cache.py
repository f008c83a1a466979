"""Built kernels on disk, found again by the digest of everything that went into them.

An entry is one file: a mark, the digest of the rest, a line of JSON, the cubin. It is written aside
and renamed, so a reader sees a whole entry or none; one that was damaged afterwards does not match
its digest, and is built again. Where the folder cannot be written, everything works without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fusec.run.nvrtc import Compiled

_MARK = b"fusec kernel 2"
_PATIENCE_SECONDS = 120.0
_STALE_SECONDS = 3600.0


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return FUSEC_CACHE_DIR, or fusec's folder under XDG_CACHE_HOME, or ~/.cache/fusec."""
    if chosen := environment.get("FUSEC_CACHE_DIR"):
        return Path(chosen)
    if base := environment.get("XDG_CACHE_HOME"):
        return Path(base) / "fusec"
    return Path(os.path.expanduser("~")) / ".cache" / "fusec"


def entry_key(
    *,
    source: str,
    name: str,
    headers: Mapping[str, str],
    arch: str,
    options: tuple[str, ...],
    compiler: str,
) -> str:
    """Return the digest of everything that decides a cubin.

    The name counts because the line table holds it.
    """
    parts = [compiler, arch, name, *options, "headers"]
    for header, text in sorted(headers.items()):
        parts += [header, text]
    digest = hashlib.sha256()
    for part in (*parts, source):
        encoded = part.encode()
        digest.update(b"%d:" % len(encoded))
        digest.update(encoded)
    return digest.hexdigest()


@dataclass(frozen=True)
class Cache:
    """A folder of built kernels; None keeps nothing."""

    directory: Path | None

    def load(self, key: str) -> Compiled | None:
        """Return the entry, or None where there is none or it is damaged."""
        if self.directory is None:
            return None
        try:
            content = self._path(self.directory, key).read_bytes()
        except OSError:
            return None
        return _decode(content)

    def store(self, key: str, compiled: Compiled) -> bool:
        """Write the entry; return False where the folder cannot be written."""
        if self.directory is None:
            return False
        path = self._path(self.directory, key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_stale(path.parent)
            handle, aside = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_encode(compiled))
                os.replace(aside, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(aside)
                raise
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def building(self, key: str) -> Generator[None]:
        """Hold the lock of `key`, so that others who want the entry wait for it, not build it too.

        The lock goes with its process. Without a writable folder, or after a long wait for a
        process that was stopped, nothing is locked: the work is then done twice, not wrongly.
        """
        lock = None
        if self.directory is not None:
            from filelock import FileLock

            try:
                folder = self.directory / "locks"
                folder.mkdir(parents=True, exist_ok=True)
                # By a part of the key, so that their number stays small.
                lock = FileLock(folder / f"{key[:3]}.lock", thread_local=False)
                lock.acquire(timeout=_PATIENCE_SECONDS)
            except (OSError, NotImplementedError):
                lock = None
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    @staticmethod
    def _path(directory: Path, key: str) -> Path:
        """Return the entry's file, spread over 256 folders."""
        return directory / key[:2] / f"{key}.kernel"


def _remove_stale(folder: Path) -> None:
    """Remove what killed processes left half-written."""
    oldest = time.time() - _STALE_SECONDS
    for part in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            if part.stat().st_mtime < oldest:
                part.unlink()


def _encode(compiled: Compiled) -> bytes:
    """Return the entry's bytes."""
    body = json.dumps({"warnings": compiled.warnings}).encode() + b"\n" + compiled.cubin
    return b"\n".join([_MARK, hashlib.sha256(body).hexdigest().encode(), body])


def _decode(content: bytes) -> Compiled | None:
    """Return the entry of these bytes, or None where they are not whole."""
    mark, _, rest = content.partition(b"\n")
    digest, _, body = rest.partition(b"\n")
    if mark != _MARK or hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    line, _, cubin = body.partition(b"\n")
    return Compiled(cubin, tuple(json.loads(line)["warnings"]))
