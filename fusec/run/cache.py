"""Built kernels on disk, keyed by the digest of all inputs of the build.

An entry is a file of `fusec.run.entries` with a line of JSON and the cubin.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

from fusec import trust
from fusec.diagnostics import FusecError
from fusec.foreign import decode_json, decoding
from fusec.run.cache_size import LOCKS, size_limit
from fusec.run.entries import Entries, cache_directory, digest_of

if TYPE_CHECKING:
    from fusec.run.binary.nvrtc import Compiled

_LAYOUT = b"fusec kernel 2"
"""The first line of an entry; its number is increased whenever the format changes."""

KIND = "kernel"
_TIMEOUT_SECONDS = 120.0


def user_cache() -> Cache:
    """Return the user's cache, with the configured size limit."""
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
    """Return the digest of everything that determines a cubin.

    The name is included because the line table contains it.
    """
    parts = [compiler, arch, name, *options, "headers"]
    for header, text in sorted(headers.items()):
        parts += [header, text]
    return digest_of((*parts, source))


class Cache(Entries):
    """A folder of built kernels; with None nothing is kept. limit: maximum size in bytes."""

    def load(self, key: str) -> Compiled | None:
        """Return the entry; None where it is missing, damaged or another user's."""
        body = self.read(key, KIND, _LAYOUT)
        return None if body is None else _decode(body)

    def cubin(self, key: str) -> bytes | None:
        """Return the machine code of an entry that was read before; None where it is gone."""
        body = self.read(key, KIND, _LAYOUT)
        return None if body is None else body.partition(b"\n")[2]

    def store(self, key: str, compiled: Compiled) -> bool:
        """Write the entry; if the folder cannot be written, warn once and return False."""
        return self.write(key, KIND, _LAYOUT, _encode(compiled))

    @contextlib.contextmanager
    def building(self, key: str) -> Generator[None]:
        """Hold the lock of `key`: others that want the entry wait for it instead of building it.

        The lock is released when its process ends. Without a writable folder, or after waiting long
        for a process that was stopped, nothing is locked: the kernel is then built twice, which is
        harmless.
        """
        lock = None
        if self.is_usable():
            from filelock import FileLock

            try:
                folder = self.folder / LOCKS
                trust.make_private(folder)
                # Locks are per key prefix, to limit their number.
                lock = FileLock(folder / f"{key[:3]}.lock", thread_local=False)
                lock.acquire(timeout=_TIMEOUT_SECONDS)
            except (OSError, NotImplementedError):
                lock = None
        try:
            yield
        finally:
            if lock is not None:
                lock.release()


def _encode(compiled: Compiled) -> bytes:
    """Return the content of an entry: a line of JSON, and the cubin."""
    return json.dumps({"warnings": compiled.warnings}).encode() + b"\n" + compiled.cubin


def _decode(body: bytes) -> Compiled | None:
    """Return the content of an entry, or None where it is not a valid kernel."""
    from fusec.run.binary.nvrtc import Compiled

    line, _, cubin = body.partition(b"\n")
    try:
        with decoding(ValueError):
            warnings = decode_json(line, "an entry")["warnings"]
            compiled = Compiled(cubin, tuple(str(w) for w in warnings))
            return compiled if compiled.kernels else None
    except (FusecError, ValueError):
        return None
