"""Constants that are not needed after nodes are folded: unused ones, and widened copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from fusec.dataclasses import replace
from fusec.kernel.fold_rules import CONVERT, has_effects
from fusec.kernel.nodes import (
    ZERO,
    Call,
    Closure,
    Constexpr,
    Declare,
    If,
    Let,
    Loop,
    Name,
    Node,
    Parameter,
    Using,
    Widened,
)
from fusec.kernel.numbering import NAMED
from fusec.kernel.records import Part, mapped, walk_parts

_DECLARING = (Closure, Constexpr, Declare, Let, Loop, Parameter, Using)


def without_needless(
    old: Sequence[Part], new: Sequence[Part], names: frozenset[str]
) -> Sequence[Part]:
    """Return parts without the constants that are not needed, in one part and in all."""
    nodes = [list(walk_parts((part,))) for part in new]
    declared = [_declared(each) for each in nodes]
    once = names & {n for n, count in sum(declared, Counter[str]()).items() if count == 1}
    inside = {*names}
    for each, own in zip(nodes, declared, strict=True):
        inside -= _used(each).keys() - own.keys()
    found: list[Part] = []
    for before, part, own in zip(old, new, declared, strict=True):
        lets = {name for name, count in own.items() if count == 1 and name in inside}
        found += _simplified((part,), lets, (before,))
    return _simplified(found, once, old)


def has_copies(parts: Iterable[Part]) -> bool:
    """Return whether some constant may be a widened copy of a stored value."""
    widened, back = set[str](), set[str]()
    for node in walk_parts(parts):
        if isinstance(node, Let) and isinstance(node.value, Widened):
            widened.add(node.name)
        elif isinstance(node, Call) and node.function == CONVERT:
            back |= {each.name for each in node.arguments if isinstance(each, Name)}
    return not widened.isdisjoint(back)


def _used(nodes: Iterable[Node]) -> Counter[str]:
    """Return how often nodes use each name."""
    return Counter(each.name for each in nodes if isinstance(each, Name))


def _declared(nodes: Iterable[Node]) -> Counter[str]:
    """Return how often nodes declare each name."""
    found = (node for node in nodes if isinstance(node, _DECLARING))
    return Counter(getattr(node, NAMED[type(node)]) for node in found)


def _simplified(
    parts: Sequence[Part], names: Collection[str], old: Sequence[Part]
) -> Sequence[Part]:
    """Return parts without unneeded constants.

    names: of those that are declared once, and used only in these parts; old: the parts before
    folding.
    """
    nodes = list(walk_parts(parts)) if names else []
    lets = {n.name: n for n in nodes if isinstance(n, Let) and n.name in names}
    if not lets:
        return parts
    before, used = _used(walk_parts(old)), _used(nodes)
    for name in _only_converted(parts, lets, used):
        parts = [mapped(part, _as_stored(lets[name])) for part in parts]
    unused = {n for n in lets if before[n] > 0 and used[n] == 0}
    pure = {name for name in unused if not has_effects(lets[name].value or ZERO)}
    return [_without(part, pure) for part in parts] if pure else parts


def _only_converted(
    parts: Iterable[Part], lets: Mapping[str, Let], used: Counter[str]
) -> list[str]:
    """Return the constants that were widened and are only converted back."""
    widened = {name: let.value for name, let in lets.items() if isinstance(let.value, Widened)}
    if not widened:
        return []
    back = Counter(
        argument.name
        for node in walk_parts(parts)
        if isinstance(node, Call) and node.function == CONVERT
        for argument in node.arguments
        if isinstance(argument, Name)
        and argument.name in widened
        and node.template == (widened[argument.name].stored,)
    )
    return [name for name in widened if 0 < used[name] == back[name]]


def _as_stored(let: Let) -> Callable[[Node], Node]:
    """Return a function that gives a constant the type of its stored value."""
    value = cast("Widened", let.value)
    back = Call(CONVERT, (Name(let.name),), (value.stored,))
    kept = Let(value.stored, let.name, value.arguments[0])

    def change(node: Node) -> Node:
        if node in (let, back):
            return kept if node == let else Name(let.name)
        return node.mapped(change) if node.children else node

    return change


def _without(part: Part, names: Collection[str]) -> Part:
    """Return a part without the declarations of some constants."""
    if not isinstance(part, tuple):
        return part
    return tuple(
        replace(cast("Any", line), body=_without(line.body, names))
        if isinstance(line, Loop | If | Closure)
        else line
        for line in part
        if not (isinstance(line, Let) and line.name in names)
    )
