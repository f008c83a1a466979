"""Plans on disk: equal to what is planned, found again by what decides them, and by that alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

from fusec import driver, target
from fusec.cli import run_main
from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.plan_cache import key as keys
from fusec.plan_cache import shared
from fusec.plan_cache.key import key_of
from fusec.plan_cache.store import recall
from fusec.stages import Recorded

LAYERNORM = ROOT / "examples/layernorm.yaml"
DEFAULT = ("layernorm", "gelu_bias", "transpose")
EXAMPLES = [
    *(ROOT / "examples" / f"{name}.yaml" for name in DEFAULT),
    *(
        pytest.param(path, marks=pytest.mark.nightly)
        for folder in (ROOT / "examples", ROOT / "tests")
        for path in sorted(folder.rglob("*.yaml"))
        if path.stem not in DEFAULT and "segments:" not in path.read_text(encoding="utf-8")
    ),
]
OPTIONS = CompileOptions()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Plans are kept in a folder of the test's own."""
    monkeypatch.setenv("FUSEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("FUSEC_PLAN_CACHE")
    return tmp_path / "cache"


def planned(fusion: Fusion, options: CompileOptions = OPTIONS) -> Compilation:
    """Return a fusion's program, and keep it."""
    program = driver.plan(fusion, options)
    driver.keep(program)
    return program


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("??/*.plan"))


def as_told(program: Compilation) -> Any:
    """Return what a program runs."""
    kernels = [
        (s.text, replace(s.kernel, of=None), dict(s.alignments), s.headers)
        for sources in program.sources
        for s in sources
    ]
    kept = [tuple(str(part) for part in k) for k in kernels]
    launched = dict(program.kernels_launched)
    return kept, program.posts, program.host, program.schedulers, program.covers, launched


@pytest.mark.parametrize("path", EXAMPLES, ids=str)
def test_a_kept_plan_is_the_plan(path: Path) -> None:
    for whole in driver.programs(str(path)):
        fusion = whole.original
        program = planned(fusion)
        again = driver.recalled(fusion, OPTIONS)
        if program.evaluated or program.posts.checks or key_of(fusion, OPTIONS) is None:
            assert not again.made
            continue
        assert {type(v) for v in again.made.values()} == {Recorded}
        plain = as_told(program), as_told(again)
        assert plain[0][1:] == plain[1][1:]
        assert [k[0] for k in plain[0][0]] == [k[0] for k in plain[1][0]]
        assert again.agrees(program)
        assert program.agrees(again)
        assert "segmented" not in again.made
        assert "plans" not in again.made


def test_what_was_not_recorded_is_planned(folder: Path) -> None:
    fusion = driver.load(str(LAYERNORM))
    program = planned(fusion)
    again = driver.recalled(fusion, OPTIONS)
    assert again.segmented == program.segmented
    assert again.plans == program.plans
    assert len(entries(folder)) == 1


def test_keys_tell_apart_what_plans_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = driver.load(str(LAYERNORM))
    rates, fitted = tmp_path / "rates", tmp_path / "fitted"
    rates.mkdir()
    fitted.mkdir()
    own = Path(target.__file__).parent / "sm_90a.toml"
    moved = replace(fusion, nodes=(replace(fusion.nodes[0], span=None), *fusion.nodes[1:]))
    found = {
        "plain": key_of(fusion, OPTIONS),
        "compiler": key_of(fusion, OPTIONS, "nvrtc 13.0"),
        "sizes": key_of(driver.load(str(LAYERNORM), {"H": 4096}), OPTIONS),
        "name": key_of(replace(fusion, name="other"), OPTIONS),
        "source": key_of(replace(fusion, source="other"), OPTIONS),
        "line": key_of(moved, OPTIONS),
        "target": key_of(fusion, replace(OPTIONS, targets=("sm_80",))),
        "targets": key_of(fusion, replace(OPTIONS, targets=("sm_90a", "sm_80"))),
        "precise": key_of(fusion, replace(OPTIONS, precise=True)),
        "streams": key_of(fusion, replace(OPTIONS, streams=1)),
        "without": key_of(fusion, replace(OPTIONS, without=("merge_casts",))),
    }
    assert found["plain"] == key_of(fusion, replace(OPTIONS, jobs=3))
    (rates / own.name).write_text(own.read_text().replace("sms = 132", "sms = 131"))
    found["rates"] = key_of(fusion, replace(OPTIONS, rates=rates))
    (fitted / own.name).write_text(
        own.read_text().replace("level_seconds = 3e-6", "level_seconds = 4e-6")
    )
    found["coefficients"] = key_of(fusion, replace(OPTIONS, rates=fitted))
    monkeypatch.setattr(keys, "tree_digest", lambda: "another tree")
    found["tree"] = key_of(fusion, OPTIONS)
    assert None not in found.values()
    assert len({*found.values()}) == len(found)


def test_measured_schedules_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = driver.load(str(LAYERNORM))
    monkeypatch.setenv("FUSEC_TUNED", str(tmp_path))
    before = key_of(fusion, OPTIONS)
    (tmp_path / "sm_90a.toml").write_text("# of another day\n")
    assert key_of(fusion, OPTIONS) != before
    assert key_of(fusion, replace(OPTIONS, untuned=True)) not in (None, before)


def test_a_changed_file_of_fusec_is_another_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    file = tmp_path / "inner/module.py"
    file.write_text("a = 1\n")
    (tmp_path / "notes.txt").write_text("not of the tree")
    monkeypatch.setattr(shared, "_PACKAGE", str(tmp_path))
    os.utime(file, ns=(0, 1_000))
    first = shared.tree_digest.__wrapped__()
    os.utime(file, ns=(0, 2_000))
    assert shared.tree_digest.__wrapped__() not in (None, first)
    os.utime(file, ns=(0, shared.LOADED_NS))
    assert shared.tree_digest.__wrapped__() is None
    monkeypatch.setattr(shared, "_PACKAGE", str(tmp_path / "fusec.zip"))
    assert shared.tree_digest.__wrapped__() is None


def test_what_cannot_be_written_is_planned_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_text(_: Fusion) -> str:
        raise FusecError("no text")

    monkeypatch.setattr(keys, "to_text", to_text)
    assert key_of(driver.load(str(LAYERNORM)), OPTIONS) is None


@pytest.mark.parametrize("options", [{"use_cache": False}, {"should_merge": lambda a, b: True}])
def test_some_plans_are_not_kept(folder: Path, options: dict[str, Any]) -> None:
    planned(driver.load(str(LAYERNORM)), replace(OPTIONS, **options))
    assert not entries(folder)


def test_the_switch_turns_it_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = driver.load(str(LAYERNORM))
    planned(fusion)
    monkeypatch.setenv("FUSEC_PLAN_CACHE", "0")
    assert recall(fusion, OPTIONS) == {}
    monkeypatch.delenv("FUSEC_PLAN_CACHE")
    assert recall(fusion, OPTIONS) != {}


@pytest.mark.parametrize("where", [0, 20, 90, -1])
def test_a_damaged_entry_is_planned_again(folder: Path, where: int) -> None:
    fusion = driver.load(str(LAYERNORM))
    planned(fusion)
    (path,) = entries(folder)
    content = bytearray(path.read_bytes())
    content[where] ^= 1
    path.write_bytes(content)
    assert recall(fusion, OPTIONS) == {}


def test_an_entry_that_others_may_write_is_not_used(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fusion = driver.load(str(LAYERNORM))
    planned(fusion)
    (path,) = entries(folder)
    path.chmod(0o666)
    assert recall(fusion, OPTIONS) == {}


def test_entries_hold_records_alone(folder: Path) -> None:
    planned(driver.load(str(LAYERNORM)))
    (path,) = entries(folder)
    layout, digest, body = path.read_bytes().split(b"\n", 2)
    assert (layout, len(digest)) == (b"fusec plan 1", 64)
    found = json.loads(body)
    assert {*found} == {"schedulers", "covers", "stages"}
    assert {*found["stages"]} == {"kernels", "launched", "posts", "host"}
    assert path.stat().st_mode & 0o077 == 0


def test_compiled_again_nothing_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = driver.load(str(LAYERNORM))
    first = driver.compile_fusion(fusion, OPTIONS)

    def planning(*_: object) -> Any:
        raise FusecError("planned again")

    monkeypatch.setattr(Compilation.segmented, "run", planning)
    again = driver.compile_fusion(fusion, OPTIONS)
    assert again.program.host == first.program.host
    assert again.cubins("sm_90a") == first.cubins("sm_90a")
    assert again.program.evaluated == {}


CHECKED = """
import sys
from fusec.cli import run_main
code = run_main(["check", "examples/layernorm.yaml"])
print("MODULES", code, *sys.modules)
"""


def test_a_second_check_loads_no_planner() -> None:
    texts: list[str] = []
    for loads in (True, False):
        done = subprocess.run(
            [sys.executable, "-c", CHECKED], capture_output=True, text=True, cwd=ROOT, check=True
        )
        text, _, names = done.stdout.partition("MODULES 0")
        modules = {*names.split()}
        assert modules & {"asyncio", "filelock", "networkx", "numpy", "socket"} == set()
        assert ("fusec.schedule.registry" in modules) is loads
        assert ("fusec.segment.search" in modules) is loads
        assert ("jinja2" in modules) is loads
        texts.append(text)
    assert texts[0] == texts[1] != ""


def test_variants_are_told_alike(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", "--set", "B=1", "--set", "H=512,8192", str(LAYERNORM)]
    texts: list[str] = []
    for _ in range(2):
        assert run_main(command) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert len(entries(folder)) == 1
    (found,) = (json.loads(p.read_bytes().split(b"\n", 2)[2]) for p in entries(folder))
    assert {*found} == {"schedulers", "covers"}
