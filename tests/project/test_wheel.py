"""The wheel: what it holds, and what the command line says of what it leaves out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from paths import ROOT

from fusec.version import __version__

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of the wheel, as the build backend selects them."""
    folder = tmp_path_factory.mktemp("installed")
    for file in WheelBuilder(str(ROOT)).recurse_included_files():
        to = folder / file.distribution_path
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.path, to)
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
    assert not (installed / "tools").exists()
    assert (installed / "fusec" / "target" / "sm_90a.toml").exists()


def test_the_wheel_holds_documentation_and_examples(installed: Path) -> None:
    share = installed / "fusec" / "share"
    for folder, ending in (("docs", "*.md"), ("examples", "*.yaml"), ("examples", "*.py")):
        ours = (p.relative_to(ROOT) for p in (ROOT / folder).rglob(ending))
        ours = {p for p in ours if not {"golden", "generated"} & {*p.parts}}
        assert {p.relative_to(share) for p in (share / folder).rglob(ending)} == ours
    top = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}
    assert {p.name for p in share.iterdir()} == {"docs", "examples", *top}


def test_links_between_pages_of_the_wheel_lead_to_files(installed: Path) -> None:
    share = installed / "fusec" / "share"
    for page in share.rglob("*.md"):
        for link in re.findall(r"\]\((?!\w+:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.relative_to(share)}: {link}"


def test_versions_agree() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert PROJECT["version"] == __version__
    assert f"\n## {__version__}\n" in changes


@pytest.mark.parametrize(
    "arguments", [[], ["fuzz"], ["fuzz", "--seed", "3", "-j", "2"], ["reduce", "x"], ["--help"]]
)
def test_dev_says_where_its_tools_are(installed: Path, arguments: list[str]) -> None:
    done = fusec(installed, "dev", *arguments)
    assert done.returncode == 3
    tool = "reduce" if "reduce" in arguments else "fuzz"
    assert done.stderr.startswith(
        f"unsupported: `fusec dev {tool}` is `python -m tools.{tool}` now"
    )
    assert not done.stdout


def test_everything_else_works_without_it(installed: Path, tmp_path: Path) -> None:
    """With an example of the wheel's own, as somebody finds it who has nothing else."""
    share = installed / "fusec" / "share"
    example = str(share / "examples" / "softmax.yaml")
    commands = [["docs"], ["docs", "files"], ["docs", "examples"]]
    commands += [["check", example], ["dump", example], ["explain", example], ["ops"]]
    commands += [["explain", example, "--html", str(tmp_path / "page.html")]]
    code = f"from fusec.cli import run_main\nfor c in {commands}: assert run_main(c) == 0, c"
    done = python(installed, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"in {share}:\n")
    assert f"\n{example}\n" in done.stdout
