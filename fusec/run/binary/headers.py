"""The device headers that come with fusec, and which of them a kernel needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]+)"([^"\n]+)"', re.MULTILINE)


@cache
def device_headers() -> Mapping[str, str]:
    """Return the text of every device header by its name, `types.cuh` and so on."""
    folder = resources.files("fusec") / "templates" / "device"
    texts = {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".cuh")
    }
    return MappingProxyType(dict(sorted(texts.items())))


def with_included(
    names: Iterable[str], available: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """Return headers and the headers they include, transitively, sorted by name.

    available: fusec's own by default. Names that are not available are skipped: NVRTC reports them
    with the line.
    """
    known = device_headers() if available is None else available
    found: dict[str, str] = {}
    wanted = [*names]
    while wanted:
        name = wanted.pop()
        if name in known and name not in found:
            found[name] = known[name]
            wanted += _included(known[name])
    return dict(sorted(found.items()))


def headers_for(source: str, available: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return the headers that a source includes, as `with_included`.

    For sources that fusec did not render; for rendered ones use `KernelSource.headers`.
    """
    return with_included(_included(source), available)


def _included(text: str) -> list[str]:
    return [name for _, name in _INCLUDE.findall(text)]


def anchor_includes(text: str, names: Mapping[str, str], folder: str) -> str:
    """Return `text` with each include of one of `names` made absolute under `folder`."""

    def anchored(match: re.Match[str]) -> str:
        start, name = match.groups()
        return f'{start}"{folder}{name}"' if name in names else match.group()

    return _INCLUDE.sub(anchored, text)
