"""How many blocks share a result, how they combine its parts, and how long that takes."""

from __future__ import annotations

from math import isqrt

from fusec.dataclasses import dataclass
from fusec.schedule.grid_methods import REDUCTION_METHODS
from fusec.schedule.space import power_above
from fusec.target.costs import GridReduceCost

MOST_WAVES = 8
"""Waves of blocks beyond which the occupancy of the last one matters little."""


@dataclass(frozen=True)
class GridReduction:
    """Blocks that may share their results with others.

    blocks: those with distinct results; busy, resident: blocks that saturate an SM, and that fit on
    it; `draw`: how much more than its share of the bandwidth an SM can use; stream: seconds in
    which busy SMs read all; vain: the part of that which another block reads redundantly; threads,
    step, cost: as for `seconds`.
    """

    blocks: int
    busy: int
    resident: int
    sms: int
    draw: float
    stream: float
    vain: float
    threads: int
    step: float
    cost: GridReduceCost

    def splits(self, most: int) -> int:
        """Return the best number of blocks per result, at most `most`."""
        per_sm = [*range(1, self.resident + 1)]
        per_sm += [self.resident * waves for waves in range(2, MOST_WAVES + 1)]
        wanted = [k * self.sms // self.blocks + up for k in per_sm for up in (0, 1)]
        found = {min(most, max(1, number)) for number in wanted}
        return min(found, key=lambda number: (self.seconds(number), number))

    def seconds(self, splits: int) -> float:
        """Return the approximate seconds with `splits` blocks per result.

        All resident blocks read at the same rate. The last ones, like any that do not fill the SMs,
        read no faster.
        """
        blocks, places = self.blocks * splits, self.sms * self.resident
        waves, last = divmod(blocks, places)
        least = min(places, self.busy * self.sms)
        idle = (waves * places + (max(last, least) if last else 0)) / blocks
        if not waves:
            idle = max(idle, -(-blocks // self.sms) / (blocks / self.sms) / self.draw)
        method = quickest(splits, self.threads, self.step, self.cost)
        waits = seconds(method, splits, self.threads, self.step, self.cost)
        starts = self.cost.block_start_seconds * min(self.resident, max(1.0, blocks / self.sms))
        return self.stream * idle * (1 + splits * self.vain) + starts + waits


def fan_of(method: str, splits: int) -> int:
    """Return how many blocks' parts the last one combines: all, or about the square root.

    A power of two, so that the sums of a group are a tree over neighbours.
    """
    return power_above(isqrt(splits - 1) + 1) if method == "tree" else splits


def seconds(method: str, splits: int, threads: int, step: float, cost: GridReduceCost) -> float:
    """Return the seconds from the last partial result to the combined result.

    threads: those that add parts in parallel; step: seconds per part that one adds.
    """
    if splits == 1:
        return 0.0
    known = REDUCTION_METHODS[method]
    if known.is_serial:
        return cost.level_seconds + cost.turn_seconds * (splits - 1)
    if known.in_memory:
        return cost.level_seconds
    fan = fan_of(method, splits)
    first = cost.level_seconds + step * ((fan - 1) // threads)
    if fan == splits:
        return first
    return first + cost.next_level_seconds + step * ((splits - 1) // fan // threads)


def quickest(splits: int, threads: int, step: float, cost: GridReduceCost) -> str:
    """Return the fastest of the methods that the cost model compares."""
    methods = (m.name for m in REDUCTION_METHODS.values() if m.compared)
    return min(methods, key=lambda method: seconds(method, splits, threads, step, cost))
