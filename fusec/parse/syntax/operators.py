"""The operators of op lines and scripts, and their operations."""

from __future__ import annotations

from collections.abc import Mapping

BINARY: Mapping[str, str] = {
    "+": "add", "-": "sub", "*": "mul", "%": "remainder", "**": "pow", "@": "matmul",
    "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor",
    "<<": "bitwise_left_shift", ">>": "bitwise_right_shift",
}  # fmt: skip
"""Binary operators for a single operation; `/` and `//` depend on the operands."""

COMPARISONS: Mapping[str, str] = {
    "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
}  # fmt: skip

_BINDS = "binds tighter than comparisons: write `(a > 0) {0} (b > 0)`; integers are needed"
NEEDING_INTEGERS: Mapping[str, str] = {
    "^": "`^` is exclusive or, as in Python; a power is `a ** b`",
    "&": f"`&` {_BINDS.format('&')}", "|": f"`|` {_BINDS.format('|')}",
    "~": "write `~(a > 0)` for a condition, `-a` for the negative",
}  # fmt: skip
"""Operators whose operands are often floats by mistake, and the help."""

UNARY: Mapping[str, str] = {"-": "neg", "~": "bitwise_not"}

PRECEDENCE: tuple[frozenset[str], ...] = (
    frozenset(COMPARISONS),
    frozenset({"|"}),
    frozenset({"^"}),
    frozenset({"&"}),
    frozenset({"<<", ">>"}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "//", "%", "@"}),
)
"""Binary operators from the loosest to the tightest, as in Python; `**` binds tighter."""

WORDS: Mapping[str, str] = {
    "and": "write `a & b`, or `logical_and(a, b)`",
    "or": "write `a | b`, or `logical_or(a, b)`",
    "not": "write `~a`, or `logical_not(a)`",
    "if": "write `where(condition, a, b)`",
    "is": "a value is never None: remove the condition; elements are compared by `a == b`",
    "for": "op lines have no comprehensions: list the elements, or write a Python script",
}
"""Words in Python expressions, and their replacement in an op line."""
