"""The tutorial: its files and commands in order, as a reader types them, print what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from paths import ROOT

from fusec.cli import run_main
from fusec.run.device import device_available

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
FAILS = {"wrong.yaml": 2}
"""Exit codes of the commands that are shown to fail, by their file."""


def commands() -> list[tuple[list[str], list[str]]]:
    """Return the arguments of each command, and the lines that are shown of its output."""
    shown = "".join(text for kind, text in BLOCKS if kind == "console")
    parts = re.split(r"^\$ fusec ", shown, flags=re.MULTILINE)[1:]
    return [(shlex.split(part.splitlines()[0]), part.splitlines()[1:]) for part in parts]


@pytest.mark.nightly
def test_commands_print_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FUSEC_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    fusion, schedule = (text for kind, text in BLOCKS if kind == "yaml")
    Path("geglu.yaml").write_text(fusion, encoding="utf-8")
    Path("faster.yaml").write_text(schedule, encoding="utf-8")
    Path("wrong.yaml").write_text(fusion.replace("gelu(", "geluu("), encoding="utf-8")
    assert len(commands()) >= 9
    for arguments, shown in commands():
        code = next((FAILS[a] for a in arguments if a in FAILS), 0)
        assert run_main(arguments) == code, arguments
        said = capsys.readouterr()
        if device_available() is None and arguments[0] == "run":
            continue  # a GPU measures what is predicted here
        lines = (said.err if code else said.out).splitlines()
        for line in shown:
            assert line == "..." or _shown(line) in [_shown(found) for found in lines], line


def _shown(line: str) -> str:
    """Return a line without the reason why there is no GPU."""
    return re.sub(r"^(not verified on a GPU: ).*$", r"\1", line)


def test_the_first_command_is_that_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (arguments, _), *_ = commands()
    assert f"fusec {shlex.join(arguments)}\n" in readme
