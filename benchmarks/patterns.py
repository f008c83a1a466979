"""Fusions of one access pattern or operation each, at sizes that fill a GPU.

What they take was measured (benchmarks/results/predictions.json) and is predicted within a factor
of two: tests/schedule/test_measured_patterns.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".yaml")
_NAME = re.compile(r"^fusion: (\w+)$", re.MULTILINE)


@cache
def patterns() -> Mapping[str, str]:
    """Return the fusion files by name."""
    return {_NAME.findall(text)[0]: text for text in FILE.read_text("utf-8").split("---\n")}
