"""The part of the keys common to both kinds of entries: fusec's own files, and the options."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields
from functools import cache

from fusec.options import CompileOptions, environment
from fusec.run.cache_size import size_limit
from fusec.run.entries import Entries, cache_directory, digest_of
from fusec.version import LOADED_NS

SWITCH = "FUSEC_PLAN_CACHE"
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_SOURCES = (".py", ".j2", ".cuh", ".toml")
_NO_PLANS = frozenset({"jobs", "use_cache", "targets_given", "rates", "tuned", "buckets"})
"""Options that plans do not depend on, or only through the contents of files they name."""


def may_keep(options: CompileOptions) -> bool:
    """Return whether plans are cached on disk."""
    return options.use_cache and environment(SWITCH) != "0"


def entries() -> Entries:
    """Return the folder of entries."""
    return Entries(cache_directory(), size_limit())


def option_texts(options: CompileOptions) -> Iterator[str]:
    """Yield the options that plans depend on."""
    for field in fields(options):
        if field.name not in _NO_PLANS:
            yield f"{field.name}={getattr(options, field.name)!r}"


@cache
def tree_digest() -> str | None:
    """Return the digest of fusec's own files, by size and modification time, as for bytecode.

    None if one has changed since this process started to load fusec, since it may run the earlier
    version, or if they cannot be listed, as in an archive.
    """
    try:
        files = sorted(_files(_PACKAGE))
    except OSError:
        return None
    if any(changed >= LOADED_NS for *_, changed in files):
        return None
    return digest_of(f"{path} {size} {changed}" for path, size, changed in files)


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _files(entry.path)
            elif entry.name.endswith(_SOURCES):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns
