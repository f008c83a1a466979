"""What the shell completes, as click is asked for it and as bash asks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import ROOT, SMALL, small
from click.shell_completion import ShellComplete

from fusec.cli import cli
from fusec.ops import TABLE
from fusec.target.table import ORDER

ENABLED = 'eval "$(_FUSEC_COMPLETE=bash_source fusec)"'


def test_the_readme_tells_how() -> None:
    assert f"`{ENABLED}`" in (ROOT / "docs" / "commands.md").read_text()


def completed(*words: object) -> list[str]:
    """Return what the last word may become."""
    *before, last = map(str, words)
    shell = ShellComplete(cli, {}, "fusec", "_FUSEC_COMPLETE")
    return [item.value for item in shell.get_completions(before, last)]


def test_operations() -> None:
    assert completed("ops", "") == list(TABLE)
    assert completed("ops", "softm") == ["softmax", "softmin"]
    assert completed("ops", "mult") == ["multiply"], "a name of other frameworks"


def test_codes_of_errors_beside_files() -> None:
    assert completed("explain", "E080") == ["E080", *(f"E080{k}" for k in range(1, 6))]
    assert completed("explain", "exam") == ["exam"], "a path, which the shell completes"


@pytest.mark.parametrize("command", ["compile", "check", "run", "dump", "explain", "diff"])
def test_targets(command: str) -> None:
    assert completed(command, "FILE", "--target", "") == list(ORDER)
    assert completed(command, "--target", "sm_9") == ["sm_90", "sm_90a"]
    assert completed(command, "--target", "sm_90,sm_9") == ["sm_90,sm_90a"]


def test_passes() -> None:
    assert completed("dump", "FILE", "--without", "merge_c") == ["merge_casts"]
    assert completed("dump", "FILE", "--stop-after", "remove_d") == ["remove_dead"]


@pytest.mark.parametrize("last", ["", "outputs: ["])
def test_dims_of_the_file(tmp_path: Path, last: str) -> None:
    """Also of one whose op lines are wrong; a file that is no YAML has none."""
    file = small(tmp_path, SMALL.replace("exp(", "expp(") + last)
    known = [] if last else ["B=8", "H=16"]
    assert completed("compile", file, "--set", "") == known
    assert completed("compile", file, "--set", "B=4", "--set", "H") == known[1:]
    assert completed("compile", "--target", "sm_80", file, "--no-cache", "--set", "H") == known[1:]


def test_dims_of_a_compiled_folder(tmp_path: Path) -> None:
    small(tmp_path, name="fusion.yaml")
    assert completed("run", tmp_path, "--set", "") == ["B=8", "H=16"]


def test_scripts_are_not_run(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    assert completed("compile", script, "--set", "") == []
    assert not (tmp_path / "run").exists()
    assert completed("compile", "--set", "") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(tmp_path: Path) -> None:
    """By the line that the README names, and the protocol of bash."""
    command = tmp_path / "fusec"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m fusec "$@"\n')
    command.chmod(0o755)
    script = f"""
    {ENABLED}
    complete -p fusec
    COMP_WORDS=(fusec compile {small(tmp_path)} --set B) COMP_CWORD=4
    _fusec_completion fusec
    echo "${{COMPREPLY[@]}}"
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout.splitlines() == ["complete -o nosort -F _fusec_completion fusec", "B=8"]
