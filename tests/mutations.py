"""Every change of one field of a JSON document."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Path = tuple[str | int, ...]
Change = tuple[str, Callable[[], Any]]
"""Where and how a document is changed, and what makes the changed document: few are looked at."""

STRINGS = (
    "",
    "other",
    "../../outside",
    "/etc/passwd",
    "a\x1b[31m\n\u202e\0b",
    "\ud800",
    "x" * 5000,
)
NUMBERS = (0, -1, 2**31, 2**62, 2**70, -(2**63), 0.5, 1e300, float("nan"), float("inf"))
REST = (None, True, "1", [], {})


def changes(document: Any) -> Iterator[Change]:
    """Yield the document with one field changed, for every field and every kind of change."""
    for path in list(_paths(document)):
        value = _at(document, path)
        for label, new in _values(value):
            yield f"{_text(path)} = {label}", partial(_with, document, path, new)
        if isinstance(value, list):
            for label, new in _lists(value):
                yield f"{_text(path)}: {label}", partial(_with, document, path, new)
        if isinstance(value, dict):
            for label, new in _objects(value):
                yield f"{_text(path)}: {label}", partial(_with, document, path, new)


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, entry in items:
        yield from _paths(entry, (*path, key))


def _at(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


def _with(document: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    changed = copy.deepcopy(document)
    _at(changed, path[:-1])[path[-1]] = new
    return changed


def _text(path: Path) -> str:
    return "".join(f"[{key!r}]" for key in path)


def _values(value: Any) -> Iterator[tuple[str, Any]]:
    others: list[Any] = []
    if isinstance(value, bool):
        others = [not value, int(value)]
    elif isinstance(value, (int, float)):
        others = [*NUMBERS, value + 1, value - 1, 2 * value, -value, float(value), str(value)]
    elif isinstance(value, str):
        others = [*STRINGS, f"{value} + 1", f"2 * ({value})", f"{value} // 0", value[:-1], 1]
    same = json.dumps(value)
    for other in (*others, *REST):
        if json.dumps(other) != same:
            yield json.dumps(other)[:40], other


def _lists(value: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    yield "one more", [*value, 1]
    if value:
        yield "the first one dropped", value[1:]
        yield "the last one twice", [*value, value[-1]]
    if len(value) > 1:
        yield "the last one dropped", value[:-1]
        yield "the ends swapped", [value[-1], *value[1:-1], value[0]]


def _objects(value: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "a key more", {**value, "another": 1}
    for key in value:
        rest = {k: v for k, v in value.items() if k != key}
        yield f"{key!r} dropped", rest
        yield f"{key!r} renamed", {**rest, f"{key}_": value[key]}
