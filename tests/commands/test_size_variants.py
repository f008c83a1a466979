"""One folder for several sizes: which programs it has, and which of them runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_tools import fusec
from emulated import emulated

from fusec import driver
from fusec.api import load
from fusec.commands.folder.reading import package_of, read_folder
from fusec.diagnostics import FusecError
from fusec.options import CompileOptions
from fusec.reference.verdict import compare
from fusec.run.execute import Executable
from fusec.run.inputs import random_inputs
from fusec.variants import variants

Capture = pytest.CaptureFixture[str]
TEXT = """\
fusion: norm
dims: {B: 64, H: {default: 64, multiple_of: 2%s}}
inputs: {x: 'f32[B, H]'}
ops:
  - y = softmax(x, -1)
outputs: [y]
"""
TARGET = "sm_90a"


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "none today")


def file(folder: Path, buckets: str = "") -> Path:
    path = folder / "norm.yaml"
    path.write_text(TEXT % buckets)
    return path


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for three sizes, which tests only read."""
    from fusec.cli import run_main

    base = tmp_path_factory.mktemp("variants")
    sizes = ["--set", "H=64,128,96", "--set", "B=64,128"]
    assert run_main(["compile", str(file(base)), *sizes, "-o", str(base / "out")]) == 0
    return base / "out"


def programs_of(path: Path, **buckets: tuple[int, ...]) -> list[str]:
    program = driver.Compilation(driver.load(str(path)), CompileOptions())
    return [p.original.name for p in variants(program, buckets)]


def test_sizes_that_need_kernels_of_their_own_have_a_program(tmp_path: Path) -> None:
    path = file(tmp_path)
    assert programs_of(path, H=(64, 128), B=(64, 128)) == ["norm", "norm_H128"]
    assert programs_of(path, B=(64, 128)) == ["norm"]
    assert programs_of(file(tmp_path, ", buckets: [32, 64]")) == ["norm", "norm_H32"]


def test_a_folder_says_which_sizes_its_plans_are_for(compiled: Path) -> None:
    plans = json.loads((compiled / "manifest.json").read_text())["plans"]
    assert [p.get("sizes") for p in plans] == [None, {"H": 128}, {"H": 96}]
    kernels = [k["name"] for p in plans for k in p["kernels"]]
    assert len(kernels) == len({*kernels})


@pytest.mark.parametrize(("sizes", "number"), [({"H": 96}, 2), ({"H": 128, "B": 9}, 1), ({}, 0)])
def test_the_fitting_program_runs(
    compiled: Path, sizes: dict[str, int], number: int, tmp_path: Path
) -> None:
    contents = read_folder(compiled)
    every = {**contents.fusion.hints, **sizes}
    package = package_of(contents, TARGET, CompileOptions(), every)
    assert package.program.original.name == ["norm", "norm_H128", "norm_H96"][number]
    whole = package_of(contents, TARGET, CompileOptions())
    assert whole.at(TARGET, every).original.name == package.program.original.name
    device: Any = emulated(package.program, tmp_path)
    arrays = random_inputs(contents.fusion, every, 1)
    executable = Executable(device, package.program.host, package.cubins(TARGET))
    with executable.bind(arrays, every) as bound:
        bound.reset()
        bound.run()
        verdict = compare(contents.fusion, every, arrays, bound.outputs())
    assert verdict.ok, verdict.text()


def test_of_several_that_can_run_that_for_the_nearest_sizes_does(tmp_path: Path) -> None:
    text = "fusion: total\ndims: {T: 64}\ninputs: {x: 'f32[T]'}\nops:\n  - y = sum(x, dims=[0])\n"
    path = tmp_path / "total.yaml"
    path.write_text(f"{text}outputs: [y]\n")
    program = driver.Compilation(driver.load(str(path)), CompileOptions())
    package = driver.Package(tuple(variants(program, {"T": (64, 2048)})), {}, (TARGET,))
    found = [package.at(TARGET, {"T": size}).original.name for size in (1, 200, 400, 5000)]
    assert found == ["total", "total", "total_T2048", "total_T2048"]


def test_a_loaded_folder_has_all_of_its_programs(compiled: Path) -> None:
    program = load(compiled, build=False)
    covered = [v.covers.partition(" (")[0] for v in program.variants]
    assert covered == [f"dynamic: B; specialized: H = {size}" for size in (64, 128, 96)]
    holding = [v.holds({"B": 3, "H": 96}) for v in program.variants]
    assert holding == [False, False, True]


def test_sizes_that_no_program_covers_are_told(compiled: Path, capsys: Capture) -> None:
    found = fusec(capsys, "run", str(compiled), "--set", "H=70")
    assert found.code == 2
    assert "not compiled for B = 64, H = 70" in found.err
    for size in (64, 128, 96):
        assert f"compiled: dynamic: B; specialized: H = {size}" in found.err


def test_a_folder_runs_at_the_sizes_that_are_set(tmp_path: Path, capsys: Capture) -> None:
    out = str(tmp_path / "out")
    assert fusec(capsys, "compile", str(file(tmp_path)), "-o", out).code == 0
    found = fusec(capsys, "run", out, "--set", "B=7", "--print", "1")
    assert found.code == 0, found.err
    assert "f32[7, 64]" in found.out
    found = fusec(capsys, "run", out, "--set", "H=32")
    assert found.code == 2
    assert "`H == 64` does not hold" in found.err


def test_other_commands_take_one_size(tmp_path: Path) -> None:
    with pytest.raises(FusecError, match="H=64,32: expected one size"):
        driver.programs(str(file(tmp_path)), CompileOptions(buckets={"H": (64, 32)}))


def test_a_check_tells_what_each_covers(tmp_path: Path, capsys: Capture) -> None:
    found = fusec(capsys, "check", str(file(tmp_path)), "--set", "H=64,32")
    assert found.out.count("dynamic: B; specialized: H = ") == 2


def test_two_plans_for_the_same_sizes_are_damage(compiled: Path, tmp_path: Path) -> None:
    import shutil

    from fusec.commands.folder.records import signed

    folder = Path(shutil.copytree(compiled, tmp_path / "copy"))
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    data["plans"][2]["sizes"] = {"H": 128}
    path.write_text(json.dumps(signed(data)))
    with pytest.raises(FusecError, match="its targets differ from those of its plans"):
        read_folder(folder)
