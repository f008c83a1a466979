"""What `--json` prints is one documented object, besides what people read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from documented import documented
from paths import ROOT

from fusec.cli import cli, run_main

EXAMPLE = str(ROOT / "examples" / "softmax.yaml")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run_main([*arguments, "--json"]) == code
    return documented(capsys.readouterr().out)


WITHOUT = {"schema"}
"""Commands whose only output is JSON; the tools for work on fusec itself print text."""


def test_every_command_has_it() -> None:
    commands = {n: c for n, c in cli.commands.items() if n not in WITHOUT | {"dev"}}
    flags = {
        n: {o for p in c.params if isinstance(p, click.Option) for o in p.opts}
        for n, c in commands.items()
    }
    assert [n for n, found in flags.items() if "--json" not in found] == []


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    (fusion,) = printed(capsys, "check", EXAMPLE)["fusions"]
    assert fusion["name"] == "softmax"
    assert fusion["segments"] == ["inner_persistent"]


@pytest.mark.parametrize("command", ["check", "compile", "dump", "explain", "run"])
def test_a_rejected_file(command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("fusion: f\ninputs: {x: 'f32[4]'}\nops:\n  - y = expp(x)\noutputs: [y]\n")
    more = ["-o", str(tmp_path / "out")] if command == "compile" else []
    found = printed(capsys, command, str(file), *more, code=2)
    assert [(d["code"], d["line"]) for d in found["diagnostics"]] == [("E0205", 4)]


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


def test_run_without_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "none today")
    given = ["run", EXAMPLE, "--target", "sm_90a", "--set", "B=4", "--set", "H=64", "--print", "2"]
    found = printed(capsys, *given)
    assert found["gpu"] == {"used": False, "reason": "none today"}
    (run,) = found["runs"]
    (kernel,), (segment,), (output,) = run["kernels"], run["segments"], run["outputs"]
    assert (run["fusion"], run["sizes"]) == ("softmax", {"B": 4, "H": 64})
    assert run["seconds"] is None is kernel["seconds"]
    assert 0 < segment["predicted_seconds"] == run["predicted_seconds"]
    assert segment["bytes"] == run["compulsory_bytes"] > 0
    assert kernel["registers"] > 0
    assert len(kernel["cubin_sha256"]) == 64
    assert (output["shape"], len(output["values"])) == ([4, 64], 2)
    assert run["verdict"] is None
    assert {"passes", "segment", "build"} <= run["stages"].keys()


def test_numbers_that_json_lacks_are_text(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "poles.yaml"
    file.write_text(
        "fusion: poles\ninputs: {x: 'f32[2]'}\n"
        "ops:\n  - y = log(mul(abs(x), -1.0))\n  - z = div(x, mul(x, 0.0))\noutputs: [y, z]\n"
    )
    (run,) = printed(capsys, "run", str(file), "--device", "reference", "--print", "1")["runs"]
    assert [o["values"][0] for o in run["outputs"]] == ["nan", "inf"]


def test_dump(capsys: pytest.CaptureFixture[str]) -> None:
    (dump,) = printed(capsys, "dump", EXAMPLE, "--segmented-fusion")["dumps"]
    assert run_main(["dump", EXAMPLE, "--segmented-fusion"]) == 0
    assert dump["text"] == capsys.readouterr().out
    assert (dump["fusion"], dump["kind"]) == ("softmax", "segmented-fusion")


def test_ops(capsys: pytest.CaptureFixture[str]) -> None:
    every = printed(capsys, "ops")
    one = printed(capsys, "ops", "softmax")["operation"]
    assert one["operations"] == [o for o in every["operations"] if o["name"] == "softmax"]
    other = printed(capsys, "ops", "torch.unsqueeze")["operation"]
    assert other["expressions"]
    assert {"name", "reason"} == set(every["refused"][0])
