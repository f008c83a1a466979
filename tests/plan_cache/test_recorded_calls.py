"""Compiled files on disk: the same programs as those compiled now, loaded with little else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from called import framework, on_gpu
from paths import ROOT

import fusec
from fusec import FusecError, recorded
from fusec.call.program import Program
from fusec.ir.signature import RecordedSignature
from fusec.keywords import options_of
from fusec.recorded import request_of

EXAMPLES = [
    *(ROOT / "examples" / f"{name}.yaml" for name in ("layernorm", "paged_decode")),
    *(
        pytest.param(path, marks=pytest.mark.nightly)
        for path in sorted((ROOT / "examples").glob("*.yaml"))
        if path.stem not in ("layernorm", "paged_decode")
    ),
]
NORM = """
fusion: norm
dims: {B: 4, H: 64}
inputs:
  x: f32[B, H]
  w: f32[H]
  eps: f32 = 1e-5
ops:
  - m = mean(mul(x, x), dims=[1], keepdim=true)
  - y = mul(mul(x, rsqrt(add(m, eps))), w)
outputs: [y]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs are kept in a folder of the test's own."""
    monkeypatch.setenv("FUSEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("FUSEC_PLAN_CACHE")
    return tmp_path / "cache"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "norm.yaml"
    path.write_text(NORM)
    return path


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("??/*.call"))


def request(source: Any, part: str | None = None, **options: Any) -> Any:
    """Return what would be looked for."""
    asked: Any = {"target": "sm_90a", **options}
    return request_of(source, part, options_of("compile", asked))


def is_read(program: Program) -> bool:
    """Return whether a program has read its fusion."""
    return program.signature is program.fusion


def compiled(path: Path, **options: Any) -> Program:
    return fusec.compile(path, target="sm_90a", **options)


def compiled_again(path: Path, **options: Any) -> Program:
    """Return the program of a file that was compiled before; its fusion is not read."""
    program = compiled(path, **options)
    assert isinstance(program.signature, RecordedSignature)
    return program


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_recorded_program_is_the_program(path: Path, folder: Path) -> None:
    first, second = compiled(path), compiled_again(path)
    (one,), (other,) = first.variants, second.variants
    launched = {launch.kernel for launch in one.host.launches}
    assert entries(folder)
    assert (other.host, other.covers) == (one.host, one.covers)
    assert other.host.text() == one.host.text()
    assert other.cubins == {"sm_90a": {name: one.cubins["sm_90a"][name] for name in launched}}
    assert (second.inputs, second.outputs, second.name) == (first.inputs, first.outputs, first.name)
    assert repr(second) == repr(first)
    known, whole = second.signature, first.fusion
    assert known.hints == whole.hints
    assert known.mesh is None
    assert [(i.strides, i.default, i.on_cpu, i.generator, i.value.dim) for i in known.inputs] == [
        (i.strides, i.default, i.on_cpu, i.generator, i.value.dim) for i in whole.inputs
    ]
    assert [o.alias for o in known.outputs] == [o.alias for o in whole.outputs]
    assert second.fusion == first.fusion
    assert is_read(second)


def test_results_are_those_of_the_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, _ = framework(monkeypatch, tmp_path)
    compiled(file)
    program = compiled_again(file)
    draw = np.random.default_rng(0)

    def is_right(b: int, h: int) -> bool:
        x, w = draw.standard_normal((b, h), np.float32), draw.standard_normal(h, np.float32)
        y = program(on_gpu(x), on_gpu(w)).array
        wanted = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-5) * w
        return bool(np.allclose(y, wanted, rtol=1e-5))

    assert is_right(4, 64)
    assert device.asked.count("load") == 1
    assert len(program.variants) == 1
    assert is_right(9, 64)
    assert is_right(4, 80)  # compiled now
    assert len(program.variants) == 2
    with pytest.raises(FusecError, match="not compiled"):
        compiled_again(file, build=False)(*map(on_gpu, (np.zeros((2, 80), "f"), np.zeros(80, "f"))))


@pytest.mark.parametrize(
    "arguments",
    [
        (np.zeros((4, 64)), np.zeros(64, "f")),
        (np.zeros((4, 64), "f"), np.zeros(65, "f")),
        (np.zeros((4, 64), "f"),),
        (np.zeros((4, 128), "f")[:, ::2], np.zeros(64, "f")),
    ],
    ids=["dtype", "shape", "missing", "strides"],
)
def test_errors_are_those_of_the_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any
) -> None:
    """With positions in it, which are not recorded."""
    framework(monkeypatch, tmp_path)
    told: list[str] = []
    for program in (compiled(file), compiled_again(file)):
        with pytest.raises(FusecError) as caught:
            program(*(on_gpu(a) if a.flags.c_contiguous else strided(a) for a in arguments))
        told.append(caught.value.diagnostic.render())
    assert told[0] == told[1]


def strided(array: Any) -> Any:
    made = on_gpu(np.zeros((4, 128), "f"))
    made.array = made.array[:, ::2]
    return made


def test_arrays_on_the_cpu_are_evaluated_by_the_reference(file: Path) -> None:
    compiled(file)
    x, w = np.ones((3, 64), np.float32), np.ones(64, np.float32)
    if recorded.device_available() is not None:
        np.testing.assert_allclose(compiled_again(file)(x, w), x, rtol=1e-4)


def test_a_program_keeps_the_text_that_it_was_compiled_from(file: Path) -> None:
    compiled(file)
    program = compiled_again(file)
    file.write_text(NORM.replace("fusion: norm", "fusion: other"))
    assert program.fusion.name == "norm"
    assert compiled(file).name == "other"


def test_a_file_that_changes_meanwhile_is_not_recorded(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request(file)
    assert asked is not None
    program = compiled(file)
    for entry in entries(folder):
        entry.unlink()
    file.write_text(NORM + "# changed\n")
    recorded.keep_program(asked, program)
    assert not entries(folder)


def test_keys_tell_apart_what_is_compiled_apart(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(path: Path = file, part: str | None = None, **options: Any) -> str:
        found = request(path, part, **options)
        assert found is not None
        return found.key

    other = tmp_path / "other.yaml"
    other.write_text(NORM)
    found = [
        key(), key(other), key(part="norm"), key(target="sm_80"), key(sizes={"H": 128}),
        key(precise=True), key(check_bounds=True), key(streams=2), key(untuned=True),
    ]  # fmt: skip
    assert key() == found[0]
    for name in ("FUSEC_TUNED", "FUSEC_TARGETS"):
        own = tmp_path / name
        own.mkdir()
        monkeypatch.setenv(name, str(own))
        found.append(key())
        (own / "sm_90a.toml").write_text("# of another day\n")
        found.append(key())
        monkeypatch.delenv(name)
    monkeypatch.setenv("FUSEC_DEBUG", "1")
    found.append(key())
    monkeypatch.delenv("FUSEC_DEBUG")
    monkeypatch.setattr(recorded, "compiler_version", lambda: "nvrtc 12.0")
    found.append(key())
    file.write_text(NORM + "# changed\n")
    found.append(key())
    empty = found.pop(11)  # a folder without a file for the target is none
    assert empty in found
    assert len({*found}) == len(found)


@pytest.mark.parametrize(
    "options", [{"should_merge": lambda a, b: True}, {"schedule": "more.yaml"}], ids="+".join
)
def test_what_names_functions_and_other_files_is_compiled_each_time(
    file: Path, options: Any
) -> None:
    assert request(file, **options) is None


def test_what_is_no_file_has_no_record(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = file.with_suffix(".py")
    script.write_text("")
    for source in (NORM, file.parent, file.parent / "absent.yaml", script, object()):
        assert request(source) is None
    assert request(file) is not None
    monkeypatch.setenv("FUSEC_PLAN_CACHE", "0")
    assert request(file) is None


CHECKED = NORM.replace("  - y = mul", "  - g = index_select(x, i, dim=0)\n  - y = mul").replace(
    "  eps", "  i: i32[3]\n  eps"
)


def test_checks_of_indices_are_not_recorded(file: Path, folder: Path) -> None:
    """Errors about them name lines of the file."""
    file.write_text(CHECKED.replace("outputs: [y]", "outputs: [y, g]"))
    compiled(file, check_bounds=True)
    assert not entries(folder)
    compiled(file)
    assert entries(folder)


def test_without_its_machine_code_a_program_is_compiled(file: Path, folder: Path) -> None:
    compiled(file)
    for kernel in folder.glob("??/*.kernel"):
        kernel.unlink()
    program = compiled(file)
    assert is_read(program)
    assert program.variants[0].cubins["sm_90a"]


def test_a_record_that_others_may_write_is_not_used(file: Path, folder: Path) -> None:
    compiled(file)
    (entry,) = entries(folder)
    entry.chmod(0o666)
    assert is_read(compiled(file))


def loaded(path: str) -> set[str]:
    """Return the modules of fusec that a process loads which compiles a file and calls it."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "first_call.py"), path],
        capture_output=True, text=True, cwd=ROOT, check=True, env={**os.environ},
    )  # fmt: skip
    return {*done.stdout.split()}


PLANNING = (
    "codegen", "compiling", "driver", "index", "kernel", "lowering", "ops", "parse", "passes",
    "reference", "segment", "shard", "tuned",
)  # fmt: skip


@pytest.mark.parametrize("name", ["layernorm", "transpose"])
def test_the_first_call_of_a_recorded_program_loads_no_planner(name: str) -> None:
    path = f"examples/{name}.yaml"
    planned, found = loaded(path), loaded(path)
    assert {f"fusec.{part}" for part in PLANNING} <= planned
    assert not {m for m in found if m.split(".")[1:2] and m.split(".")[1] in PLANNING}
    assert {m for m in found if m.startswith("fusec.schedule.")} <= {
        "fusec.schedule.orders", "fusec.schedule.plan", "fusec.schedule.host",
        "fusec.schedule.host.pushed_sums",
    }  # fmt: skip
    assert not {m for m in found if m.startswith("fusec.run.binary.") and "version" not in m}
    assert len(found) < 110
