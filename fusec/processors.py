"""How many processors there are for this process."""

from __future__ import annotations

import os


def usable_processors() -> int:
    """Return how many processors this process may use: those that it is bound to, at least 1."""
    return max(1, len(os.sched_getaffinity(0)))
