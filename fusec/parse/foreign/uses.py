"""Names that an expression uses, and receivers of its methods."""

from __future__ import annotations

from collections.abc import Sequence

from fusec.ir import dtype as dtypes
from fusec.ops import TABLE
from fusec.parse.foreign import frameworks
from fusec.parse.foreign.constants import MODULES
from fusec.parse.syntax.trees import Argument, CallTree, Name, Tree

_STATIC = frozenset({"shape", "dtype", "device", "ndim", "size", "dim", "numel", "nelement"})
"""Attributes and methods of a tensor that do not read its elements."""


def values_read(tree: Tree) -> Sequence[str]:
    """Return the names of values whose elements an expression reads."""
    parts = [name.split(".") for name in names_used(tree)]
    return [words[0] for words in parts if len(words) < 2 or words[1] not in _STATIC]


def names_used(tree: Tree) -> Sequence[str]:
    """Return the names that an expression uses, including methods and functions with owners."""
    own = [tree.name.text] if isinstance(tree, CallTree) and "." in tree.name.text else []
    if isinstance(tree, Name):
        own = [tree.text]
    return [*own, *(name for part in frameworks.parts_of(tree) for name in names_used(part))]


def receiver_of(tree: CallTree) -> Tree | None:
    """Return the receiver of a method call."""
    owner, dot, _ = tree.name.text.rpartition(".")
    if not dot:
        return None
    if owner:
        return Name(owner, tree.name.start, tree.name.start + len(owner))
    return tree.arguments[0].value


def with_receiver(tree: CallTree) -> tuple[Argument, ...]:
    owner = tree.name.text.rpartition(".")[0]
    receiver = receiver_of(tree) if owner and owner not in (*MODULES, "F") else None
    return (*([] if receiver is None else [Argument(None, receiver)]), *tree.arguments)


def names_of_values(tree: Tree) -> Sequence[Name]:
    """Return the names in an expression that can only be values or sizes; not words and types."""
    if isinstance(tree, Name):
        is_word = tree.text in TABLE or "." in tree.text or dtypes.known(tree.text) is not None
        return [] if is_word else [tree]
    if not isinstance(tree, CallTree):
        return [name for part in frameworks.parts_of(tree) for name in names_of_values(part)]
    op = TABLE.get(tree.name.text)
    words = [p.kind in ("str", "dtype") for p in (() if op is None else op.params)]
    known = tree.arguments[: 1 if op is None else None]  # others may take words: `bilinear`
    return [
        name
        for place, argument in enumerate(known)
        if argument.keyword is None and not (place < len(words) and words[place])
        for name in names_of_values(argument.value)
    ]
