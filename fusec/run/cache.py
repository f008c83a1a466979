"""Built kernels on disk, found again by the digest of everything that went into them.

An entry is one file: its layout, the digest of the rest, a line of JSON, the cubin. It is written
aside and renamed, so a reader sees a whole entry or none; one of another layout, or that was
damaged afterwards and does not match its digest, is built again. Where the folder cannot be
written, or another user may have written it, everything works without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fusec import trust
from fusec.diagnostics import FusecError
from fusec.foreign import CODE_BYTES, decode_json, decoding
from fusec.run.cache_size import DEFAULT_LIMIT, LOCKS, add, mark_used, remove, size_limit
from fusec.run.nvrtc import Compiled

_LAYOUT = b"fusec kernel 2"
"""The first line of an entry; its number grows whenever what follows changes its form."""

VARIABLE = "FUSEC_CACHE_DIR"
_PATIENCE_SECONDS = 120.0
_STALE_SECONDS = 3600.0


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return FUSEC_CACHE_DIR, or fusec's folder under XDG_CACHE_HOME, or ~/.cache/fusec."""
    if chosen := environment.get(VARIABLE):
        return Path(chosen)
    if base := environment.get("XDG_CACHE_HOME"):
        return Path(base) / "fusec"
    return Path(os.path.expanduser("~")) / ".cache" / "fusec"


def user_cache() -> Cache:
    """Return the user's cache, with the limit that he set."""
    return Cache(cache_directory(), size_limit())


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
    """A folder of built kernels; None keeps nothing. limit: how many bytes it may hold."""

    directory: Path | None
    limit: int = DEFAULT_LIMIT

    def load(self, key: str) -> Compiled | None:
        """Return the entry, or None where there is none, it is damaged or another user's."""
        if not self._is_usable():
            return None
        path = self._path(self._folder, key)
        try:
            trust.check(path.parent)
            compiled = _decode(trust.read_own(path, "an entry of the cache", CODE_BYTES))
        except (FusecError, OSError):
            return None
        except trust.Untrusted as problem:
            trust.warn_unused("an entry of the cache", problem, VARIABLE)
            return None
        if compiled is not None:
            with contextlib.suppress(OSError):
                mark_used(path)
        return compiled

    def store(self, key: str, compiled: Compiled) -> bool:
        """Write the entry; return False, and say so once, where the folder cannot be written."""
        if self.limit == 0 or not self._is_usable():
            return False
        content = _encode(compiled)
        fits = len(content) <= self.limit
        try:
            if fits:
                _write(self._path(self._folder, key), content)
        except OSError as error:
            _say_unwritable(self._folder, error)
            return False
        add(self._folder, len(content) if fits else 0, self.limit)
        return fits

    @contextlib.contextmanager
    def building(self, key: str) -> Generator[None]:
        """Hold the lock of `key`, so that others who want the entry wait for it, not build it too.

        The lock goes with its process. Without a writable folder, or after a long wait for a
        process that was stopped, nothing is locked: the work is then done twice, not wrongly.
        """
        lock = None
        if self._is_usable():
            from filelock import FileLock

            try:
                folder = self._folder / LOCKS
                trust.make_private(folder)
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

    def _is_usable(self) -> bool:
        """Return whether there is a folder, and only this user may write it; say so if not."""
        if self.directory is None:
            return False
        try:
            trust.check(self.directory)
        except trust.Untrusted as problem:
            trust.warn_unused("the kernel cache", problem, VARIABLE)
            return False
        return True

    @property
    def _folder(self) -> Path:
        assert self.directory is not None
        return self.directory

    @staticmethod
    def _path(directory: Path, key: str) -> Path:
        """Return the entry's file, spread over 256 folders."""
        return directory / key[:2] / f"{key}.kernel"


def _write(path: Path, content: bytes) -> None:
    """Write an entry aside and rename it; what else lies in its place goes."""
    if path.parent.exists() and not path.parent.is_dir():
        path.parent.unlink()
    trust.make_private(path.parent)
    _remove_stale(path.parent)
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
    """Remove what killed processes left half-written."""
    oldest = time.time() - _STALE_SECONDS
    for part in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            if part.stat().st_mtime < oldest:
                part.unlink()


_SAID: set[Path] = set()
_SAYING = threading.Lock()


def _say_unwritable(directory: Path, error: OSError) -> None:
    """Say, once for a folder, why kernels are built again in the next run."""
    with _SAYING:
        if directory in _SAID:
            return
        _SAID.add(directory)
    reason = error.strerror or str(error)
    print(f"fusec: kernel cache disabled: cannot write `{directory}`: {reason}", file=sys.stderr)


def _encode(compiled: Compiled) -> bytes:
    """Return the entry's bytes."""
    body = json.dumps({"warnings": compiled.warnings}).encode() + b"\n" + compiled.cubin
    return b"\n".join([_LAYOUT, hashlib.sha256(body).hexdigest().encode(), body])


def _decode(content: bytes) -> Compiled | None:
    """Return the entry of these bytes, or None where they are not whole or laid out otherwise."""
    layout, _, rest = content.partition(b"\n")
    digest, _, body = rest.partition(b"\n")
    if layout != _LAYOUT or hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    line, _, cubin = body.partition(b"\n")
    try:
        with decoding(ValueError):
            warnings = decode_json(line, "an entry")["warnings"]
            compiled = Compiled(cubin, tuple(str(w) for w in warnings))
            return compiled if compiled.kernels else None
    except (FusecError, ValueError):
        return None
