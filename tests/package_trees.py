"""The package's modules as syntax trees, which several tests read: parsed once by a process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from paths import ROOT

PACKAGE = ROOT / "fusec"
FILES = tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a file as a syntax tree, which nobody changes."""
    return ast.parse(path.read_text(encoding="utf-8"))
