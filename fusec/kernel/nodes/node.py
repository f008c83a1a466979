"""A part of a kernel, and the walk over all of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Self, cast

from fusec.dataclasses import dataclass, fields, replace
from fusec.properties import cached_property


@dataclass(frozen=True)
class Node:
    """A part of a kernel."""

    @cached_property
    def children(self) -> tuple[Node, ...]:
        """The child nodes of this one, in source order."""
        found: list[Node] = []
        for name in field_names(type(self)):
            value = getattr(self, name)
            if isinstance(value, Node):
                found.append(value)
            elif isinstance(value, tuple):
                parts = cast("tuple[object, ...]", value)
                found += [each for each in parts if isinstance(each, Node)]
        return tuple(found)

    def mapped(self, change: Callable[[Node], Node], **fields: Any) -> Self:
        """Return this node with its children replaced, in order, and some fields set."""
        changed: dict[str, Any] = {}
        for name in field_names(type(self)):
            value = getattr(self, name)
            if name in fields:
                changed[name] = fields[name]
            elif isinstance(value, Node):
                changed[name] = change(value)
            elif isinstance(value, tuple):
                parts = cast("tuple[object, ...]", value)
                changed[name] = tuple(change(p) if isinstance(p, Node) else p for p in parts)
        return replace(self, **changed) if changed else self


@cache
def field_names(kind: type[Node]) -> tuple[str, ...]:
    """Return the names of a node's fields, in source order."""
    return tuple(field.name for field in fields(kind))


def walk(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield nodes and all of their descendants, each before its parts."""
    stack = [*nodes]
    stack.reverse()
    while stack:
        node = stack.pop()
        yield node
        stack += node.children[::-1]
