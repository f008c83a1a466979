"""Calls of other frameworks that write into a tensor: `x.add_(y)`, `inplace=True`, `out=x`."""

from __future__ import annotations

from collections.abc import Iterator

from fusec.dataclasses import dataclass
from fusec.ops.frameworks import method_entry
from fusec.ops.frameworks.find import PREFIXES
from fusec.parse.foreign import frameworks
from fusec.parse.foreign.uses import values_read
from fusec.parse.syntax.trees import CallTree, Literal, Name, Tree


@dataclass(frozen=True)
class Write:
    """A call that writes into a value: the call, the value's name, and the syntax that does so."""

    call: CallTree
    name: Name
    said: str
    place: Tree

    def is_read_in(self, tree: Tree) -> bool:
        """Return whether an expression reads the value outside of the call."""
        if tree is self.call:
            return False
        parts = frameworks.parts_of(tree)
        within = {name for part in parts for name in values_read(part)}
        own = self.name.text in {*values_read(tree)} - within
        return own or any(map(self.is_read_in, parts))


def writes_in(tree: Tree) -> Iterator[Write]:
    """Yield the calls of an expression that write into a named value."""
    chained = set[int]()
    for call in frameworks.calls_in(tree):
        words = {a.keyword.text: a.value for a in call.arguments if a.keyword is not None}
        first = call.arguments[0].value if call.arguments else None
        if isinstance(out := words.get("out"), Name):
            yield Write(call, out, f"`out={out.text}`", out)
        flag = words.get("inplace")
        if isinstance(flag, Literal) and flag.value is True and isinstance(first, Name):
            yield Write(call, first, "`inplace=True`", flag)
        inner: Tree = call
        while isinstance(inner, CallTree) and _is_in_place(inner) and id(inner) not in chained:
            chained.add(id(inner))
            owner, _, function = inner.name.text.rpartition(".")
            start = inner.name.start
            argument = inner.arguments[0].value if inner.arguments else None
            if owner in PREFIXES and isinstance(argument, Name):
                yield Write(call, argument, f"`{function}`", inner.name)
            elif owner:
                name = Name(owner, start, start + len(owner))
                yield Write(call, name, f"`{function}`", inner.name)
            inner = inner.arguments[0].value if inner.arguments and not owner else call


def _is_in_place(call: CallTree) -> bool:
    _, dot, function = call.name.text.rpartition(".")
    return bool(dot) and function.endswith("_") and method_entry(function) is not None
