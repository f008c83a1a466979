"""Products whose tiles' steps along K, end to end, are divided among the SMs."""

from __future__ import annotations

from fusec.target import Target

PARTS = 2
"""Ranges that share a tile at most: none has fewer steps than a tile."""


def ranges(tiles: int, target: Target) -> int:
    """Return how many ranges the steps of so many tiles are divided into."""
    return min(tiles, target.sms)
