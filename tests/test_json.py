"""What `--json` prints is one documented object, besides what people read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fusec.cli import run_main

ROOT = Path(__file__).parents[1]
EXAMPLE = str(ROOT / "examples" / "softmax.yaml")
PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\|([^|]*)\|", PAGE, re.MULTILINE)
DOCUMENTED = {key for row in ROWS for key in re.findall(r"`(\w+)`", row)}
OPEN = ("sizes", "machine")
"""Objects whose keys are names."""


def keys_of(data: Any) -> set[str]:
    if isinstance(data, list):
        return {key for item in data for key in keys_of(item)}
    if not isinstance(data, dict):
        return set()
    inner = (keys_of(value) for name, value in data.items() if name not in OPEN)
    return set(data).union(*inner)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run_main([*arguments, "--json"]) == code
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert list(found)[:2] == ["schema_version", "diagnostics"]
    assert found["schema_version"] == 1
    assert keys_of(found) <= DOCUMENTED
    return found


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    (fusion,) = printed(capsys, "check", EXAMPLE)["fusions"]
    assert fusion["name"] == "softmax"
    assert fusion["segments"] == ["inner_persistent"]


def test_compile(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    out = str(tmp_path / "out")
    given = ["compile", EXAMPLE, "-o", out, "--target", "sm_80,sm_90a"]
    (folder,) = printed(capsys, *given)["folders"]
    assert (folder["folder"], folder["fusion"]) == (out, "softmax")
    kernels = [kernel for plan in folder["plans"] for kernel in plan["kernels"]]
    assert sorted(k["target"] for k in kernels) == ["sm_80", "sm_90a"]
    assert all(k["registers"] > 0 and k["spill_bytes"] == 0 for k in kernels)
    assert len({k["cubin_sha256"] for k in kernels}) == 2


def test_golden(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    file = tmp_path / "softmax.yaml"
    file.write_text(Path(EXAMPLE).read_text(encoding="utf-8"), encoding="utf-8")
    statuses = []
    for arguments, code in ((["--update"], 0), ([], 0), (["--set", "B=7"], 1)):
        found = printed(capsys, "golden", str(file), *arguments, code=code)
        statuses += [each["status"] for each in found["files"]]
    assert statuses == ["written", "same", "differs"]


def test_cache_and_doctor(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSEC_CACHE_DIR", str(tmp_path / "cache"))
    assert printed(capsys, "cache")["cache"]["entries"] == 0
    assert printed(capsys, "cache", "--clear")["removed"] == {"entries": 0, "bytes": 0}
    assert {"fusec", "python", "NVRTC", "GPU"} <= printed(capsys, "doctor")["machine"].keys()


def test_errors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.yaml")
    for command in ("check", "compile", "golden"):
        (only,) = printed(capsys, command, missing, code=2)["diagnostics"]
        assert only["severity"] == "error"
