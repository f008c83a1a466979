"""Which lines of headers and templates run on the host, as lines_on_cpu.py tells."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lines_on_cpu import has, statements, template_lines, unreached
from paths import ROOT, TESTS


def test_statements_of_a_template() -> None:
    text = (
        "{# one\ntwo #}\n{% if x %}\n  const int row = {{ k.row }} * kVec;\n  }\n#pragma unroll\n"
    )
    assert list(template_lines(text)) == [(4, ["const int row = ", " * kVec;"])]
    assert "_nest.j2" in statements("pointwise.cu.j2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("const int row = a * kVec;", True),
        ("const int row = a * kWide; const int row = b * kVec;", True),
        ("const int row = a * kWide;", False),
        ("b * kVec; const int row = a;", False),
    ],
)
def test_a_kernel_has_a_statement(text: str, expected: bool) -> None:
    assert has(text, ["const int row = ", " * kVec;"]) == expected


def test_lines_without_tests_are_told() -> None:
    told = list(unreached({"philox.cuh": {"51": ["test"], "52": []}}))
    assert [number for name, number, _ in told if name == "philox.cuh"] == [52]
    assert ("shuffle.cuh", 0, "no test includes it") in told


@pytest.mark.nightly
def test_lines_are_counted_where_they_run(tmp_path: Path) -> None:
    record = tmp_path / "lines.json"
    command = [sys.executable, TESTS / "lines_on_cpu.py", record]
    command += [TESTS / "codegen" / "test_draws_on_cpu.py", "-m", "(nightly or not nightly)"]
    subprocess.run(command, check=True)
    lines = json.loads(record.read_text())["philox.cuh"]
    header = ROOT / "fusec" / "templates" / "device" / "philox.cuh"
    numbers = {line.strip(): str(n) for n, line in enumerate(header.read_text().splitlines(), 1)}
    few = "for (int i = 0; i < kCount; ++i) result.word[i] = pick_word(words, first % 4 + i);"
    assert any("beside_doubles" in test for test in lines[numbers[few]])
    assert lines.get(numbers["const double radius = sqrt(-2.0 * log(first));"], []) == []
