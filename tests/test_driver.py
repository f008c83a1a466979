"""The driver: plans for each target, sizes, names, and `fd.execute` in a plain Python program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cli_tools import EXAMPLES, ROOT, SCRIPT, SMALL, small

from fusec import driver, eager
from fusec.diagnostics import EnvironmentProblem, FusecError, InternalError
from fusec.files import Names, with_sizes
from fusec.ir.graph import Fusion
from fusec.options import DUMP_KINDS, CompileOptions
from fusec.parse import read_text
from fusec.reference.evaluate import evaluate
from fusec.run.device import DeviceFacts
from fusec.run.inputs import choose_sizes, random_inputs
from fusec.stages import Timings

ALIASED = """\
fusion: aliased
dims: {B: 4, H: 8}
inputs: {x: "f32[B, H]", total: "f32[B, H]"}
ops:
  - sum_out = add(x, total)
  - half = cast(sum_out, f16)
outputs:
  - half
  - sum_out: {alias: total}
"""


def test_execute_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "none today")
    eager._note_reference.cache_clear()  # pyright: ignore[reportPrivateUsage]
    fusion = read_text(ALIASED, "aliased.yaml")
    x = np.full((3, 8), 0.1, np.float32)
    total = np.ones((3, 8), np.float32)
    for _ in range(2):
        half, summed = eager.execute(fusion, [x, total])
    assert half.dtype == np.float16
    assert summed.dtype == np.float32
    assert summed.tolist() == (x.astype(np.float64) + total).astype(np.float32).tolist()
    assert half.tolist() == summed.astype(np.float16).tolist()
    assert total.max() == 1, "the caller stores what is written into inputs"
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "fusec: results come from the fp64 reference (none today)\n"


class PlayedDevice:
    """A device whose program is run by the reference."""

    def __enter__(self) -> PlayedDevice:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def facts(self) -> Any:
        from types import SimpleNamespace

        from fusec import target

        return SimpleNamespace(target=target.find("sm_80"), capability=80)


def test_execute_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fusion = read_text(ALIASED, "aliased.yaml")
    seen: dict[str, Any] = {}

    def run_program(device: Any, program: Any, cubins: Any, inputs: Any, sizes: Any) -> Any:
        seen.update(cubins=cubins, sizes=sizes, program=program)
        return {k: v for k, v in reversed(driver.reference(fusion, inputs, sizes).items())}

    monkeypatch.setattr("fusec.run.device.device_available", lambda: None)
    monkeypatch.setattr("fusec.run.device.Device", PlayedDevice)
    monkeypatch.setattr("fusec.run.execute.execute", run_program)
    x = np.ones((5, 8), np.float32)
    half, summed = eager.execute(fusion, [x, x])
    assert half.dtype == np.float16
    assert summed.tolist() == (x + x).tolist()
    assert seen["sizes"] == {"B": 5, "H": 8}
    (kernel,) = seen["cubins"]
    assert kernel == seen["program"].launches[0].kernel
    # The ELF flags of a cubin hold its architecture: this one is built for the GPU at hand.
    assert 80 in seen["cubins"][kernel][48:52]


def test_execute_refuses_inputs_that_do_not_fit() -> None:
    fusion = read_text(ALIASED, "aliased.yaml")
    with pytest.raises(FusecError, match="`H`"):
        eager.execute(fusion, [np.ones((3, 8), np.float32), np.ones((3, 9), np.float32)])


def test_a_plain_program_executes_and_validates(tmp_path: Path) -> None:
    text = SCRIPT.replace("nvfuser", "fusec") + (
        "a = np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)\n"
        "(y,) = first.execute([a])\n"
        "assert y.dtype == np.float32 and np.allclose(y, np.exp(a), rtol=1e-6), y\n"
        "first.validate([a])\n"
        "print('done')\n"
    )
    done = subprocess.run(
        [sys.executable, small(tmp_path, text, "plain.py")],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": ""},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("fusec: results come from the fp64 reference (")


def test_the_reference_is_rounded_to_the_declared_types() -> None:
    fusion = read_text(SMALL, "small.yaml")
    sizes = choose_sizes(fusion)
    inputs = random_inputs(fusion, sizes)
    made = driver.reference(fusion, inputs, sizes)["y"]
    assert made.dtype == ml_dtypes.bfloat16
    assert made.astype(np.float64).tolist() == evaluate(fusion, inputs, sizes)["y"].tolist()


def test_targets_share_a_plan_where_it_is_the_same() -> None:
    fusion = read_text(SMALL, "small.yaml")
    options = CompileOptions(targets=("sm_90a", "sm_80"))
    built = driver.compile_targets(driver.Compilation(fusion, options))
    (program,) = built.programs
    assert built.targets == program.targets == ("sm_90a", "sm_80")
    assert set(built.artifacts) == {("small_pointwise", t) for t in built.targets}
    assert set(built.cubins("sm_80")) == {"small_pointwise"}
    assert built.cubins("sm_80") != built.cubins("sm_90a")


def test_targets_with_other_instructions_have_plans_of_their_own() -> None:
    fusion = driver.load(str(EXAMPLES / "linear_gelu.yaml"))
    options = CompileOptions(targets=("sm_90a", "sm_80", "sm_89"))
    built = driver.compile_targets(driver.Compilation(fusion, options))
    hopper, others = built.programs
    assert (hopper.targets, others.targets) == (("sm_90a",), ("sm_80", "sm_89"))
    texts = [program.kernel_sources[0].text for program in (hopper, others)]
    assert ["wgmma" in text for text in texts] == [True, False]
    assert all(a.cubin for a in built.artifacts.values())
    assert [arch for _, arch in built.artifacts_of(others)] == ["sm_80", "sm_89"]


def test_compile_fusion_takes_the_first_target() -> None:
    fusion = read_text(SMALL, "small.yaml")
    built = driver.compile_fusion(fusion, CompileOptions(targets=("sm_89", "sm_80")))
    assert built.targets == ("sm_89",)
    assert [arch for _, arch in built.artifacts] == ["sm_89"]


def test_stages_are_timed_in_order() -> None:
    built = driver.compile_fusion(read_text(SMALL, "small.yaml"), CompileOptions())
    stages = list(built.program.timings.seconds)
    assert stages == ["partition", "passes", "segment", "schedule", "codegen", "build"]
    timings = Timings()
    assert timings.measure("a", lambda: 3) == 3
    timings.measure("a", lambda: None)
    assert timings.seconds["a"] > 0


def test_a_stage_takes_what_earlier_ones_give() -> None:
    known, shown = {"original"}, {"fusion-ir", "python", "sass", "groups"}
    for stage in driver.STAGES:
        assert {*stage.takes} <= known
        known.add(stage.gives)
        assert not shown & {*stage.dumps}
        shown |= {*stage.dumps}
    assert shown == DUMP_KINDS.keys()


def test_a_stage_runs_once_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    program = driver.Compilation(read_text(SMALL, "small.yaml"), CompileOptions())
    assert program.made == {}
    assert program.segmented is program.segmented
    assert list(program.made) == ["local", "fusion", "segmented"]
    monkeypatch.setattr(driver.Compilation.segmented, "run", None)
    begun = driver.Compilation(program.original, program.options, segmented=program.segmented)
    assert [p.scheduler for p in begun.plans] == ["pointwise"]
    assert "fusion" not in begun.made


def test_what_passes_leave_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(fusion: Fusion, options: CompileOptions) -> Fusion:
        return fusion.with_nodes((*fusion.nodes, fusion.nodes[0]))

    monkeypatch.setattr(driver.Compilation.fusion, "run", doubled)
    with pytest.raises(InternalError, match="is defined twice"):
        driver.plan(read_text(SMALL, "small.yaml"), CompileOptions())


@pytest.mark.parametrize(
    ("capability", "arch"),
    [(80, "sm_80"), (86, "sm_80"), (89, "sm_89"), (90, "sm_90a"), (103, "sm_100")],
)
def test_a_gpu_gets_its_target(capability: int, arch: str) -> None:
    facts = DeviceFacts("GPU", capability, 1, 1, 1, 1, 1.0, "CUDA 13.0")
    assert driver.for_device(CompileOptions(), facts).targets == (arch,)
    given = CompileOptions(targets=("sm_120",), targets_given=True)
    assert driver.for_device(given, facts) is given


def test_a_gpu_without_a_target() -> None:
    facts = DeviceFacts("T4", 75, 1, 1, 1, 1, 1.0, "CUDA 13.0")
    with pytest.raises(EnvironmentProblem, match=r"no known target runs on T4 \(sm_75\)"):
        driver.for_device(CompileOptions(), facts)


def test_names_are_told_apart() -> None:
    one = read_text(SMALL, "small.yaml")
    other = read_text(SMALL.replace("exp(", "sin("), "small.yaml")
    wider = with_sizes(one, {"B": 99})
    names = Names()
    given = [names.unique(f).name for f in (one, other, wider, one, other)]
    assert given == ["small", "small_2", "small", "small", "small_2"]


def test_load_takes_one_fusion(tmp_path: Path) -> None:
    path = str(small(tmp_path, SCRIPT, "two.py"))
    assert [p.original.name for p in driver.programs(path)] == ["two", "two_2"]
    with pytest.raises(FusecError, match="defines 2 fusions: two, two_2"):
        driver.load(path)


def test_sizes_that_were_put_in_are_guarded() -> None:
    fusion = driver.load(str(EXAMPLES / "layernorm.yaml"))
    planned = driver.plan(fusion, CompileOptions())
    (plan,) = planned.plans
    assert plan.specialised
    guards = {str(g) for g in plan.guards}
    assert {f"{name} == {size}" for name, size in plan.specialised.items()} <= guards


def test_a_long_chain_of_operations_is_planned() -> None:
    steps = "".join(f"  - y{k + 1} = mul(y{k}, x)\n" for k in range(1, 400))
    head = "fusion: chain\ndims: {N: 64}\ninputs: {x: 'f32[N]'}\nops:\n  - y1 = neg(x)\n"
    fusion = read_text(f"{head}{steps}outputs: [y400]\n", "chain.yaml")
    planned = driver.plan(fusion, CompileOptions())
    assert [p.scheduler for p in planned.plans] == ["pointwise"]
