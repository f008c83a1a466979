"""Nodes whose names are numbers: what kernels share that differ in names alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from functools import cache
from typing import Any, TypeVar, cast

from fusec.kernel.nodes import (
    Call,
    Closure,
    Constexpr,
    Declare,
    Let,
    Loop,
    Name,
    Node,
    Parameter,
    Type,
    Using,
)

N = TypeVar("N", bound=Node)
NAMED: dict[type[Node], str] = {
    Call: "function", Closure: "name", Constexpr: "name", Declare: "name", Let: "name",
    Loop: "variable", Name: "name", Parameter: "name", Type: "name", Using: "name",
}  # fmt: skip
"""The field of a node that is a name which it declares or uses; members keep theirs."""


class Numbering:
    """Numbers for names, in the order in which they are met."""

    def __init__(self, names: Collection[str]) -> None:
        """Number some names, and keep all others."""
        self._names = names
        self._numbers: dict[str, str] = {}

    def of(self, name: str) -> str:
        """Return what stands for a name."""
        if name not in self._names:
            return name
        return self._numbers.setdefault(name, f"%{len(self._numbers)}")

    def node(self, node: N) -> N:
        """Return a node with numbers for names; they are met in the order of the fields."""
        changed: dict[str, Any] = {}
        own = next((NAMED[k] for k in type(node).__mro__ if k in NAMED), None)
        for name in _fields(type(node)):
            value = getattr(node, name)
            if name == own:
                changed[name] = self.of(value)
            elif isinstance(value, Node):
                changed[name] = self.node(value)
            elif isinstance(value, tuple):
                parts = cast("tuple[object, ...]", value)
                changed[name] = tuple(self.node(p) if isinstance(p, Node) else p for p in parts)
        return replace(node, **changed) if changed else node


@cache
def _fields(kind: type[Node]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
