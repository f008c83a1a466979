"""The least memory in which blocks can lie, some of them in use at once, proven by search.

Every packing can be pushed down until each block lies on the ground or on one in use with it.
Placed in the order of their offsets, each then lies on the highest of those in use with it that are
placed. The search goes through such orders.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

MOST = 200_000
"""Steps of the search, at most."""


def least_packing(
    sizes: Sequence[int], overlapping: Sequence[Collection[int]], known: int, most: int = MOST
) -> int | None:
    """Return the bytes that the blocks take at least; None where that takes more than `most` steps.

    beside: by block the numbers of those in use with it. known: bytes that suffice.
    """
    search = _Search(sizes, overlapping, known, most)
    search.place({}, 0)
    return search.best if search.steps <= most else None


class _Search:
    """The best packing so far, of which only the size is kept."""

    def __init__(
        self, sizes: Sequence[int], overlapping: Sequence[Collection[int]], known: int, most: int
    ) -> None:
        self.sizes, self.overlapping = sizes, overlapping
        self.best, self.most, self.steps = known, most, 0
        self.seen = set[tuple[tuple[int, int], ...]]()

    def place(self, ends: dict[int, int], lowest: int) -> None:
        """Place the blocks that have no end yet, none below `lowest`."""
        self.steps += 1
        if self.steps > self.most:
            return
        rest = [k for k in range(len(self.sizes)) if k not in ends]
        if not rest:
            self.best = min(self.best, max(ends.values(), default=0))
            return
        starts = {
            k: max((ends[o] for o in self.overlapping[k] if o in ends), default=0) for k in rest
        }
        # Each of the rest lies above those beside it that are placed.
        if any(max(starts[k], lowest) + self.sizes[k] >= self.best for k in rest):
            return
        key = tuple(sorted(ends.items()))
        if key in self.seen:
            return
        self.seen.add(key)
        for k in sorted(rest, key=lambda k: (starts[k], -self.sizes[k])):
            if starts[k] >= lowest:
                self.place({**ends, k: starts[k] + self.sizes[k]}, starts[k])
