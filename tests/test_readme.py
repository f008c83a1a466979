"""Every command of the README is there: run where it is quick, parsed where it is long."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from fusec.cli import cli, run_main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_two_commands_install_what_the_project_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    main_job, tests = blocks("sh")
    assert "pip install -q . &&" in main_job
    assert "fusec run examples/layernorm.yaml" in main_job
    assert "'.[dev]'" in tests
    assert "pytest" in tests
    assert {"dev", "cu12"} <= set(project["optional-dependencies"])
    assert project["scripts"]["fusec"] == "fusec.cli:main"


def test_the_main_job_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (job,) = [b for b in blocks("sh") if "fusec run" in b]
    arguments = shlex.split(job.split("fusec run", 1)[1])
    assert run_main(["run", *arguments, "--set", "B=64", "--device", "reference"]) == 0
    assert "layernorm" in capsys.readouterr().out


def test_the_fusion_of_the_readme_is_the_example(tmp_path: Path) -> None:
    from fusec.parse import read_file, read_text

    (text,) = blocks("yaml")
    example = read_file(ROOT / "examples" / "layernorm.yaml")
    written = read_text(text)
    assert [v.name for v in written.values][:4] == [v.name for v in example.values][:4]
    assert written.outputs[0].value.dtype == example.outputs[0].value.dtype


def commands() -> list[tuple[str, list[str]]]:
    """Return (command, flags named beside it) for each row of the table of commands."""
    rows = re.findall(r"^\| (`fusec [^|]*) \|([^|]*)\|", README, re.MULTILINE)
    found: list[tuple[str, list[str]]] = []
    for names, text in rows:
        flags = re.findall(r"`(--[\w-]+)", names + text)
        for name in re.findall(r"`fusec (\w+)", names):
            found.append((name, flags))
    return found


@pytest.mark.parametrize(
    ("name", "flags"), commands(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_commands_and_flags_of_the_table_exist(name: str, flags: list[str]) -> None:
    command = cli.commands[name]
    known = {o.replace("_", "-") for p in command.params for o in p.opts}
    values = {str(c) for p in command.params for c in getattr(p.type, "choices", ())}
    missing = [f for f in flags if f.replace("_", "-") not in known | values]
    assert not missing


@pytest.mark.parametrize("command", ["ops", "ops rsqrt", "schema", "check examples/layernorm.yaml"])
def test_quick_commands_run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert run_main(shlex.split(command)) == 0
