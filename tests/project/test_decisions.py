"""The index of decisions lists each one once, under its own title."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "docs" / "decisions"
ENTRY = re.compile(r"- \[(\d{3})\]\((\S+)\): (.+)")


def problems(index: str, titles: Mapping[str, str]) -> list[str]:
    """Return what an index says wrongly of decisions: their first lines, by file name."""
    found = [
        f"{name}: the first line is not '# {name[:3]}: TITLE'"
        for name, line in titles.items()
        if not line.startswith(f"# {name[:3]}: ")
    ]
    entries = ENTRY.findall(index)
    listed = [name for _, name, _ in entries]
    found += [
        f"{name}: listed {listed.count(name)} times" for name in titles if listed.count(name) != 1
    ]
    found += [
        f"{name}: the index says {number}: {title}"
        for number, name, title in entries
        if titles.get(name) != f"# {number}: {title}"
    ]
    return found


def test_the_index_lists_each_decision_once_with_its_title() -> None:
    titles = {
        path.name: path.read_text().partition("\n")[0]
        for path in sorted(DECISIONS.glob("[0-9]*.md"))
    }
    assert not problems((DECISIONS / "README.md").read_text(), titles)


def test_problems_are_found() -> None:
    titles = {"001-a.md": "# 001: A", "002-b.md": "# 2 B", "003-c.md": "# 003: C"}
    index = "- [001](001-a.md): A\n- [003](003-c.md): D\n- [004](004-e.md): E\n"
    assert [p.partition(":")[0] for p in problems(index, titles)] == [
        "002-b.md",
        "002-b.md",
        "003-c.md",
        "004-e.md",
    ]
