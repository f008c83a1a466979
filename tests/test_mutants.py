"""The rules by which wrong kernels are drawn, and the record of the last draw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mutants import COUNT, SEED, changed

RECORD = Path(__file__).with_name("mutants_record.json")


@pytest.mark.parametrize(
    ("rule", "line", "expected"),
    [
        ("dropped", "    __syncthreads();", [""]),
        ("dropped", "  fusec::copy_wait<kStages - 2>();", [""]),
        ("parity", "  full[stage].wait(parity);", ["  full[stage].wait((parity) ^ 1);"]),
        ("offset", "  store(y + row, x);", ["  store(y - row, x);"]),
        ("factor", "  x = row * kVec;", ["  x = row + kVec;"]),
        ("predicate", "  if (row < rows) y = 0;", ["  if (!(row < rows)) y = 0;"]),
        ("bound", "  if (row >= rows) return;", ["  if (row > rows) return;"]),
        ("swapped", "  y = a - b;", ["  y = b - a;"]),
    ],
)
def test_a_rule_changes_a_line(rule: str, line: str, expected: list[str]) -> None:
    assert list(changed(rule, line)) == expected


def test_the_record_is_of_the_last_draw() -> None:
    record = json.loads(RECORD.read_text())
    alive = [m for m in record["mutants"] if not m["dies"]]
    assert (record["seed"], len(record["mutants"])) == (SEED, COUNT)
    assert (record["died"], record["lived"]) == (COUNT - len(alive), len(alive))
    assert all(m["argument"] for m in alive)
