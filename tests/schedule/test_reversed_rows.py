"""Rows that are read backwards, or in steps, are rows: one kernel, threads along memory."""

from __future__ import annotations

import pytest

from fusec.driver import Compilation
from fusec.options import CompileOptions
from fusec.parse import read_text


def schedulers(ops: str) -> list[str]:
    """Return the schedulers of a fusion's segments."""
    lines = "".join(f"  - {line}\n" for line in ops.split("; "))
    text = f"fusion: rows\ninputs:\n  x: f32[8192, 1024]\nops:\n{lines}outputs: [y]\n"
    program = Compilation(read_text(text), CompileOptions(targets=("sm_90a",)))
    return [s.scheduler for s in program.segmented.segments]


@pytest.mark.parametrize("part", ["flip(x, [1])", "x[:, ::2]", "flip(x, [0, 1])"])
def test_a_softmax_of_reversed_rows_is_one_kernel(part: str) -> None:
    assert schedulers(f"a = {part}; y = softmax(a, 1)") == ["inner_persistent"]
