"""The wheel: what it holds, and what the command line says of what it leaves out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from paths import ROOT

WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that holds what the wheel would, by the package list of pyproject.toml."""
    wheel = WHEEL["build"]["targets"]["wheel"]
    left_out = {ROOT / path for path in wheel["exclude"]}
    folder = tmp_path_factory.mktemp("installed")

    def ignored(at: str, names: list[str]) -> list[str]:
        return [n for n in names if Path(at) / n in left_out or n == "__pycache__"]

    for package in wheel["packages"]:
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    return folder


def fusec(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(installed, "-m", "fusec", *arguments)


def python(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=installed, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_wheel_holds_no_tools_for_work_on_fusec(installed: Path) -> None:
    assert not (installed / "fusec" / "dev").exists()
    assert (installed / "fusec" / "target" / "sm_90a.toml").exists()


@pytest.mark.parametrize(
    "arguments", [[], ["fuzz"], ["fuzz", "--seed", "3", "-j", "2"], ["reduce", "x"], ["--help"]]
)
def test_dev_says_that_it_is_part_of_a_checkout(installed: Path, arguments: list[str]) -> None:
    done = fusec(installed, "dev", *arguments)
    assert done.returncode == 3
    assert done.stderr.startswith("unsupported: `fusec dev` is part of a checkout of fusec")
    assert not done.stdout


def test_everything_else_works_without_it(installed: Path) -> None:
    example = str(ROOT / "examples" / "softmax.yaml")
    commands = [["check", example], ["dump", example], ["explain", example], ["ops"]]
    code = f"from fusec.cli import run_main\nfor c in {commands}: assert run_main(c) == 0, c"
    done = python(installed, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert "only a checkout has them" in fusec(installed, "--help").stdout
