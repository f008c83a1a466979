"""Offsets of blocks of memory: apart where they must be, and in little more than the least."""

from __future__ import annotations

from itertools import permutations

import pytest
from draws import times
from hypothesis import given, settings
from hypothesis import strategies as st
from least_packing import least_packing

from fusec.hostir import packing
from fusec.hostir.packing import Block, least_size, pack, size_of


def blocks_of(*spans: tuple[int, int, int]) -> list[Block]:
    """Return blocks of (size, first, last)."""
    return [
        Block(
            size,
            first,
            last,
            frozenset(
                k
                for k, (_, begin, end) in enumerate(spans)
                if k != number and begin <= last and first <= end
            ),
        )
        for number, (size, first, last) in enumerate(spans)
    ]


@st.composite
def drawn(draw: st.DrawFn, most: int = 8) -> list[Block]:
    count = draw(st.integers(0, most))
    spans: list[tuple[int, int, int]] = []
    for _ in range(count):
        first = draw(st.integers(0, 9))
        spans.append((draw(st.integers(1, 9)), first, first + draw(st.integers(0, 5))))
    return blocks_of(*spans)


def optimum(blocks: list[Block]) -> int | None:
    found = size_of(blocks, pack(blocks))
    return least_packing([b.size for b in blocks], [b.overlapping for b in blocks], found)


def by_all_orders(blocks: list[Block]) -> int:
    """Return the least size over all orders of placing each block at the lowest free offset."""
    best = sum(b.size for b in blocks)
    for order in permutations(range(len(blocks))):
        offsets: dict[int, int] = {}
        for k in order:
            spans = sorted(
                (offsets[o], blocks[o].size) for o in blocks[k].overlapping if o in offsets
            )
            at = 0
            for start, size in spans:
                if start - at >= blocks[k].size:
                    break
                at = max(at, start + size)
            offsets[k] = at
        best = min(best, size_of(blocks, [offsets[k] for k in range(len(blocks))]))
    return best


def check_apart(blocks: list[Block], offsets: list[int]) -> None:
    for k, block in enumerate(blocks):
        for other in block.overlapping:
            below = offsets[k] + block.size <= offsets[other]
            assert below or offsets[other] + blocks[other].size <= offsets[k], (blocks, offsets)


@settings(max_examples=40, deadline=None)
@given(drawn())
def test_blocks_in_use_at_once_lie_apart(blocks: list[Block]) -> None:
    offsets = pack(blocks)
    check_apart(blocks, offsets)
    assert size_of(blocks, offsets) >= least_size(blocks)


def test_blocks_on_one_another_are_seen() -> None:
    with pytest.raises(AssertionError):
        check_apart(blocks_of((4, 0, 1), (4, 1, 2)), [0, 3])


@settings(max_examples=times(20), deadline=None)
@given(drawn())
def test_packings_are_within_a_tenth_of_the_optimum(blocks: list[Block]) -> None:
    found, least = size_of(blocks, pack(blocks)), optimum(blocks)
    assert least is not None
    assert least_size(blocks) <= least <= found <= 1.1 * least


@settings(max_examples=25, deadline=None)
@given(drawn(most=5))
def test_the_search_finds_what_all_orders_find(blocks: list[Block]) -> None:
    assert optimum(blocks) == by_all_orders(blocks)


def test_first_fit_takes_more() -> None:
    # In the order of time the third block would lie above both others.
    blocks = blocks_of((1, 0, 1), (3, 1, 4), (4, 2, 5))
    assert size_of(blocks, pack(blocks)) == least_size(blocks) == 7


def test_no_order_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that streams keep apart are not in use at once: the least size cannot be reached."""
    placed, orders = packing._placed, list[tuple[int, ...]]()  # pyright: ignore[reportPrivateUsage]

    def noting(blocks: list[Block], order: list[int], tight: bool) -> list[int]:
        orders.append(tuple(order))
        return placed(blocks, order, tight)

    monkeypatch.setattr(packing, "_placed", noting)
    blocks = [Block(4, 0, 1, frozenset({1})), Block(4, 2, 3, frozenset({0}))]
    assert sorted(pack(blocks)) == [0, 4]
    assert len(orders) <= 10 + 10 * 2


def test_a_search_without_an_end_says_so() -> None:
    blocks = blocks_of(*((k % 3 + 1, k % 4, k % 4 + 2) for k in range(9)))
    total = sum(b.size for b in blocks)
    assert (
        least_packing([b.size for b in blocks], [b.overlapping for b in blocks], total, 3) is None
    )


def test_nothing_takes_nothing() -> None:
    assert pack([]) == []
    assert least_size([]) == size_of([], []) == 0
