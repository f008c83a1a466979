"""The commands, each at its simplest, and what they print."""

from __future__ import annotations

import json
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from cli_tools import EXAMPLES, EXECUTED, ROOT, SCRIPT, SMALL, fusec, small
from nightly import mostly_nightly

import fusec as package
from fusec.options import DUMP_KINDS
from fusec.parse import read_text

Capture = pytest.CaptureFixture[str]


def test_check_names_segments(tmp_path: Path, capsys: Capture) -> None:
    done = fusec(capsys, "check", small(tmp_path))
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "small: 6 operations, 1 segment (s0 pointwise)\n"
        "  y: bf16[B, H]\n"
        "  dynamic: B; specialized: H = 16 (B up to 67108863)\n"
    )


@pytest.mark.parametrize(
    "path", mostly_nightly(sorted(EXAMPLES.glob("*.*")), 3), ids=lambda p: p.name
)
def test_check_takes_every_example(path: Path, capsys: Capture) -> None:
    done = fusec(capsys, "check", path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{path.stem}: ")


def test_check_generates_what_it_accepts(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(plan: object) -> None:
        raise KeyError(plan)

    monkeypatch.setattr("fusec.codegen.dispatch.plan_sources", fail)
    assert fusec(capsys, "check", small(tmp_path)).code == 70


@pytest.mark.parametrize("command", ["check", "compile", "run", "dump", "explain"])
def test_a_dash_is_standard_input(
    command: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ["-o", tmp_path / "out"] if command == "compile" else []
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(SMALL.encode())))
    piped = fusec(capsys, command, "-", *place)
    assert (piped.code, piped.err) == (0, "")
    named = fusec(capsys, command, small(tmp_path), *place)
    assert piped.out.partition("next:")[0] == named.out.partition("next:")[0]
    assert ("next:" in piped.out) == ("fusec explain FILE " in piped.out) == (command == "run")
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(SMALL.replace("exp", "epx").encode())))
    fusec(capsys, command, "-", *place).says(2, "--> <stdin>:9:9", "did you mean `exp`?")


@pytest.mark.parametrize(
    ("given", "message"),
    [(b"", "`<stdin>` is empty"), (b"\0\1", "`<stdin>` is a binary"), (b"caf\xe9\n", "not UTF-8")],
)
def test_standard_input_that_is_no_fusion(
    given: bytes, message: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(given)))
    fusec(capsys, "check", "-").says(2, message)
    monkeypatch.setattr("sys.stdin", None)
    fusec(capsys, "check", "-").says(2, "standard input is closed")
    fusec(capsys, "golden", "-").says(2, "next to a file")


def test_the_package_lists_its_interface() -> None:
    assert {"FusionDefinition", "DataType", "segmentation", "__version__"} <= {*dir(package)}
    for name in dir(package):
        assert getattr(package, name) is not None


@pytest.mark.parametrize("command", ["check", "compile", "run"])
def test_time_prints_each_stage(command: str, tmp_path: Path, capsys: Capture) -> None:
    options = {"compile": ["-o", tmp_path / "out"], "run": ["--print", 1]}.get(command, [])
    done = fusec(capsys, command, small(tmp_path), *options, "--time")
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines() if line.endswith(" ms")]
    assert all(float(milliseconds) >= 0 for _, milliseconds, _ in lines)
    stages = [stage for stage, _, _ in lines]
    wanted = ["partition", "passes", "segment", "schedule", "codegen"]
    if command != "check":
        wanted += ["build"]
    assert stages[: len(wanted)] == wanted
    assert stages[len(wanted) :] == (["reference"] if command == "run" else [])


def test_set_changes_sizes(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    done = fusec(capsys, "dump", path, "--preseg", "--set", "B=3", "--set", "H=0x20")
    assert "B: 3\n" in done.out
    assert "default: 32" in done.out
    script = fusec(capsys, "dump", EXAMPLES / "layernorm.py", "--preseg", "--set", "B=77")
    assert "B: 77\n" in script.out


def test_flags_accept_hyphens_and_underscores(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    outputs = [
        fusec(capsys, "dump", path, flag).out
        for flag in ("--segmented_fusion", "--segmented-fusion")
    ]
    assert outputs[0] == outputs[1] == fusec(capsys, "dump", path).out
    assert "g{(pointwise)" in outputs[0]
    assert fusec(capsys, "check", path, "--stop_after", "fold_constants").code == 0


SIGNS = {
    "segmented-fusion": "Segmented_Fusion{",
    "fusion-ir": "__bfloat2float",
    "partition": "fusion: small",
    "preseg": "# before the passes",
    "scheduler-params": "s0: pointwise",
    "schedule-space": "s0 pointwise (y):",
    "cuda-kernel": "__global__ void __launch_bounds__(",
    "ptx": ".visible .entry small_pointwise",
    "sass": "small_pointwise",
    "python": "FusionDefinition",
    "groups": "g{0}",
    "host-passes": "host program",
    "host-ir": "%HostIrContainer { (",
    "host-program": "launch small_pointwise for s0 <",
}


@pytest.mark.parametrize("kind", DUMP_KINDS)
def test_dump_prints_each_kind(kind: str, tmp_path: Path, capsys: Capture) -> None:
    more = ["--as-written"] if kind == "groups" else []  # else nothing makes groups
    done = fusec(capsys, "dump", small(tmp_path), f"--{kind}", *more)
    if kind == "sass" and done.code == 4:
        pytest.skip("nvdisasm is not installed")
    assert (done.code, done.err) == (0, "")
    assert SIGNS[kind] in done.out


def test_dump_styles(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    texts = {
        style: fusec(capsys, "dump", path, "--style", style).out
        for style in ("2024", "head", "json", "dot")
    }
    assert len(set(texts.values())) == 4
    assert json.loads(texts["json"])
    assert texts["dot"].startswith("digraph")


def test_dump_python_is_a_script_of_the_same_fusion(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    script = small(tmp_path, fusec(capsys, "dump", path, "--python").out, "twin.py")
    again = fusec(capsys, "dump", script, "--preseg", "--stop-after", "fold_constants")
    text = again.out.split("# before the passes\n")[1].split("\n# after")[0]
    assert read_text(text, "twin.yaml") == read_text(path.read_text(), "small.yaml")


def test_dump_names_several_fusions_and_targets(tmp_path: Path, capsys: Capture) -> None:
    script = small(tmp_path, SCRIPT, "two.py")
    done = fusec(capsys, "dump", script, "--segmented_fusion")
    marks = [line for line in done.out.splitlines() if line.startswith("// ")]
    assert marks == ["// two", "// two_2"]
    done = fusec(capsys, "dump", script, "--scheduler_params", "--target", "sm_80,sm_90a")
    marks = [line for line in done.out.splitlines() if line.startswith("// ")]
    assert marks == ["// two, sm_80", "// two, sm_90a", "// two_2, sm_80", "// two_2, sm_90a"]


def test_reading_a_script_says_where_it_stops(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path, EXECUTED, "two.py")
    done = fusec(capsys, "check", path)
    assert done.code == 0
    assert "two: 1 operation" in done.out
    line = EXECUTED.splitlines().index("assert np.allclose(y, np.exp(a)), y") + 1
    assert f"is executed up to line {line}, which uses results or a GPU" in done.err


def test_ops_lists_and_describes(capsys: Capture) -> None:
    done = fusec(capsys, "ops")
    assert done.code == 0
    assert "\n  rsqrt(" in done.out
    one = fusec(capsys, "ops", "rsqrt")
    assert one.out.startswith("rsqrt(")
    assert "accuracy" in one.out


def test_schema_is_the_file_in_the_repository(capsys: Capture) -> None:
    assert fusec(capsys, "schema").out == (ROOT / "fusec.schema.json").read_text()


def test_doctor_names_what_is_there(capsys: Capture) -> None:
    done = fusec(capsys, "doctor")
    assert done.code == 0
    rows = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert {"fusec", "python", "numpy", "NVRTC", "nvdisasm", "cache", "GPU"} <= rows.keys()
    assert rows["NVRTC"].startswith("nvrtc ")


def test_without_a_command_the_help_is_printed(capsys: Capture) -> None:
    done = fusec(capsys)
    assert done.code == 2
    assert "Usage: fusec" in done.err
    for name in ("compile", "run", "check", "dump", "golden", "ops", "schema", "doctor"):
        assert f"\n  {name} " in done.err
    assert fusec(capsys, "--help").code == 0
    assert fusec(capsys, "--version").out.startswith("fusec, version")
