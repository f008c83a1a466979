"""Commands on several files: each as alone, in order, with one summary and one exit code."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from fusec.cli import run_main
from fusec.commands.terminal import several

GOOD = "fusion: {name}\ninputs: {{x: 'f32[8]'}}\nops:\n  - y = neg(x)\noutputs: [y]\n"
BAD = "fusion: bad\ninputs: {x: 'f32[8]'}\nops:\n  - y = neg(z)\noutputs: [y]\n"
UNSUPPORTED = (
    "fusion: four\ninputs: {x: 'f32[16]'}\nops:\n  - y = nv_block_quantize(x)\noutputs: [y]\n"
)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    texts = {"a": GOOD.format(name="a"), "bad": BAD, "c": GOOD.format(name="c")}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    return [str(tmp_path / f"{name}.yaml") for name in texts]


def test_files_are_checked_in_order(files: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run_main(["check", *files, "-j", "2"]) == 2
    said = capfd.readouterr()
    heads = [line for line in said.out.splitlines() if line.startswith("== ")]
    assert heads == [f"== {file}" for file in files]
    assert said.out.index("a: 1 operation") < said.out.index("c: 1 operation")
    assert said.err.count("undefined name `z`") == 1
    assert said.err.endswith(f"3 files: 2 ok\n  exit code 2: {files[1]}\n")


def test_the_highest_exit_code_counts(
    files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    four = tmp_path / "four.yaml"
    four.write_text(UNSUPPORTED, encoding="utf-8")
    assert run_main(["check", str(four), *files]) == 3
    assert run_main(["check", files[0], files[2]]) == 0
    assert capfd.readouterr().err.endswith("2 files: 2 ok\n")


def test_tools_get_one_object(files: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run_main(["check", *files, "--json"]) == 2
    (first, bad, last) = json.loads(capfd.readouterr().out)["files"]
    assert [e["exit_code"] for e in (first, bad, last)] == [0, 2, 0]
    assert [e["file"] for e in (first, bad, last)] == files
    assert first["fusions"][0]["name"] == "a"
    assert bad["diagnostics"][0]["message"] == "undefined name `z`"


def test_each_has_a_folder_of_its_own(files: list[str], tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    out = tmp_path / "out"
    given = ["compile", files[0], files[2], "-o", str(out), "--target", "sm_90a"]
    assert run_main(given) == 0
    assert {p.parent.name for p in out.glob("*/manifest.json")} == {"a", "c"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["{0}", "{0}"], "a file is specified twice"),
        (["{0}", "-"], "`-` (standard input)"),
        (["{0}", "{2}", "--html", "page.html"], "--html takes one file, got 2"),
    ],
)
def test_what_is_of_one_file(
    files: list[str], more: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_main(["explain", *(word.format(*files) for word in more)]) == 2
    assert message in capfd.readouterr().err


def test_two_files_of_one_name(
    files: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other" / "a.yaml"
    other.parent.mkdir()
    other.write_text(GOOD.format(name="b"), encoding="utf-8")
    assert run_main(["compile", files[0], str(other), "-o", str(tmp_path / "out")]) == 2
    assert "two files are named `a`" in capfd.readouterr().err


def test_a_process_that_is_killed_is_told() -> None:
    def killed() -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    first, second = several._all({"x": killed, "y": lambda: 3}, 1)
    assert (first.file, first.code, second.code) == ("x", 4, 3)
    assert "was killed by signal 9" in first.err
