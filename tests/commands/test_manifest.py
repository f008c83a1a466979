"""A manifest of which one field was changed is refused by name, or changes nothing that runs."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import EXAMPLES, SMALL, fusec, small
from emulated import emulated
from guarded_device import GuardedDevice
from mutations import changes
from nightly import mostly_nightly

from fusec import driver
from fusec.commands.folder import replan
from fusec.commands.folder.artifacts import files_of, write_folder
from fusec.commands.folder.manifest import plan_record
from fusec.commands.folder.reading import package_of, read_folder
from fusec.commands.folder.records import BuildRecord, PlanRecord, signed
from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.explain.record import explain
from fusec.explain.units import time_text
from fusec.ir.text import to_text
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.run.execute import execute
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.schedule.plan import KernelPlan
from fusec.target.table import FOLDER, load

Capture = pytest.CaptureFixture[str]
CHANGES = 300

IN_PLACE = """\
fusion: stepped
dims: {B: 6, H: 40}
inputs:
  p: f32[B, H]
  g:
    type: f32[B, H]
    contiguity: [false, true]
  k: i64 = 3
ops:
  - q = sub(p, mul(g, 0.5))
  - m = max(q, dims=[1])
  - r = mul(m, cast(k, f32))
outputs:
  - q: {alias: p}
  - r
"""
LONG = """\
fusion: total
dims: {B: 4, H: 1048576}
inputs: {x: "f32[B, H]"}
ops:
  - t = sum(x, dims=[1])
outputs: [t]
"""
TAKEN = """\
fusion: taken
dims: {V: 10, H: 16, N: 5}
inputs:
  table: f32[V, H]
  at: {type: "i64[N]", range: [0, 9]}
ops:
  - y = index_select(table, at, dim=0)
outputs: [y]
"""
PRODUCT = """\
fusion: product
dims: {M: 256, N: 128, K: 64}
inputs: {a: "bf16[M, K]", b: "bf16[K, N]", bias: "bf16[N]"}
ops:
  - y = relu(add(matmul(a, b), bias))
outputs: [y]
"""
FUSIONS = {"small": SMALL, "stepped": IN_PLACE, "total": LONG, "taken": TAKEN, "product": PRODUCT}
ON_HOST = ("small", "stepped", "taken")
TARGET = "sm_90a"
OPTIONS = {"taken": CompileOptions(check_bounds=True)}


@dataclass(frozen=True)
class Made:
    """A compiled folder, what it computes, and its kernels for the host."""

    folder: Path
    manifest: dict[str, Any]
    inputs: Mapping[str, Any]
    sizes: Mapping[str, int]
    outputs: Mapping[str, Any]
    kernels: Mapping[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """Return every fusion compiled and run."""
    base = tmp_path_factory.mktemp("manifests")
    return {name: make(name, base / name) for name in FUSIONS}


def make(name: str, folder: Path) -> Made:
    options = OPTIONS.get(name, CompileOptions())
    fusion = read_text(FUSIONS[name], f"{name}.yaml")
    package = driver.compile_targets(Compilation(fusion, options))
    write_folder(folder, files_of(package))
    (folder.parent / f"{name}-host").mkdir()
    on_host = name in ON_HOST
    kernels = emulated(package.program, folder.parent / f"{name}-host").kernels if on_host else {}
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes)
    manifest = json.loads((folder / "manifest.json").read_text())
    known = Made(folder, manifest, inputs, sizes, {}, kernels)
    with pytest.MonkeyPatch.context() as patch:
        outputs = run(known, patch)
    if on_host:
        expected = driver.reference(fusion, inputs, sizes)
        for output, found in outputs.items():
            np.testing.assert_allclose(found, expected[output], rtol=1e-2, atol=1e-5)
    return replace(known, outputs=outputs)


def run(known: Made, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the folder as it lies there, every access checked."""
    package = package_of(read_folder(known.folder), TARGET, CompileOptions())
    host, cubins = package.program.host, package.cubins(TARGET)
    device: Any = GuardedDevice(host, known.sizes, TARGET, known.kernels)
    patch.setattr("fusec.run.bound.encode_tensor_map", device.encode)
    outputs = execute(device, host, cubins, known.inputs, known.sizes)
    assert device.launched
    return outputs


@pytest.fixture
def planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan a fusion once for the same options: it is read from the same file."""
    known: dict[Any, Any] = {}

    def remembered(original: Any, options: CompileOptions, **made: Any) -> Any:
        if made:
            return Compilation(original, options, **made)
        key = (original.name, *(str(getattr(options, f)) for f in options.__dataclass_fields__))
        return known.setdefault(key, Compilation(original, options))

    monkeypatch.setattr(replan, "Compilation", remembered)


@pytest.mark.parametrize("name", mostly_nightly(FUSIONS, 3))
def test_one_changed_field(
    name: str, made: dict[str, Made], monkeypatch: pytest.MonkeyPatch, planned_once: None
) -> None:
    known = made[name]
    every = list(changes(known.manifest))
    refused = 0
    with as_it_was(known):
        for label, make in random.Random(name).sample(every, CHANGES // len(FUSIONS)):
            refused += is_refused(known, label, make(), monkeypatch)
    assert refused > CHANGES // len(FUSIONS) // 2


@contextmanager
def as_it_was(known: Made) -> Generator[None]:
    """Put the manifest back in the end."""
    try:
        yield
    finally:
        (known.folder / "manifest.json").write_text(json.dumps(known.manifest))


def is_refused(known: Made, label: str, changed: Any, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether a changed manifest is refused; else it runs and changes nothing."""
    again = signed(changed) if isinstance(changed, dict) else changed
    (known.folder / "manifest.json").write_text(json.dumps(again))
    problem, outputs = None, dict[str, Any]()
    try:
        outputs = run(known, monkeypatch)
    except FusecError as error:
        problem = error
    except Exception as error:
        raise AssertionError(f"{label}: {type(error).__name__} {error}") from error
    if problem is not None:
        assert problem.exit_code == 2, f"{label}: {problem.render()}"
        assert str(known.folder) in problem.diagnostic.message, f"{label}: {problem.render()}"
        return True
    for output, found in outputs.items():
        assert found.tobytes() == known.outputs[output].tobytes(), label
    return False


# --- what may differ, and what is told -----------------------------------------------------------


@pytest.fixture
def folder(made: dict[str, Made], tmp_path: Path) -> Path:
    """Return a copy of the small fusion's folder, to be changed."""
    return Path(shutil.copytree(made["small"].folder, tmp_path / "out"))


def change(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest, and its digest with it."""
    data = json.loads((folder / "manifest.json").read_text())
    edit(data)
    (folder / "manifest.json").write_text(json.dumps(signed(data)))


def test_the_layout_of_the_file_does_not_count(folder: Path, capsys: Capture) -> None:
    data = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(data, sort_keys=True, indent=1))
    assert fusec(capsys, "run", folder).code == 0


def test_another_version_is_told_where_its_plans_differ(folder: Path, capsys: Capture) -> None:
    change(folder, lambda d: d.update(fusec="0.0.1"))
    assert fusec(capsys, "run", folder).code == 0
    change(folder, lambda d: d["plans"][0]["segments"][0]["parameters"].update(unroll=64))
    fusec(capsys, "run", folder).says(
        2,
        "differs from what fusec compiles from its fusion: "
        "plans[0].segments[0].parameters.unroll is 64",
        "it was compiled by fusec 0.0.1; fusec",
        "help: compile the fusion again",
    )


def test_a_smaller_workspace_is_refused(made: dict[str, Made], capsys: Capture) -> None:
    known = made["total"]
    buffers = known.manifest["plans"][0]["program"]["buffers"]
    number = next(k for k, b in enumerate(buffers) if b["role"] == "workspace")
    with as_it_was(known):
        change(
            known.folder,
            lambda d: d["plans"][0]["program"]["buffers"][number].update(shape=[1]),
        )
        fusec(capsys, "run", known.folder).says(2, f"plans[0].program.buffers[{number}].shape[0]")


NO_BUILD = BuildRecord("", 0, 0, 0, "", 0)
STRIDES = """\
fusion: strides
dims: {B: 96, A: 4}
inputs:
  x: {type: "f32[B, A]", contiguity: [false, false], stride_order: [0, 1]}
ops:
  - y = exp(x)
outputs: [y]
"""
LATER = """\
fusion: later
inputs:
  x: f32[n, 4]
  n: i64 = 8
ops:
  - y = exp(x)
outputs: [y]
"""


@pytest.mark.parametrize("text", [STRIDES, LATER], ids=["strides", "later"])
def test_sizes_of_all_kinds_come_back(text: str, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    assert fusec(capsys, "compile", small(tmp_path, text), "-o", out).code == 0
    assert fusec(capsys, "run", out).code == 0


@pytest.mark.parametrize(
    "path", mostly_nightly(sorted(EXAMPLES.glob("*.yaml")), 3), ids=lambda p: p.stem
)
def test_examples_are_planned_alike_from_their_text(path: Path) -> None:
    fusion = driver.load(str(path))
    records: list[PlanRecord] = []
    for read in (fusion, read_text(to_text(fusion))):
        program = Compilation(read, CompileOptions())
        record = plan_record(program, "kernels", lambda *_: NO_BUILD)
        records.append(replan.without_labels(record))
    assert records[0] == records[1]


def test_options_are_kept(tmp_path: Path, capsys: Capture) -> None:
    out, path = tmp_path / "out", EXAMPLES / "softmax.yaml"
    options = ["--without", "share_expressions", "--redefine", "never"]
    assert fusec(capsys, "compile", path, "-o", out, *options).code == 0
    assert fusec(capsys, "run", out).code == 0
    change(out, lambda d: d["options"].update(without=["remove_ded"]))
    fusec(capsys, "run", out).says(2, "cannot be planned with its options: unknown pass")
    change(out, lambda d: d["options"].update(without=[], redefine="often"))
    fusec(capsys, "run", out).says(2, "`redefine` must be one of after, before, never")


SLICED = """\
fusion: sliced
dims: {B: 3, T: 2048}
inputs: {x: "bf16[B, T, 1024]", w: "bf16[B, 1024, 4096]"}
ops:
  - y = slice(matmul(x, w), [0, 2040, 8], [3, 2048, 4096], [1, 1, 2])
outputs: [y]
"""


def test_a_folder_is_predicted_as_it_was_planned(tmp_path: Path, capsys: Capture) -> None:
    """The slice stays behind the product, as nothing was to be redefined."""
    out = tmp_path / "out"
    given = ("--redefine", "never", "--without", "hoist_selections")
    assert fusec(capsys, "compile", small(tmp_path, SLICED), "-o", out, *given).code == 0
    program = Compilation(read_text(SLICED), CompileOptions(redefine="never", without=given[3:]))
    assert len(program.plans) == 2
    said = fusec(capsys, "run", out).out
    assert "(y: no kernel)" in said
    assert f"total {time_text(explain(program).seconds)}, " in said


def test_a_plan_for_fewer_registers_is_known_again(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def most(built: Any, plan: KernelPlan) -> int:
        return 1000 if plan.parameters.chunks == 4 else 0

    monkeypatch.setattr("fusec.run.spills._most", most)
    assert fusec(capsys, "compile", EXAMPLES / "softmax.yaml", "-o", out).code == 0
    (segment,) = json.loads((out / "manifest.json").read_text())["plans"][0]["segments"]
    assert segment["parameters"]["chunks"] == 2
    assert fusec(capsys, "run", out).code == 0


def test_rates_of_ones_own_come_along(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (FOLDER / "sm_90a.toml").read_text()
    slow = re.sub(r"(?m)^sms = .*$", "sms = 2", text)
    (tmp_path / "rates").mkdir()
    (tmp_path / "rates" / "sm_90a.toml").write_text(slow)
    path = EXAMPLES / "column_mean.yaml"
    plain, own = tmp_path / "plain", tmp_path / "own"
    assert fusec(capsys, "compile", path, "-o", plain).code == 0
    monkeypatch.setenv("FUSEC_TARGETS", str(tmp_path / "rates"))
    load.cache_clear()
    try:
        assert fusec(capsys, "compile", path, "-o", own).code == 0
        assert fusec(capsys, "run", plain).code == 0
        monkeypatch.delenv("FUSEC_TARGETS")
        load.cache_clear()
        assert fusec(capsys, "run", own).code == 0
        assert (own / "targets" / "sm_90a.toml").read_text() == slow
        (own / "targets" / "sm_90a.toml").unlink()
        load.cache_clear()
        fusec(capsys, "run", own).says(2, "targets/sm_90a.toml` is missing")
        change(own, lambda d: d["files"].pop("targets/sm_90a.toml"))
        fusec(capsys, "run", own).says(2, "differs from what fusec compiles from its fusion")
    finally:
        load.cache_clear()
