"""Facts about a kernel, found by walking its nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fusec.kernel.nodes import Call, Item, Name, Node, Raw, RawLine, walk


def mentions(nodes: Iterable[Node], name: str) -> bool:
    """Return whether nodes read or set a variable."""
    for node in walk(nodes):
        if isinstance(node, Name) and node.name == name:
            return True
        # What has no nodes yet.
        if isinstance(node, Raw | RawLine) and re.search(rf"\b{name}\b", node.raw):
            return True
    return False


def calls(nodes: Iterable[Node], function: str) -> bool:
    """Return whether nodes call a function."""
    return any(isinstance(node, Call) and node.function == function for node in walk(nodes))


def is_indexed_by(nodes: Iterable[Node], name: str) -> bool:
    """Return whether a variable is the index of an array or a vector of the thread's own."""
    for node in walk(nodes):
        if isinstance(node, Item) and isinstance(node.index, Name) and node.index.name == name:
            return True
        if isinstance(node, Raw | RawLine) and f"[{name}]" in node.raw:
            return True
    return False
