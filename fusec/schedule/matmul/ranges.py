"""Products whose tiles' steps along K, end to end, are divided among the SMs: which may be."""

from __future__ import annotations

from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.problem import Product
from fusec.segment.protocol import Refusal
from fusec.target import Target

PARTS = 2
"""Ranges that share a tile at most: none has fewer steps than a tile."""


def ranges(tiles: int, target: Target) -> int:
    """Return how many ranges the steps of so many tiles are divided into."""
    return min(tiles, target.sms)


def check_ranges(p: MatmulParameters, problem: Product) -> Refusal | None:
    """Return why the steps of all tiles cannot be divided among the SMs, or None."""
    if not p.in_ranges:
        return None
    if p.kernel != "split_k" or not p.converted:
        because = "`ranges` (stream-K) needs 8-bit or 4-bit weights and kernel `split_k`"
        return Refusal("splits", because)
    if p.splits != PARTS or p.ctas > 1 or p.leaves_halves:
        because = f"`ranges` (stream-K) needs no clusters, splits of {PARTS}, and f32 partial sums"
        return Refusal("splits", because)
    if problem.cuts or problem.batches != 1:
        return Refusal("splits", "`ranges` (stream-K) does not support a dual GEMM")
    if not (problem.m.is_const and problem.n.is_const and problem.k.is_const):
        return Refusal("splits", "`ranges` (stream-K) needs static sizes")
    return None
