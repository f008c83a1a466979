"""Mutants of the package are valid Python, each with one place changed."""

from __future__ import annotations

import ast

from package_mutants import Places, in_template

MODULE = '''
LEAST = 3

def larger(x: int, y: int = 2) -> int:
    """Return 1 of two."""
    if (x) < y and not x == 0:
        return é(x) + y * 4
    return f"{x + 1}" if x is not None else -y
'''
NEW = ("(x) <= y", "x != 0", "x is None", "y or not", "y and x ==", "(x) - y", "y + 4", "* 5")


def changed(text: str) -> list[str]:
    places = Places("fusec/x.py", text)
    places.visit(ast.parse(text))
    old = text.encode()
    return [(old[: p.start] + p.new.encode() + old[p.end :]).decode() for p in places.found]


def test_rules_change_one_place_of_a_function() -> None:
    found = changed(MODULE)
    for text in found:
        ast.parse(text)
        assert text != MODULE
        assert "LEAST = 3" in text
        assert "y: int = 2" in text
        assert "{x + 1}" in text
        assert sum(a != b for a, b in zip(text.split("\n"), MODULE.split("\n"), strict=True)) == 1
    assert len({*found}) == len(found) == 10
    for new in NEW:
        assert sum(new in text for text in found) == 1, new


def test_rules_change_templates() -> None:
    text = "{% if k.is_whole %}\n  if (row < rows) x[row + kStep * kVec] = 0;\n  __syncthreads();\n"
    found = list(in_template("fusec/templates/x.cu.j2", text))
    assert [(p.rule, p.new) for p in found] == [
        ("test", "not "), ("bound", "<="), ("offset", " - "), ("factor", " + "), ("barrier", ""),
    ]  # fmt: skip
    first = found[0]
    assert text[: first.start] + first.new + text[first.end :] == text.replace("if k", "if not k")
