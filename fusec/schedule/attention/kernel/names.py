"""Names that the attention templates use for their own constants and variables."""

from __future__ import annotations

FORWARD = frozenset([
    "Config", "Index", "M", "N", "Scores", "Sums", "acc", "batch", "batches", "chunk", "column",
    "e", "finish", "finish_row", "first", "first_m", "first_row", "i", "index", "kOutWidth",
    "kWidth", "key", "key_range", "lane_row", "last", "lower", "m", "n", "own", "place", "row",
    "rows", "s", "scale", "score", "score_seen", "scores", "seen", "shared", "sums", "tile",
    "tile_m", "tile_rows", "tiles", "top", "total", "turns", "upper", "visit", "warp_m",
    "warpgroup",
])  # fmt: skip

BACKWARD = frozenset([
    "Config", "Index", "M", "N", "OwnedTiles", "Sums", "acc", "all_seen", "batch", "batches",
    "chunk", "column", "compute", "d", "finish_keys", "finish_queries", "finish_values", "first",
    "first_row", "half", "i", "kOutWidth", "keep", "lane_row", "last", "m", "moved", "n", "other",
    "own", "own_row", "p", "passing", "place", "pull", "pulls", "query_values", "row", "s", "scale",
    "seen", "seen_by", "share", "shared", "shares", "stage", "sums", "tile", "tile_row",
    "tile_rows", "tiles", "value_sums", "values", "visit_keys", "visit_queries", "visit_values",
    "warp", "warp_row", "weigh", "weight", "weights",
])  # fmt: skip

DECODE = frozenset([
    "BlockParts", "Config", "Index", "N", "Scores", "Sums", "WarpParts", "Whole", "acc", "batch",
    "chunk", "column", "e", "factor", "feature", "finish", "finish_part", "finish_row", "first",
    "g", "i", "kOutWidth", "kWidth", "key", "load_keys", "load_values", "m", "n", "parts",
    "queries", "query", "r", "row", "s", "scale", "scale_log2", "score", "scores", "seen", "shared",
    "split", "stage", "stores", "sums", "tiles", "to", "top", "total", "value", "visit", "warps",
    "whole",
])  # fmt: skip
