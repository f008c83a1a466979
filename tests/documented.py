"""What `--json` prints, held to docs/json.md: every key that is printed stands there."""

from __future__ import annotations

import json
import re
from typing import Any

from paths import ROOT

PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\|([^|]*)\|", PAGE, re.MULTILINE)
DOCUMENTED = {key for row in ROWS for key in re.findall(r"`(\w+)`", row)}
OPEN = ("sizes", "machine", "stages", "templates", "cuda", "bench", "parameters")
"""Objects whose keys are names, or that another page describes."""


def keys_of(data: Any) -> set[str]:
    """Return every key of an object and of those in it, but for names."""
    if isinstance(data, list):
        return {key for item in data for key in keys_of(item)}
    if not isinstance(data, dict):
        return set()
    inner = (keys_of(value) for name, value in data.items() if name not in OPEN)
    return set(data).union(*inner)


def documented(text: str) -> dict[str, Any]:
    """Return the object that a command has printed, after holding it to the page."""
    found = json.loads(text, parse_constant=_refuse)
    assert list(found)[:2] == ["schema_version", "diagnostics"]
    assert found["schema_version"] == 1
    assert keys_of(found) <= DOCUMENTED, keys_of(found) - DOCUMENTED
    return found


def _refuse(name: str) -> None:
    """Refuse a number that JSON lacks."""
    raise AssertionError(f"{name} is not JSON")
