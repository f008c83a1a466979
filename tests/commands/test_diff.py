"""`fusec diff`: files, compiled folders and golden folders beside one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_tools import SMALL, fusec, small
from documented import documented

Capture = pytest.CaptureFixture[str]
OTHER = SMALL.replace("exp(add", "tanh(add")


def differences(capsys: Capture, *arguments: object, code: int) -> list[dict[str, Any]]:
    done = fusec(capsys, "diff", *arguments, "--json")
    assert done.code == code, done.err
    return documented(done.out)["pairs"]


def test_files(tmp_path: Path, capsys: Capture) -> None:
    old, new = small(tmp_path), small(tmp_path, OTHER, "other.yaml")
    assert fusec(capsys, "diff", old, old).out == "small sm_90a: same\n"
    done = fusec(capsys, "diff", old, new)
    assert done.code == 1
    head, *lines = done.out.splitlines()
    assert head == "small sm_90a: differs"
    assert "-//   9: z = exp(add(cast(x, f32), w))" in lines
    assert "+//   9: z = tanh(add(cast(x, f32), w))" in lines
    assert "--- before/small_pointwise.cu" in lines
    (pair,) = differences(capsys, old, new, "--target", "sm_80", code=1)
    assert (pair["fusion"], pair["target"], pair["status"]) == ("small", "sm_80", "differs")
    assert pair["bytes"] == {"before": 576, "after": 576}
    (kernel,) = pair["kernels"]
    assert kernel["registers"] == {"before": None, "after": None}


def test_traffic_and_kernels(tmp_path: Path, capsys: Capture) -> None:
    """A result more is written, and by a kernel of its own."""
    text = "fusion: f\ndims: {B: 64, H: 64}\ninputs: {x: 'f32[B, H]'}\nops:\n  - y = neg(x)\n"
    old = small(tmp_path, f"{text}outputs: [y]\n", "old.yaml")
    more = f"{text}  - z = sum(x, dims=[0])\noutputs: [y, z]\n"
    new = small(tmp_path, f"{more}segments: {{a: [y], b: [z]}}\n", "new.yaml")
    (pair,) = differences(capsys, old, new, code=1)
    assert pair["bytes"]["before"] == 2 * 64 * 64 * 4
    assert pair["bytes"]["after"] >= 3 * 64 * 64 * 4 + 64 * 4
    seconds = pair["predicted_seconds"]
    assert seconds["after"] > seconds["before"] > 0
    assert {k["status"] for k in pair["kernels"]} >= {"added"}
    done = fusec(capsys, "diff", old, new)
    assert "  bytes         32.8 kB -> " in done.out
    assert "  kernels       1 -> 2\n" in done.out


def test_folders(tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    file, folder, golden = small(tmp_path), tmp_path / "out", tmp_path / "golden" / "small"
    assert fusec(capsys, "compile", file, "-o", folder, "--target", "sm_80").code == 0
    assert fusec(capsys, "golden", file, "--update", "--target", "sm_80").code == 0
    for other in (file, golden, folder):
        (pair,) = differences(capsys, folder, other, code=0)
        assert pair["target"] == "sm_80"
        assert pair["bytes"] == {"before": 576, "after": 576}
    figures = differences(capsys, folder, golden, code=0)[0]
    assert figures["predicted_seconds"]["before"] > 0
    assert figures["predicted_seconds"]["after"] is None
    registers = figures["kernels"][0]["registers"]
    assert registers["before"] == registers["after"] > 0
    (golden / "registers.json").unlink()  # as `golden --no-build` leaves it
    (pair,) = differences(capsys, golden, folder, code=0)
    assert pair["kernels"][0]["registers"] == {"before": None, "after": registers["after"]}
    (cuda,) = golden.glob("*.cu")
    cuda.write_text(cuda.read_text().replace("exp", "tanh"))
    (kernel,) = differences(capsys, file, golden, code=1)[0]["kernels"]
    assert any(line.startswith("+") and "tanh" in line for line in kernel["diff"])


def test_fusions_of_one_side_alone(tmp_path: Path, capsys: Capture) -> None:
    from cli_tools import SCRIPT

    script, file = small(tmp_path, SCRIPT, "two.py"), small(tmp_path)
    pairs = differences(capsys, script, file, code=1)
    assert [p["status"] for p in pairs].count("removed") == 2
    assert [p["fusion"] for p in pairs if p["status"] == "added"] == ["small"]


def test_what_cannot_be_compared(tmp_path: Path, capsys: Capture) -> None:
    file, empty = small(tmp_path), tmp_path / "empty"
    empty.mkdir()
    fusec(capsys, "diff", file, empty).says(2, "holds no compiled fusion and no golden files")
    fusec(capsys, "diff", file, tmp_path / "no.yaml").says(2, "no.yaml")
    (empty / "segmented_fusion.2024.txt").write_text("")
    (empty / "manifest.json").write_text('{"plans": [{"targets": 3}]}')
    fusec(capsys, "diff", file, empty).says(2, "a golden manifest")
