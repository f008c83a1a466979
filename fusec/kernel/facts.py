"""Facts about a kernel, found by walking its nodes."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.kernel.device import NAMESPACE
from fusec.kernel.nodes import Call, Item, Name, Node, Type, walk


def mentions(nodes: Iterable[Node], name: str) -> bool:
    """Return whether nodes read or set a variable."""
    return any(isinstance(node, Name) and node.name == name for node in walk(nodes))


def calls(nodes: Iterable[Node], function: str) -> bool:
    """Return whether nodes call a function."""
    return any(isinstance(node, Call) and node.function == function for node in walk(nodes))


def is_indexed_by(nodes: Iterable[Node], name: str) -> bool:
    """Return whether a variable is the index of an array or a vector of the thread's own."""
    items = (node for node in walk(nodes) if isinstance(node, Item))
    return any(isinstance(item.index, Name) and item.index.name == name for item in items)


def device_names(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names of fusec's own functions, types and constants, without their namespace."""
    names = (
        node.function if isinstance(node, Call) else node.name
        for node in walk(nodes)
        if isinstance(node, Call | Name | Type)
    )
    own = (name.removeprefix(NAMESPACE) for name in names if name.startswith(NAMESPACE))
    return frozenset(name.partition("::")[0] for name in own)


def names_used(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names of variables and parameters that nodes read or set."""
    return frozenset(node.name for node in walk(nodes) if isinstance(node, Name))
