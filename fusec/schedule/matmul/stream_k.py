"""GEMMs whose steps along K, concatenated over all tiles, are divided among the SMs."""

from __future__ import annotations

from fusec.target import Target

PARTS = 2
"""Most ranges that share a tile: none has fewer steps than a tile."""


def ranges(tiles: int, target: Target) -> int:
    """Return how many ranges the steps of `tiles` tiles are divided into."""
    return min(tiles, target.sms)
