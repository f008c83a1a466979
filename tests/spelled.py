"""The numbers that a kernel's constants are, by the formulas that its text spells."""

from __future__ import annotations

import re

_MEMBER = re.compile(r"^ *static constexpr int (\w+) = ([^;]+);", re.MULTILINE)


def members_of(text: str) -> dict[str, int]:
    """Return the integers of a kernel's `Config`, each computed of those above it."""
    found: dict[str, int] = {}
    config = text.partition("struct Config {")[2].partition("\n};")[0]
    for name, formula in _MEMBER.findall(config):
        found[name] = value_of(formula, found)
    return found


def value_of(formula: str, names: dict[str, int]) -> int:
    """Return what a formula of integers is, by C's rules for positive ones."""
    return eval(" ".join(formula.split()).replace("/", "//"), {"__builtins__": {}}, dict(names))
