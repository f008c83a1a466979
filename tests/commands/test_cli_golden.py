"""`fusec golden`: what is kept beside a file, and how a change shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_tools import SCRIPT, SMALL, fusec, small

Capture = pytest.CaptureFixture[str]
KEPT = {
    "segmented_fusion.2024.txt",
    "small_pointwise.cu",
    "manifest.json",
    "registers.json",
}


def kept(folder: Path) -> dict[str, str]:
    files = (p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): p.read_text() for p in files}


def test_update_then_compare(tmp_path: Path, capsys: Capture) -> None:
    path, folder = small(tmp_path), tmp_path / "golden" / "small"
    first = fusec(capsys, "golden", path)
    assert first.code == 1
    assert f"{folder} is missing; run with --update" in first.out
    done = fusec(capsys, "golden", path, "--update")
    assert (done.code, done.out) == (0, f"{folder}: 4 files written\n")
    assert kept(folder).keys() == KEPT
    again = fusec(capsys, "golden", path)
    assert (again.code, again.out) == (0, f"{path}: as in {folder}\n")


def test_registers_are_apart_from_the_manifest(tmp_path: Path, capsys: Capture) -> None:
    path, folder = small(tmp_path), tmp_path / "golden" / "small"
    fusec(capsys, "golden", path, "--update")
    files = kept(folder)
    registers = json.loads(files["registers.json"])
    assert registers["compiler"].startswith("nvrtc ")
    counts = registers["kernels"]["small_pointwise"]["sm_90a"]
    assert counts.keys() == {"registers", "spill_bytes", "shared_bytes"}
    assert counts["registers"] > 0 == counts["spill_bytes"]
    manifest = json.loads(files["manifest.json"])
    assert "nvrtc" not in files["manifest.json"]
    assert not {"fusec", "files"} & manifest.keys()
    assert manifest["plans"][0]["segments"][0]["scheduler"] == "pointwise"


def test_without_a_build_registers_stay_as_they_are(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = small(tmp_path), tmp_path / "golden" / "small"
    fusec(capsys, "golden", path, "--update")
    before = kept(folder)
    monkeypatch.setattr("fusec.driver.build", None)
    assert fusec(capsys, "golden", path, "--no-build").out == f"{path}: as in {folder}\n"
    path.write_text(SMALL.replace("exp(", "sin("))
    done = fusec(capsys, "golden", path, "--no-build")
    assert done.code == 1
    assert "registers.json" not in done.out
    done = fusec(capsys, "golden", path, "--no-build", "--update")
    assert (done.code, done.out) == (0, f"{folder}: 3 files written\n")
    after = kept(folder)
    assert after.keys() == KEPT
    assert after["registers.json"] == before["registers.json"]
    assert after["small_pointwise.cu"] != before["small_pointwise.cu"]


def test_a_change_shows_as_a_diff(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    fusec(capsys, "golden", path, "--update")
    path.write_text(SMALL.replace("exp(", "sin("))
    done = fusec(capsys, "golden", path)
    assert (done.code, done.err) == (1, "")
    lines = done.out.splitlines()
    assert lines[0] == f"{path}: differs from {tmp_path / 'golden' / 'small'}"
    assert "--- golden/small_pointwise.cu" in lines
    assert any(line.startswith("-") and "exp" in line for line in lines)
    assert any(line.startswith("+") and "sin" in line for line in lines)
    assert lines[-1] == "1 of 1 differ; review, then run again with --update"
    assert fusec(capsys, "golden", path, "--update").code == 0
    assert fusec(capsys, "golden", path).code == 0


def test_a_long_diff_is_cut(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    fusec(capsys, "golden", path, "--update")
    cu = tmp_path / "golden" / "small" / "small_pointwise.cu"
    cu.write_text("".join(f"line {k}\n" for k in range(500)))
    done = fusec(capsys, "golden", path)
    assert len(done.out.splitlines()) < 70
    assert " more lines" in done.out


def test_files_that_come_and_go(tmp_path: Path, capsys: Capture) -> None:
    path, folder = small(tmp_path), tmp_path / "golden" / "small"
    fusec(capsys, "golden", path, "--update", "--dialect", "head", "--dialect", "2024")
    assert "segmented_fusion.head.txt" in kept(folder)
    assert fusec(capsys, "golden", path).code == 0, "what is kept is compared"
    (folder / "notes.md").write_text("mine")
    done = fusec(capsys, "golden", path, "--dialect", "2024")
    assert done.code == 1
    assert "segmented_fusion.head.txt: no longer made" in done.out
    fusec(capsys, "golden", path, "--update", "--dialect", "2024")
    assert kept(folder).keys() == KEPT | {"notes.md"}, "what is not ours stays"
    (folder / "small_pointwise.cu").unlink()
    assert "small_pointwise.cu: new" in fusec(capsys, "golden", path).out


def test_registers_of_another_compiler_do_not_count(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    fusec(capsys, "golden", path, "--update")
    file = tmp_path / "golden" / "small" / "registers.json"
    data = json.loads(file.read_text())
    data["kernels"]["small_pointwise"]["sm_90a"]["registers"] += 1
    file.write_text(json.dumps(data, indent=2) + "\n")
    done = fusec(capsys, "golden", path)
    assert done.code == 1
    assert "--- golden/registers.json" in done.out
    data["compiler"] = "nvrtc 99.9"
    file.write_text(json.dumps(data, indent=2) + "\n")
    assert fusec(capsys, "golden", path).code == 0


def test_several_targets_and_fusions(tmp_path: Path, capsys: Capture) -> None:
    script = small(tmp_path, SCRIPT, "two.py")
    assert fusec(capsys, "golden", script, "--update", "--target", "sm_80,sm_90a").code == 0
    files = kept(tmp_path / "golden" / "two.py")
    assert {"two/two_pointwise.cu", "two_2/registers.json"} <= files.keys()
    registers = json.loads(files["two/registers.json"])
    assert registers["kernels"]["two_pointwise"].keys() == {"sm_80", "sm_90a"}
    assert fusec(capsys, "golden", script).code == 0, "the targets that are kept"
    done = fusec(capsys, "golden", script, "--target", "sm_80")
    assert done.code == 1
    assert '-    "sm_90a"' in done.out


def test_several_files_are_all_told(tmp_path: Path, capsys: Capture) -> None:
    one, other = small(tmp_path), small(tmp_path, SMALL.replace("small", "other"), "other.yaml")
    fusec(capsys, "golden", one, "--update")
    done = fusec(capsys, "golden", one, other)
    assert done.code == 1
    assert f"{one}: as in" in done.out
    assert f"{other}: differs from" in done.out
    assert "1 of 2 differ" in done.out


def test_golden_files_that_are_no_text(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    fusec(capsys, "golden", path, "--update")
    (tmp_path / "golden" / "small" / "registers.json").write_bytes(b"\xff\xfe\0")
    done = fusec(capsys, "golden", path)
    assert done.code == 1
    assert "--- golden/registers.json" in done.out
