"""Records that contain nodes, such as views: their parts, and the record with other parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from operator import is_
from typing import Any, TypeGuard, cast

from fusec.dataclasses import replace
from fusec.kernel.nodes import (
    Name,
    Node,
    Statement,
    walk,
)

Part = str | Node | tuple[Statement, ...]
"""A list of statements, an expression or another node of a record, or a name that it contains."""


def each_part(value: object, change: Callable[[Part], Part]) -> object:
    """Return a record with its parts replaced, itself if none changes."""
    if isinstance(value, str | Node) or _are_statements(value):
        return change(value)
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        new = tuple(each_part(item, change) for item in items)
        return items if all(map(is_, items, new)) else new
    if not is_dataclass(value) or isinstance(value, type):
        return value
    old = {name: getattr(value, name) for name in _field_names(type(value))}
    changed = {
        name: new for name, item in old.items() if (new := each_part(item, change)) is not item
    }
    return replace(value, **changed) if changed else value


def _are_statements(value: object) -> TypeGuard[tuple[Statement, ...]]:
    if not (isinstance(value, tuple) and value):
        return False
    return all(isinstance(item, Statement) for item in cast("tuple[object, ...]", value))


@cache
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def mapped(part: Part, change: Callable[[Node], Node]) -> Part:
    """Return a part with its nodes changed."""
    if isinstance(part, tuple):
        return tuple(cast("Statement", change(line)) for line in part)
    return part if isinstance(part, str) else change(part)


def walk_parts(parts: Iterable[Part]) -> Iterator[Node]:
    """Yield the nodes of parts, and all of their descendants."""
    for part in parts:
        yield from walk((Name(part),) if isinstance(part, str) else _nodes(part))


def _nodes(part: Node | tuple[Statement, ...]) -> tuple[Node, ...]:
    return part if isinstance(part, tuple) else (part,)
