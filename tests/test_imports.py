"""Imports go one way, and environment variables are declared in one place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusec.options import ENVIRONMENT

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "fusec").rglob("*.py"))
LAYERS = (
    ("diagnostics", "options", "generator"),
    ("ir",),
    ("ops",),
    ("reference",),
    ("parse", "index", "target", "passes"),
    ("segment",),
    ("schedule",),
    ("codegen",),
    ("hostir",),
    ("run",),
    ("driver",),
    ("explain",),
    ("commands", "dev"),
    ("cli",),
)
"""Each may import those before it; those of one line know nothing of each other."""
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each module of fusec that a file imports, with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide where they go"
            names = [node.module or ""]
            if node.module == "fusec":
                names = [f"fusec.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("fusec."):
                yield name.split(".")[1], node.lineno


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT / "fusec").with_suffix("").parts[0]


def test_every_layer_is_known() -> None:
    assert {layer_of(p) for p in FILES} - {"__init__", "__main__"} <= RANK.keys()


@pytest.mark.parametrize("layer", RANK)
def test_imports_go_one_way(layer: str) -> None:
    for path in FILES:
        if layer_of(path) != layer:
            continue
        for other, line in imported(path):
            known = other == layer or RANK.get(other, -1) < RANK[layer]
            assert known, f"{path.relative_to(ROOT)}:{line}: {layer} imports {other}"


def test_environment_variables_are_declared() -> None:
    found: set[str] = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(re.findall(r"^(?:FUSEC|NVFUSER)_[A-Z_]+$", node.value))
    assert found == ENVIRONMENT.keys()
