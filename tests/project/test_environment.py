"""Environment variables are declared in one place."""

from __future__ import annotations

import ast
import re

from package_trees import FILES, tree_of

from fusec.options import ENVIRONMENT

NAME = r"(?:FUSEC|NVFUSER)_[A-Z_]+"


def test_environment_variables_are_declared() -> None:
    found: set[str] = set()
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        if not re.search(NAME, text):
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= set(re.findall(f"^{NAME}$", node.value))
    assert found == ENVIRONMENT.keys()
