"""Nodes whose names are numbers: what kernels share that differ in names alone."""

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

    def node(self, node: Node) -> Node:
        """Return a node with numbers for names; they are met in the order of the fields."""
        own = NAMED.get(type(node))
        numbered = {} if own is None else {own: self.of(getattr(node, own))}
        return node.mapped(self.node, **numbered)
