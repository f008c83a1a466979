"""What the README says works: its commands, options, file and environment."""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import asdict
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import click
import numpy as np
import pytest
from declared import temporary_ops
from paths import ROOT

from fusec import driver
from fusec.cli import cli, run_main
from fusec.options import DUMP_KINDS, ENVIRONMENT, CompileOptions
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.run.device import device_available

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("files", "commands", "verification", "explain", "sharding")
}
TEXT = "\n".join((README, *PAGES.values()))
"""What a user reads first."""


def blocks(text: str, kind: str) -> list[str]:
    return [t for k, t in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL) if k == kind]


SHELL = blocks(README, "sh")
ROWS = [r.split("|")[1] for r in re.findall(r"^(\|.*\|)$", PAGES["commands"], re.MULTILINE)]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

VERBS = "run|check|compile|dump|golden|explain"
COMMANDS = sorted(
    {
        *re.findall(rf"fusec (?:{VERBS}) examples/[\w./-]+\.(?:yaml|py)[^\n`]*", TEXT),
        *(c for row in ROWS for c in re.findall(r"`fusec ([^`]+)`", row)),
    }
)


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("FUSEC_CACHE_DIR", str(tmp_path / "cache"))


def arguments_of(command: str, tmp_path: Path) -> list[str]:
    """Return the arguments of a command of the README, with a small file in place of FILE."""
    words = shlex.split(command.removeprefix("fusec "))
    small = {
        "FILE": "examples/swiglu.yaml",
        "FILE...": "examples/swiglu.yaml",
        "DIR": str(tmp_path),
    }
    return [small.get(w, w) for w in words]


def test_the_readme_is_found() -> None:
    assert len(SHELL) == 2
    assert len(COMMANDS) >= 8
    assert len(EXPLAINED) >= 6


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    assert 80 <= README.count("\n") <= 120
    for path in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / path).is_file(), path


def test_the_output_shown_is_what_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    (text,), (console,) = blocks(README, "yaml"), blocks(README, "console")
    (tmp_path / "rmsnorm.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    line, _, shown = console.partition("\n")
    assert run_main(shlex.split(line.removeprefix("$ fusec "))) == 0
    said = capsys.readouterr().out
    if device_available() is None:  # a GPU measures what is predicted here
        assert said.startswith("rmsnorm: 1 kernel")
    else:
        reason = r"(?m)^(not verified on a GPU: ).*$"
        assert re.sub(reason, r"\1", said) == re.sub(reason, r"\1", shown)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command: str, tmp_path: Path) -> None:
    """Click parses every command; scripts that are examples of a form are left out."""
    name, *rest = arguments_of(command, tmp_path)
    if "script.py" in rest:
        return
    rest = [r for r in rest if r != "..."]
    definition = cli.commands[name]
    definition.make_context(name, list(rest), resilient_parsing=False)


@pytest.mark.parametrize("name", ["check", "ops", "schema", "doctor", "dump"])
def test_quick_commands_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = [] if name in ("ops", "schema", "doctor") else ["examples/swiglu.yaml"]
    assert run_main([name, *file]) == 0
    assert capsys.readouterr().out.strip()


EXPLAINED = [c for c in COMMANDS if re.match(r"fusec (explain|dump) examples/", c)]


SLOW = ("--schedule-space", "--sizes")
"""Options whose commands plan a fusion many times."""


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(c, marks=(pytest.mark.nightly,) if any(o in c for o in SLOW) else ())
        for c in EXPLAINED
    ],
)
def test_commands_that_explain_run(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(command.replace("/tmp/", f"{tmp_path}/"))[1:]
    assert run_main(words) == 0
    said = capsys.readouterr().out
    if "--html" in words:
        assert Path(words[-1]).read_text(encoding="utf-8").startswith("<!doctype html>")
    elif "mermaid" in words:
        (picture,) = blocks(PAGES["explain"], "mermaid")
        assert picture == said
    elif "--schedule-space" in words:
        assert said.startswith("s0 inner_persistent (y): 64 schedules\n")
    elif "--partition" in words:
        assert re.search(r"= all_gather(.|\n)+= reduce_scatter", said)
    elif "--json" not in words:
        assert re.match(rf"{Path(words[1]).stem}(_forward)? on ", said)


def test_compile_writes_what_the_table_says(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    folder = tmp_path / "out"
    given = ["compile", "examples/swiglu.yaml", "-o", str(folder), "--target", "sm_80,sm_90a"]
    assert run_main(given) == 0
    names = {p.name for p in folder.rglob("*")}
    assert {"manifest.json", "fusion.yaml"} <= names
    assert any(n.endswith(".cu") for n in names)
    assert sum(n.endswith(".cubin") for n in names) == 2


@pytest.mark.nightly
def test_ranks_without_gpus_run(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (command,) = [c for c in COMMANDS if "--ranks 4 --device reference" in c]
    assert run_main(shlex.split(command)[1:]) == 0
    assert capfd.readouterr().out.startswith("verified")


def test_a_run_without_a_gpu_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    given = ["run", "examples/layernorm.yaml", "--set", "B=16", "--device", "reference"]
    assert run_main(given) == 0
    assert "not verified on a GPU" in capsys.readouterr().out


def options_of(command: click.Command) -> set[str]:
    return {o for p in command.params for o in (*p.opts, *p.secondary_opts)}


def test_options_exist() -> None:
    """Flags are written with underscores or hyphens."""
    every = {o.replace("_", "-") for c in cli.commands.values() for o in options_of(c)}
    named = {o.replace("_", "-") for o in re.findall(r"(?<![\w-])--[a-z][\w-]+", TEXT)}
    assert named
    assert named - every == set()


def test_the_file_shown_is_a_fusion() -> None:
    shown, schedules = blocks(PAGES["files"], "yaml")
    fusion = read_text(shown)
    assert fusion.name == "layernorm"
    assert [o.value.name for o in fusion.outputs] == ["y"]
    found = read_text(shown + schedules)
    options = CompileOptions()
    (plan,) = driver.Compilation(found, options, fusion=found).plans
    assert {o.name: o.value for o in found.schedules}.items() <= asdict(plan.parameters).items()  # type: ignore[call-overload]


def test_extras_and_folders_exist() -> None:
    for extra in re.findall(r"\.\[(\w+)\]", README):
        assert extra in PROJECT["optional-dependencies"]
    for path in set(re.findall(r"`((?:fusec|examples|docs|tests)/[\w./]*)`", TEXT)):
        assert (ROOT / path).exists(), path
    assert PROJECT["scripts"] == {"fusec": "fusec.cli:main"}


def test_one_command_installs_and_runs_and_one_installs_and_tests() -> None:
    run, test = SHELL
    assert "fusec run examples/layernorm.yaml" in run
    assert "pytest" in test
    for text in SHELL:
        assert text.startswith("python3 -m venv .venv && .venv/bin/pip install")
        assert text.count("\n") == 1


def test_environment_variables_are_declared() -> None:
    for name in re.findall(r"\b(FUSEC_\w+|NVFUSER_DUMP)\b", TEXT):
        assert name in ENVIRONMENT


def test_the_joint_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    (command,) = [c for c in COMMANDS if c.startswith("fusec run examples/joint/")]
    assert run_main([*shlex.split(command)[1:], "--set", "B=16", "--device", "reference"]) == 0
    said = capsys.readouterr().out
    assert "norm_dropout_residual_forward" in said
    assert "norm_dropout_residual_backward" in said


def test_environment_variables_are_in_readme_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["--help"]) == 0
    help = capsys.readouterr().out
    rows = {name for row in ROWS for name in re.findall(r"`((?:FUSEC|NVFUSER)_\w+)`", row)}
    assert rows == ENVIRONMENT.keys()
    assert {name for name in ENVIRONMENT if f"\n  {name}  " in help} == ENVIRONMENT.keys()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_files_that_pages_name_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:fusec|tests|docs|benchmarks|examples|\.ci)/[\w./*]+)`", text)
    for path in named:
        assert list(ROOT.glob(path)), path
    ours = re.sub(r"`python tests/[^`]*`", "", text.split("## Commands")[-1])
    for option in re.findall(r"(?<![\w-])--[a-z][\w-]+", ours):
        if page != "README.md":
            known = {o for c in cli.commands.values() for o in options_of(c)}
            assert option in known | {"--version", "--help"}


def test_names_on_the_way_of_a_tensor_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    way = text.split("## One tensor")[1].split("\n## ")[0]
    named = re.findall(r"`(fusec/[\w/]+)\.py:([\w.]+)`", way)
    assert len(named) > 20
    for path, name in named:
        module = import_module(path.removesuffix("/__init__").replace("/", "."))
        assert attrgetter(name)(module) is not None
    stages = {s.gives for s in driver.STAGES}
    assert stages == {*re.findall(r"`Compilation\.(\w+)`", way)} - {"parts"}
    flags = {kind for s in driver.STAGES for kind in s.dumps} & {*re.findall(r"--([\w-]+)", way)}
    assert flags <= DUMP_KINDS.keys()
    assert len(flags) == 4


def test_the_operation_shown_to_contributors_works() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    with temporary_ops():
        exec(
            "from fusec.ir.op import Cost\n"
            "from fusec.ops.declare import Array, pointwise\n"
            "from fusec.ops.dtypes import FLOAT\n"
            "from fusec.ops.lazy import np\n" + code,
            {},
        )
        fusion = read_text(
            "fusion: f\ninputs: {x: 'f32[4]'}\nops:\n  - y = bounded(x)\noutputs: [y]\n"
        )
        x = np.linspace(-2, 2, 4, dtype=np.float32)
        values = evaluate(fusion, {"x": x}, {})
    np.testing.assert_allclose(values["y"], x / (1 + np.abs(x)), rtol=1e-6)


def test_the_license_is_the_one_declared() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    (file,) = PROJECT["license-files"]
    text = (ROOT / file).read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
