"""Sectors of memory that a tensor lies in, against every address of small ones."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusec.bench import sectors as module
from fusec.bench.sectors import SECTOR, sectors


def by_address(shape: list[int], strides: list[int], size: int, offset: int) -> int:
    """Return the sectors of all bytes of all elements."""
    found: set[int] = set()
    for place in product(*map(range, shape)):
        first = offset + size * sum(i * s for i, s in zip(place, strides, strict=True))
        found |= {byte // SECTOR for byte in (first, first + size - 1)}
    return len(found)


LAYOUTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40)), max_size=4)


@settings(max_examples=200, deadline=None)
@given(LAYOUTS, st.sampled_from([1, 2, 4, 8]), st.integers(0, 64), st.sampled_from([1, 3, 1 << 20]))
def test_sectors_are_counted_as_by_address(
    layout: list[tuple[int, int]], size: int, offset: int, most: int
) -> None:
    shape, strides = [e for e, _ in layout], [s for _, s in layout]
    kept, module.MOST_RUNS = module.MOST_RUNS, most
    try:
        found = sectors(shape, strides, size, offset * size)
    finally:
        module.MOST_RUNS = kept
    assert found == by_address(shape, strides, size, offset * size)


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((1 << 30,), (1,), 1 << 27),  # dense
        ((8192, 8192), (1, 8192), 1 << 23),  # transposed
        ((1024, 1 << 20), (0, 1), 1 << 17),  # expanded
        ((1 << 20, 1), (8, 1), 1 << 20),  # one element of each sector
        ((4 << 20, 3), (6, 1), 3 << 20),  # half of each row, rows that share sectors
    ],
)
def test_large_tensors_are_counted_without_going_over_them(
    shape: tuple[int, ...], strides: tuple[int, ...], expected: int
) -> None:
    assert sectors(shape, strides, 4) == expected
