"""The digest of everything that decides a plan."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields
from functools import cache

from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.ir.text import to_text
from fusec.options import CompileOptions
from fusec.run.entries import digest_of
from fusec.target import find
from fusec.tuned import store_for
from fusec.version import LOADED_NS

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_SOURCES = (".py", ".j2", ".cuh", ".toml")
_NO_PLANS = frozenset({"jobs", "use_cache", "targets_given", "rates", "tuned", "buckets"})
"""Options that plans do not depend on, or only by what they name: the content of files."""


def key_of(fusion: Fusion, options: CompileOptions, compiler: str = "") -> str | None:
    """Return the key of a fusion's plan; None where it is planned each time.

    compiler: of plans that were chosen by what it spills, which it is and how it is called. Not
    kept are plans for several ranks and of several phases, and those that a function of the user
    decides.
    """
    several = fusion.phases or fusion.shardings or fusion.mesh is not None
    if several or options.should_merge is not None or (tree := tree_digest()) is None:
        return None
    try:
        text = to_text(fusion)
    except FusecError:
        return None  # it is planned, but cannot be written as a file
    return digest_of([tree, compiler, text, *_places(fusion), *_options(options)])


def _places(fusion: Fusion) -> Iterator[str]:
    """Yield what plans, and messages about them, depend on besides the text."""
    yield repr((fusion.source, fusion.saved, fusion.dims, fusion.pins, fusion.schedules))
    entries = (*fusion.inputs, *fusion.nodes, *fusion.outputs)
    yield repr([e.span and (e.span.place(), e.span.text) for e in entries])


def _options(options: CompileOptions) -> Iterator[str]:
    for field in fields(options):
        if field.name not in _NO_PLANS:
            yield f"{field.name}={getattr(options, field.name)!r}"
    for arch in options.targets:
        yield repr(find(arch, options.rates))
        if not options.untuned:
            yield from (store.text for store in store_for(arch, options.tuned))


@cache
def tree_digest() -> str | None:
    """Return the digest of fusec's own files, by size and time of change, as Python's byte code.

    None where one has changed since this process began to load fusec: it may run what was before;
    and where they cannot be listed, as in an archive.
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
