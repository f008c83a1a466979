"""Facts about a kernel, found by walking its nodes."""

from __future__ import annotations

from collections.abc import Iterable

from fusec.dataclasses import dataclass
from fusec.kernel.device import device_name
from fusec.kernel.nodes import Call, Item, Name, Node, Type, walk


def mentions(nodes: Iterable[Node], name: str) -> bool:
    """Return whether nodes read or set a variable."""
    return any(isinstance(node, Name) and node.name == name for node in walk(nodes))


def calls(nodes: Iterable[Node], function: str) -> bool:
    """Return whether nodes call a function."""
    return any(isinstance(node, Call) and node.function == function for node in walk(nodes))


def is_indexed_by(nodes: Iterable[Node], name: str) -> bool:
    """Return whether a variable indexes an array or a vector in the thread's registers."""
    items = (node for node in walk(nodes) if isinstance(node, Item))
    return any(isinstance(item.index, Name) and item.index.name == name for item in items)


@dataclass(frozen=True)
class Uses:
    """The names that nodes use.

    names: variables and parameters; device: fusec's own functions, types and constants, without
    their namespace.
    """

    names: frozenset[str]
    device: frozenset[str]


def uses(nodes: Iterable[Node]) -> Uses:
    """Return the names that nodes use."""
    names: set[str] = set()
    device: set[str] = set()
    for node in walk(nodes):
        if isinstance(node, Name):
            names.add(node.name)
        name = node.function if isinstance(node, Call) else ""
        name = node.name if isinstance(node, Name | Type) else name
        own = device_name(name)
        if own:
            device.add(own)
    return Uses(frozenset(names), frozenset(device))
