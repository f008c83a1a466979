"""The rules by which wrong kernels are drawn, and the record of the last draw."""

from __future__ import annotations

import json
from pathlib import Path

import device_mutants
import pytest
from mutants import COUNT, SEED, changed
from paths import TESTS

RECORD = TESTS / "mutants_record.json"


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


def test_the_record_of_headers_and_templates_is_of_its_last_draw() -> None:
    path = TESTS / "device_mutants_record.json"
    record = json.loads(path.read_text())
    alive = [m for m in record["mutants"] if not m["dies"]]
    assert (record["seed"], len(record["mutants"])) == (device_mutants.SEED, device_mutants.COUNT)
    assert (record["died"], record["lived"]) == (len(record["mutants"]) - len(alive), len(alive))
    assert all(m["argument"] for m in alive)


def test_headers_and_templates_are_drawn_from() -> None:
    drawn = list(device_mutants.draw(200, device_mutants.SEED))
    assert len({m.file for m in drawn}) > 50
    for mutant in drawn:
        lines = (device_mutants.TEMPLATES / mutant.file).read_text().splitlines()
        assert lines[mutant.number - 1] == mutant.before != mutant.after


def test_a_mutant_is_tried_by_the_tests_that_reach_its_line() -> None:
    mutant = next(device_mutants.draw(1, device_mutants.SEED))
    near = {str(mutant.number - 1): ["near"], "1": ["far"], str(mutant.number + 1): ["behind"]}
    lines = {Path(mutant.file).name: near}
    assert device_mutants.tests_of(mutant, lines) == ["near"]
    assert device_mutants.tests_of(mutant, {}) == []
