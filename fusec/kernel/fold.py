"""Constant folding and simplification of nodes; results are unchanged, for floats bitwise.

Bits of a NaN are kept where a stored value was widened and rounded again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from operator import is_, is_not
from typing import Any, TypeVar, cast

from fusec.dataclasses import replace
from fusec.kernel.fold_rules import RULES
from fusec.kernel.nodes import (
    FALSE,
    TRUE,
    Binary,
    Closure,
    Element,
    Grouped,
    If,
    Item,
    Let,
    Loop,
    Node,
    Pointer,
    Select,
    Statement,
    Sum,
)
from fusec.kernel.records import Part, each_part, mapped
from fusec.kernel.unneeded import has_copies, without_needless

T = TypeVar("T")


def folded(record: T, names: Collection[str] = ()) -> T:
    """Return a record that contains nodes, or some nodes, folded; itself if nothing changes.

    names: of constants that only the record uses; they are removed if folding leaves them unused. A
    name that several lists of statements declare is a separate one in each.
    """
    old: list[Part] = []

    def take(part: Part) -> Part:
        old.append(part)
        return part

    each_part(record, take)
    new = [_folded(part) for part in old]
    if names and (any(map(is_not, old, new)) or has_copies(new)):
        new = without_needless(old, new, frozenset(names))
    if all(map(is_, old, new)):
        return record
    given = iter(new)
    return cast("T", each_part(record, lambda _: next(given)))


def _folded(part: Part) -> Part:
    """Return a part folded; itself if nothing changes."""
    if not isinstance(part, tuple):
        return mapped(part, lambda node: _fold(node, False))
    new = _spliced(tuple(cast("Statement", _fold(line, False)) for line in part))
    return part if len(new) == len(part) and all(map(is_, new, part)) else new


def _spliced(lines: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Return statements, replacing those under a test that always holds by their bodies."""
    if not any(isinstance(line, If) and line.test in (TRUE, FALSE) for line in lines):
        return lines
    found: list[Statement] = []
    for line in lines:
        if isinstance(line, If) and line.test in (TRUE, FALSE):
            found += line.body if line.test == TRUE else ()
        else:
            found.append(line)
    return tuple(found)


def _fold(node: Node, is_integer: bool) -> Node:
    """Return a node after folding its parts, and then itself.

    is_integer: whether it has an integer type: a float may be -0, so `x + 0` differs from x.
    """
    parts = node.children
    if not parts:
        return node
    kind, new = type(node), list[Node]()
    asks = _INTEGERS.get(kind)
    for place, part in enumerate(parts):
        new.append(_fold(part, asks is not None and asks(node, place, is_integer)))
    if any(map(is_not, parts, new)):
        given = iter(new)
        node = node.mapped(lambda _: next(given))
    if isinstance(node, Loop | If | Closure):
        body = _spliced(node.body)
        return node if body is node.body else replace(node, body=body)
    rule = RULES.get(kind)
    return node if rule is None else rule(node, is_integer)


def _index(node: Node, place: int, is_integer: bool) -> bool:
    return place == 1


def _arm(node: Node, place: int, is_integer: bool) -> bool:
    return is_integer and place > 0


def _own(node: Node, place: int, is_integer: bool) -> bool:
    return is_integer


def _side(node: Binary, place: int, is_integer: bool) -> bool:
    return is_integer and node.operator in "+-*/%"


def _value(node: Let, place: int, is_integer: bool) -> bool:
    return node.type.name in ("int", "Index", "fusec::i64") and place == 1


_INTEGERS: dict[type[Node], Callable[[Any, int, bool], bool]] = {
    Item: _index, Element: _index, Pointer: _index, Select: _arm, Binary: _side, Let: _value,
    Sum: _own, Grouped: _own,
}  # fmt: skip
"""Whether the part at an index of a node has an integer type, if the node has."""
