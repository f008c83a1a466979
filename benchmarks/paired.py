"""Implementations timed in alternating rounds among ranks, and intervals of their ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.programs_ranks import Ranks, Way

WARM, ROUNDS, CALLS = 3, 15, 5
DRAWS, LEVEL = 2000, 0.95


def rounds(ranks: Ranks, ways: Mapping[str, Way], calls: int = CALLS) -> dict[str, list[float]]:
    """Return by name the GPU microseconds of a call in each round, of the slowest rank.

    A round times each implementation once, between events around `calls` calls, so that what
    drifts hits all of a round alike.
    """
    cuda = ranks.torch.cuda
    start, end = (cuda.Event(enable_timing=True) for _ in range(2))
    own: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        for _ in range(WARM):
            way()
    for _ in range(ROUNDS):
        for name, way in ways.items():
            cuda.synchronize()
            ranks.distributed.barrier()
            way()
            start.record()
            for _ in range(calls):
                way()
            end.record()
            cuda.synchronize()
            own[name].append(start.elapsed_time(end) * 1e3 / calls)
    every: list[Any] = [None] * ranks.size
    ranks.distributed.all_gather_object(every, own)
    return {n: [max(each[n][k] for each in every) for k in range(ROUNDS)] for n in ways}


def medians(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of each, in microseconds."""
    return {name: round(float(np.median(times)), 2) for name, times in found.items()}


def ratio(found: Mapping[str, Sequence[float]], over: str, under: str) -> list[float]:
    """Return [median, low, high] of the ratios within rounds: 95 % bootstrap interval."""
    ratios = np.divide(found[over], found[under])
    draws = np.random.default_rng(0).choice(ratios, (DRAWS, len(ratios)))
    tails = (1 - LEVEL) / 2
    low, high = np.quantile(np.median(draws, axis=1), [tails, 1 - tails])
    return [round(float(each), 4) for each in (np.median(ratios), low, high)]
