"""Random numbers of vectors shorter than a Philox block, on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_hopper_on_cpu import dies, wrong
from test_regressions import FOLDER

from fusec import target
from fusec.ir.graph import Fusion
from fusec.parse.reader import read_file
from fusec.schedule.plan import KernelPlan
from fusec.schedule.registry import find_scheduler

NAMES = ("random_numbers_beside_doubles", "random_numbers_beside_padded_rows")


def planned(name: str) -> tuple[Fusion, KernelPlan]:
    """Return a fusion and its plan."""
    fusion = read_file(FOLDER / f"{name}.yaml")
    family: Any = find_scheduler("pointwise")
    return fusion, family.build(fusion, target.find("sm_90a"))


@pytest.mark.parametrize("name", NAMES)
def test_random_numbers_of_short_vectors_are_right(name: str, tmp_path: Path) -> None:
    assert wrong(*planned(name), tmp_path) == ""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (NAMES[0], "first % 4 + i", "4 % first + i"),
        (NAMES[0], "pick_word(words, first % 4 + i)", "pick_word(words, first % 4)"),
        (NAMES[1], "which & 2 ? right : left", "left"),
    ],
)
def test_wrong_words_are_seen(name: str, old: str, new: str, tmp_path: Path) -> None:
    dies(*planned(name), old, new, tmp_path)
