"""What fusions write into inputs: one analysis answers, and what it answers is obeyed."""

from __future__ import annotations

import re
from pathlib import Path

import fusec

ROOT = Path(fusec.__file__).parent
MOST_READERS = 9


def test_few_files_read_where_an_output_is_written() -> None:
    """All others ask `ir/effects.py`."""
    found = [p for p in ROOT.rglob("*.py") if re.search(r"\.alias\b", p.read_text())]
    assert len(found) <= MOST_READERS, found
