"""Nodes with numbers for names, equal for kernels that differ only in names."""

from __future__ import annotations

from collections.abc import Collection

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
    Widened,
)

NAMED: dict[type[Node], str] = {
    Call: "function", Closure: "name", Constexpr: "name", Declare: "name", Let: "name",
    Loop: "variable", Name: "name", Parameter: "name", Type: "name", Using: "name",
    Widened: "function",
}  # fmt: skip
"""The field of a node with a name that it declares or uses; members keep their names."""


class Numbering:
    """Numbers for names, in the order of their first occurrence."""

    def __init__(self, names: Collection[str]) -> None:
        """Number some names, and keep all others."""
        self._names = names
        self._numbers: dict[str, str] = {}

    def of(self, name: str) -> str:
        """Return the replacement of a name."""
        if name not in self._names:
            return name
        return self._numbers.setdefault(name, f"%{len(self._numbers)}")

    def node(self, node: Node) -> Node:
        """Return a node with numbers for names, assigned in the order of its fields."""
        own = NAMED.get(type(node))
        numbered = {} if own is None else {own: self.of(getattr(node, own))}
        return node.mapped(self.node, **numbered)
