"""How much tests draw: little in every run of them, more where that is asked for."""

from __future__ import annotations

import os

from hypothesis import settings

MORE = "FUSEC_DRAWS"
"""Set to a number that multiplies how many graphs and programs are drawn."""


def times(count: int) -> int:
    """Return how many to draw where `count` are drawn in every run."""
    return max(1, round(count * float(os.environ.get(MORE, "1"))))


def drawn(count: int) -> settings:
    """Return the settings of a test over so many examples, whatever time they take."""
    return settings(max_examples=times(count), deadline=None)
