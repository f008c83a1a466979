"""Scales and zero points of weights: what L2 is to fetch is what will be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_emulator import Raw

SECTOR = 32
COUNT = 4096
PREFETCH = 'asm volatile("prefetch.global.L2 [%0];" : : "l"(address));'
MARK = "atomicMax(reinterpret_cast<u32*>(reinterpret_cast<u64>(address) & ~u64{3}), 1u);"
"""Several threads may fetch a sector."""
FORMS = {
    "across K": (1, 1, 256, 300, 128, (2, 7)),
    "across K, beyond the last column": (1, 1, 176, 173, 128, (0, 3)),
    "along K": (1, 40, 1, 70, 0, (3, 37)),
    "along K, one": (1, 24, 1, 64, 0, (5, 6)),
    "two rows each": (2, 1, 64, 100, 64, (1, 4)),
    "neither": (1, 48, 3, 60, 0, (2, 12)),
}
"""Rows of a scale, the strides of rows and of steps, how many rows, the first, and the steps."""
ROWS = 64


def marked(name: str, folder: Path, edit: Callable[[str], str] = str) -> tuple[set[int], set[int]]:
    """Return the sectors of scales that are fetched, and those that are read."""
    each, stride, depth, extent, position, (begin, end) = FORMS[name]
    text = f"""#include "block_scales.cuh"
    extern "C" __global__ void kernel(fusec::bf16* s) {{
      const fusec::BlockScales<{each}, fusec::bf16, int> scales =
          {{s, {position}, {extent}, {stride}, {depth}}};
      scales.prefetch<{ROWS}>({begin}, {end}, threadIdx.x, 48);
    }}"""
    raw = Raw(text, {"s": np.zeros(COUNT, np.uint16)}, block=48)
    found = raw.run(folder, edit=lambda t: edit(t).replace(PREFETCH, MARK))["s"]
    first = found.ctypes.data
    rows = np.minimum(position + np.arange(ROWS), extent - 1) // each * stride
    read = rows[:, None] + np.arange(begin, end) * depth
    fetched = np.flatnonzero(found)
    return ({int(i) for i in (first + 2 * fetched) // SECTOR},
            {int(i) for i in (first + 2 * read.ravel()) // SECTOR})  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_what_is_read_is_fetched_and_nothing_else(name: str, tmp_path: Path) -> None:
    fetched, read = marked(name, tmp_path)
    assert fetched == read


WRONG = {
    "the last of a run": ("along K", "(length + each - 2) / each + 1", "length / each"),
    "all runs": ("across K", "i < runs * parts", "i < runs"),
    "rows that share one": ("two rows each", "within * kRows", "within"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_left_out_is_seen(name: str, tmp_path: Path) -> None:
    form, old, new = WRONG[name]

    def edit(text: str) -> str:
        return text.replace(old, new)

    fetched, read = marked(form, tmp_path, edit)
    assert fetched != read
