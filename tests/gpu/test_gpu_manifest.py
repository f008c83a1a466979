"""Folders whose manifest was changed, on the GPU: refused, or run with the same verdict."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from cli_tools import fusec
from gpu_check import DRY, options
from mutations import changes
from test_manifest import FUSIONS, OPTIONS

from fusec import driver
from fusec.commands.folder.artifacts import files_of, write_folder
from fusec.commands.folder.records import signed
from fusec.options import CompileOptions
from fusec.parse import read_text

pytestmark = pytest.mark.gpu

CHANGES = 12


@pytest.mark.parametrize("name", FUSIONS)
def test_changed_manifests(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = OPTIONS.get(name, CompileOptions())
    chosen = replace(options(), check_bounds=wanted.check_bounds)
    fusion = read_text(FUSIONS[name], f"{name}.yaml")
    out = tmp_path / name
    write_folder(out, files_of(driver.compile_targets(driver.Compilation(fusion, chosen))))
    done = fusec(capsys, "run", out, "--repeat", 0)
    assert done.code == 0, done.err
    assert ("not verified" in done.out) == bool(DRY)
    every = list(changes(json.loads((out / "manifest.json").read_text())))
    for label, make in random.Random(f"{name} on a GPU").sample(every, CHANGES):
        changed = make()
        again = signed(changed) if isinstance(changed, dict) else changed
        (out / "manifest.json").write_text(json.dumps(again))
        done = fusec(capsys, "run", out, "--repeat", 0)
        assert done.code in (0, 2), f"{label}: {done.out} {done.err}"
