"""Parameters of which a few are tried in every run, and all of them nightly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_nightly(values: Iterable[Any], every: int, first: int = 0) -> list[Any]:
    """Return parameters of a test, of which each `every`-th one is tried in every run."""
    found = list[Any]()
    for number, value in enumerate(values):
        many = value if isinstance(value, tuple) else (value,)
        marks = () if number % every == first else (pytest.mark.nightly,)
        found.append(pytest.param(*many, marks=marks))
    return found
