"""Memory packing: offsets of blocks such that those in use at the same time do not overlap."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from fusec.dataclasses import dataclass

MOST = 100_000
"""Maximum number of pairs of blocks to look at: 0.1 s; real graphs take a few hundred."""


@dataclass(frozen=True)
class Block:
    """A block of memory to place.

    size: in bytes; first, last: the first and last instruction that uses it; overlapping: numbers
    of the blocks that are in use at the same time.
    """

    size: int
    first: int
    last: int
    overlapping: frozenset[int]


def least_size(blocks: Sequence[Block]) -> int:
    """Return the peak of the bytes in use, a lower bound for every placement."""
    starts = {b.first for b in blocks}
    return max((sum(b.size for b in blocks if b.first <= t <= b.last) for t in starts), default=0)


def size_of(blocks: Sequence[Block], offsets: Sequence[int]) -> int:
    """Return the end of the last block, in bytes."""
    return max((o + b.size for b, o in zip(blocks, offsets, strict=True)), default=0)


def pack(blocks: Sequence[Block], most: int = MOST) -> list[int]:
    """Return the offset of each block, such that blocks in use at the same time do not overlap.

    Blocks are placed greedily at the lowest offset, or in the tightest gap, in several orders;
    then, starting with the best, the block with the highest end is moved to the front of the order,
    repeatedly, until an order repeats.
    """
    least, effort = least_size(blocks), len(blocks) + sum(len(b.overlapping) for b in blocks)
    tried: list[tuple[int, int, list[int], list[int], bool]] = []
    for key in _KEYS:
        order = sorted(range(len(blocks)), key=lambda k: (key(blocks[k]), k))
        for tight in (False, True):
            found = _placed(blocks, order, tight)
            size = size_of(blocks, found)
            tried.append((size, len(tried), found, order, tight))
            most -= effort
            if size == least or most < 0:
                return min(tried)[2]
    best = min(tried)[:3]
    for _, number, found, order, tight in sorted(tried):
        highest, seen = _highest(blocks, found), {tuple(order)}
        while most > 0 and order[0] != highest:
            order = [highest, *(k for k in order if k != highest)]
            if tuple(order) in seen:
                break
            seen.add(tuple(order))
            found = _placed(blocks, order, tight)
            size = size_of(blocks, found)
            best = min(best, (size, number, found))
            if size == least:
                return found
            highest = _highest(blocks, found)
            most -= effort
    return best[2]


_KEYS: tuple[Callable[[Block], tuple[int, ...]], ...] = (
    lambda b: (b.first, -b.last),
    lambda b: (-b.size, b.first),
    lambda b: (-b.size * (b.last - b.first + 1),),
    lambda b: (b.first - b.last, -b.size),
    lambda b: (-b.last, -b.size),
)
"""Sort keys: by time, by size, by both, longest first, and backwards in time."""


def _highest(blocks: Sequence[Block], offsets: Sequence[int]) -> int:
    return max(range(len(blocks)), key=lambda k: (offsets[k] + blocks[k].size, -k))


def _placed(blocks: Sequence[Block], order: Collection[int], tight: bool) -> list[int]:
    """Return offsets of blocks placed in an order: lowest, or in the tightest gap that fits."""
    offsets: dict[int, int] = {}
    for k in order:
        size, top = blocks[k].size, 0
        gaps: list[tuple[int, int]] = []
        taken = sorted((offsets[o], blocks[o].size) for o in blocks[k].overlapping if o in offsets)
        for start, length in taken:
            if start - top >= size:
                gaps.append((start - top, top))
            top = max(top, start + length)
        if not gaps:
            offsets[k] = top
        else:
            offsets[k] = min(gaps)[1] if tight else gaps[0][1]
    return [offsets[k] for k in range(len(blocks))]
