"""`--format github`: diagnostics and golden differences as annotations of GitHub Actions."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import SMALL, fusec, small

from fusec.commands.terminal.annotations import annotation
from fusec.diagnostics import Diagnostic, Span

Capture = pytest.CaptureFixture[str]


def printed(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("::")]


def test_errors_and_warnings_stand_at_their_lines(tmp_path: Path, capsys: Capture) -> None:
    file = small(tmp_path, SMALL.replace("exp(", "epx("))
    done = fusec(capsys, "check", file, "--format", "github")
    (only,) = printed(done.out)
    assert only.startswith(
        f"::error file={file},line=9,col=9,endColumn=12::unknown operation `epx`"
    )
    assert done.code == 2
    assert "error" in done.err  # people read it, too
    unused = small(tmp_path, SMALL.replace("inputs:\n", "inputs:\n  unused: f32[B]\n"))
    (only,) = printed(fusec(capsys, "check", unused, "--format", "github").out)
    assert only.startswith(f"::warning file={unused},line=5,")
    assert printed(fusec(capsys, "check", unused).out) == []


def test_each_of_several_files_has_its_own(tmp_path: Path, capfd: Capture) -> None:
    files = [small(tmp_path, SMALL.replace("exp(", "epx("), f"{n}.yaml") for n in "ab"]
    done = fusec(capfd, "check", *files, "--format", "github")
    assert [line.partition(",")[0] for line in printed(done.out)] == [
        f"::error file={file}" for file in files
    ]


def test_golden_files_that_differ(tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    file, given = small(tmp_path), ("--target", "sm_90a", "--format", "github")
    (only,) = printed(fusec(capsys, "golden", file, *given).out)
    assert only.startswith(f"::error file={file},line=1,")
    assert fusec(capsys, "golden", file, *given, "--update").code == 0
    assert printed(fusec(capsys, "golden", file, *given).out) == []
    (cuda,) = (tmp_path / "golden" / "small").glob("*.cu")
    lines = cuda.read_text().splitlines(keepends=True)
    cuda.write_text("".join([*lines[:3], "// edited\n", *lines[3:]]))
    done = fusec(capsys, "golden", file, *given)
    assert done.code == 1
    (only,) = printed(done.out)
    assert only.startswith(f"::error file={cuda},line=4,")


def test_what_github_reads_otherwise_is_escaped() -> None:
    span = Span("a,b:c%.yaml", 3, 5, 2)
    found = annotation(Diagnostic("error", "50 %\n::stop", span, ("a note",), "mend it"))
    place = "file=a%2Cb%3Ac%25.yaml,line=3,col=5,endColumn=7"
    assert found == f"::error {place}::50 %25%0A::stop%0Aa note%0Ahelp: mend it"
    assert annotation(Diagnostic("environment", "no GPU")) == "::error::no GPU"
