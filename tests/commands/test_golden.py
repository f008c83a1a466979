"""The examples' dumps, kernels, manifests and registers are as the golden files keep them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from paths import ROOT

from fusec import driver
from fusec.cli import run_main
from fusec.options import CompileOptions

EXAMPLES = ROOT / "examples"
FILES = sorted(
    p for f in ("", "parallel/", "split_k/", "grid_reduce/") for p in EXAMPLES.glob(f"{f}*.yaml")
)
KERNELS = sorted(EXAMPLES.rglob("golden/*/*.cu"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_golden_files(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    code = run_main(["golden", "--no-build", str(file.relative_to(EXAMPLES.parent))])
    assert code == 0, capsys.readouterr().out


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_golden_registers(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    code = run_main(["golden", str(file.relative_to(EXAMPLES.parent))])
    assert code == 0, capsys.readouterr().out


def test_golden_kernels_do_not_spill() -> None:
    for file in FILES:
        kept = json.loads((file.parent / "golden" / file.stem / "registers.json").read_text())
        assert "spill_bytes" in json.dumps(kept)
        spills = [v for k, v in walk(kept) if k == "spill_bytes"]
        assert spills == [0] * len(spills), file


STYLE = "{BasedOnStyle: Google, ColumnLimit: 100, BinPackParameters: OnePerLine}"


def test_golden_kernels_are_formatted() -> None:
    formatter = shutil.which("clang-format") or pytest.importorskip("clang_format").get_executable(
        "clang-format"
    )
    command = [formatter, f"--style={STYLE}", "--dry-run", "-Werror", *map(str, KERNELS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [f for f in KERNELS if max(map(len, f.read_text().splitlines())) > 100] == []


def unread(text: str) -> set[str]:
    """Return the parameters of a kernel that its text only declares."""
    code = re.sub(r"//[^\n]*", "", text)
    declared = re.search(r'extern "C".*?\w\(((?:[^()]|\(\))*)\) \{', code, re.DOTALL)
    assert declared, text
    names = [each.split()[-1] for each in declared[1].split(",")]
    return {name for name in names if len(re.findall(rf"\b{name}\b", code)) == 1}


def test_golden_kernels_read_each_parameter() -> None:
    assert {f.stem: names for f in KERNELS if (names := unread(f.read_text()))} == {}


@pytest.mark.parametrize(
    "name", ["mean_of_no_doubles", "names_of_copied_outputs", "random_numbers_at_an_index"]
)
def test_kernels_take_what_they_read(name: str) -> None:
    """Sizes, scalars and tensors that no element depends on are no parameters."""
    (file,) = EXAMPLES.parent.glob(f"tests/*/{name}.yaml")
    planned = driver.plan(driver.load(str(file)), CompileOptions(targets=("sm_90a",)))
    assert [unread(s.text) for s in planned.kernel_sources] == [
        set() for _ in planned.kernel_sources
    ]
    launches = {launch.kernel: launch for launch in planned.host.launches}
    for source in planned.kernel_sources:
        assert 0 < len(launches[source.name].arguments) == len(source.kernel.arguments)


def walk(data: object) -> list[tuple[str, object]]:
    """Return every (key, value) in nested data."""
    if isinstance(data, dict):
        return [p for k, v in data.items() for p in [(str(k), v), *walk(v)]]
    return [p for v in data for p in walk(v)] if isinstance(data, list) else []


def test_three_examples_keep_the_second_dialect() -> None:
    kept = {p.parent.name for p in (EXAMPLES / "golden").glob("*/segmented_fusion.head.txt")}
    assert len(kept) >= 3
