"""Fusions that once came out wrong on a GPU, run on the host."""

from __future__ import annotations

import pytest
from complex_on_cpu import check_on_cpu
from test_regressions import FOLDER

from fusec.files import with_planned_strides
from fusec.parse import read_text

NAMES = ("places_that_differ_by_line", "rows_stored_of_what_all_share")


@pytest.mark.parametrize("name", NAMES)
def test_is_right_on_the_host(name: str) -> None:
    path = FOLDER / f"{name}.yaml"
    check_on_cpu(with_planned_strides(read_text(path.read_text(), path.name)))
