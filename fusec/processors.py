"""Number of processors available to this process."""

from __future__ import annotations

import os


def usable_processors() -> int:
    """Return how many processors this process may use, by its CPU affinity, at least 1."""
    return max(1, len(os.sched_getaffinity(0)))
