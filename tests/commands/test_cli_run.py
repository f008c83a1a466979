"""`fusec run`: files of arrays, scripts, dumps on the way, verdicts and exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cli_tools import EXAMPLES, EXECUTED, SCRIPT, SMALL, Result, fusec, small
from documented import documented
from named_kernels import named_kernels
from played_gpu import play_gpu
from safetensors.numpy import save_file

from fusec import driver, lowering
from fusec.commands.report import HEADINGS
from fusec.commands.running import run as run_command
from fusec.commands.running.prediction import HEADINGS as PREDICTED
from fusec.diagnostics import InternalError
from fusec.run.arrays import load_arrays

Capture = pytest.CaptureFixture[str]
BF16 = ml_dtypes.bfloat16


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run alike with a GPU and without; `on_gpu` plays one."""
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "none today")
    monkeypatch.delenv("NVFUSER_DUMP", raising=False)


@pytest.fixture
def _no_machine_code() -> Iterator[None]:
    """Compile nothing: the GPU that is played runs no kernel."""
    with named_kernels():
        yield


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Play a GPU that runs the reference; `wrong` is added to each output's first element."""
    return play_gpu(monkeypatch)


def run(capsys: Capture, path: Path, *options: object) -> Result:
    return fusec(capsys, "run", path, "--target", "sm_90a", *options)


def test_without_a_gpu_it_builds_and_says_so(tmp_path: Path, capsys: Capture) -> None:
    done = run(capsys, small(tmp_path))
    assert (done.code, done.err) == (0, "")
    first, heading, row, total, output, said, *rest = done.out.splitlines()
    assert first == "small: 1 kernel built for sm_90a, predicted for H200 at B=8, H=16"
    assert [h.strip() for h in heading.split("  ") if h] == list(PREDICTED)
    # 2 reads and writes of bf16[8, 16] and one of f32[16] are 576 bytes; a launch takes longer.
    kernel, scheduler, time, unit, *bytes_, bound = row.split()
    assert (kernel, scheduler, unit, bound) == ("small_pointwise", "pointwise", "us", "launch")
    assert bytes_ == ["576", "B"]
    assert total == f"total {time} us, traffic 576 B, compulsory 576 B (100 %)"
    assert output == "  y: bf16[8, 16]"
    assert said == "not verified on a GPU: none today"
    assert rest[0] == "next:"
    commands = [line.strip().split("  ")[0] for line in rest[1:-1]]
    path = tmp_path / "small.yaml"
    assert commands == [f"fusec explain {path}", f"fusec dump {path} --cuda-kernel",
                        f"fusec run {path} --print 4"]  # fmt: skip


@pytest.mark.nightly
def test_nothing_is_evaluated_unless_it_is_asked_for(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither inputs are drawn nor the reference is evaluated, at sizes that no machine holds."""

    def fail(*_: Any) -> None:
        raise AssertionError("nobody asked")

    monkeypatch.setattr("fusec.run.inputs.random_inputs", fail)
    monkeypatch.setattr(driver, "reference", fail)
    path = small(tmp_path)
    done = run(capsys, path, "--set", "B=1000000", "--set", "H=1000000")
    assert (done.code, done.err) == (0, "")
    assert "  y: bf16[1000000, 1000000]\n" in done.out
    assert f"fusec explain {path} --set B=1000000 --set H=1000000 " in done.out
    joint = run(capsys, EXAMPLES / "joint" / "norm_dropout_residual.yaml")
    assert (joint.code, joint.err) == (0, "")
    assert joint.out.count("predicted for H200") == 2
    assert joint.out.count("not verified on a GPU") == 1


def test_what_is_asked_for_is_evaluated(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    done = run(capsys, path, "--print", 3)
    assert (done.code, done.err) == (0, "")
    assert "predicted for H200" in done.out
    assert "small: reference evaluated\n  y: bf16[8, 16]\n    " in done.out
    assert "next:" not in done.out
    values = done.out.split("  y: bf16[8, 16]\n    ")[1].splitlines()[0]
    assert values.endswith(", ...")
    saved = tmp_path / "y.npz"
    plain = run(capsys, path, "--outputs", saved)
    assert "small: reference evaluated\n  y: bf16[8, 16]\nnot verified" in plain.out
    kept = load_arrays(saved)["y"].view(BF16).reshape(-1)[:3]
    assert values.split(", ")[:3] == [f"{float(v):.6g}" for v in kept]


PRINTED = """\
fusion: printed
inputs: {x: 'f32[2]', n: 'i64[]'}
ops:
  - b = gt(x, 0.0)
  - c = cast(x, c64)
  - m = neg(n)
  - e = slice(x, start_indices=[1], end_indices=[1])
  - h = cast(x, f8e4m3)
outputs: [b, c, m, e, h]
"""


def test_values_of_every_kind_are_printed(tmp_path: Path, capsys: Capture, on_gpu: Any) -> None:
    """On a GPU, too, after the table and beside the verdict."""
    np.savez(tmp_path / "in.npz", x=np.array([1.5, -2.0], np.float32), n=np.int64(7))
    on_gpu["wrong"] = 0
    done = run(capsys, small(tmp_path, PRINTED), "--inputs", tmp_path / "in.npz", "--print", 9,
               "--no-verify", "--device", "reference")  # fmt: skip
    assert done.code == 0, done.err
    assert done.out.splitlines()[1:-1] == [
        "  b: bool[2]", "    true, false",
        "  c: c64[2]", "    1.5+0i, -2+0i",
        "  m: i64[]", "    -7",
        "  e: f32[0]", "    no elements",
        "  h: f8e4m3[2]", "    1.5, -2",
    ]  # fmt: skip
    done = run(capsys, small(tmp_path), "--print", 2)
    assert done.code == 0
    assert "\n  y: bf16[8, 16]\n    " in done.out
    assert "verified (checked" in done.out


def test_what_a_gpu_computed_is_kept_printed_and_compared(
    tmp_path: Path, capsys: Capture, on_gpu: Any
) -> None:
    path, right, kept = small(tmp_path), tmp_path / "right.npz", tmp_path / "kept.npz"
    assert run(capsys, path, "--device", "reference", "--outputs", right).code == 0
    on_gpu["wrong"] = 64.0
    assert run(capsys, path, "--no-verify", "--outputs", kept).code == 0
    first, wrong = (float(load_arrays(str(f))["y"].view(BF16).flat[0]) for f in (right, kept))
    assert wrong - first > 60
    done = run(capsys, path, "--no-verify", "--print", 1)
    assert f"    {wrong:g}" in done.out
    assert run(capsys, path, "--no-verify", "--expect", right).code == 1


def test_the_reference_needs_no_compiler(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusec.run.build.compile_cuda", None)
    monkeypatch.setattr(driver.Compilation.fusion, "run", None)
    done = run(capsys, small(tmp_path), "--device", "reference")
    assert done.code == 0
    assert "small: reference evaluated" in done.out


def test_the_table_and_the_verdict(tmp_path: Path, capsys: Capture, on_gpu: Any) -> None:
    done = run(capsys, small(tmp_path), "--repeat", 7)
    assert (done.code, done.err) == (0, "")
    heading, row, total, *verdict = done.out.splitlines()
    assert heading.split("  ")[0] == HEADINGS[0]
    assert heading.split("  ")[-1].strip() == HEADINGS[-1]
    # 2 reads and writes of bf16[8, 16] and one of f32[16] are 576 bytes, in 2 us.
    assert re.split(r"  +", row) == [
        "small_pointwise", "pointwise", "2 us", "576 B", "0", "<1 % of bandwidth",
    ]  # fmt: skip
    least = "(<1 % of bandwidth, compulsory traffic 576 B)"
    assert total == f"total 3 us {least}, median of 7 runs with a cold L2, on a played GPU"
    assert verdict[0].startswith("verified (checked: ")
    assert verdict[1].startswith("y: ok, max error ")
    told = documented(run(capsys, small(tmp_path), "--repeat", 7, "--json").out)
    (found,) = told["runs"]
    assert told["gpu"] == {"used": True, "reason": None}
    assert (found["device"], found["seconds"], found["repeats"]) == ("a played GPU", 3e-6, 7)
    assert [k["seconds"] for k in found["kernels"]] == [2e-6]
    (segment,) = found["segments"]
    assert (segment["seconds"], segment["compulsory_bytes"]) == (2e-6, 576)
    assert segment["share"] == pytest.approx(576 / (1e12 * 2e-6))
    judged = found["verdict"]
    assert (judged["word"], judged["accepted"], judged["against"]) == (
        "verified", True, "reference",
    )  # fmt: skip
    assert [o["name"] for o in judged["compared"]] == ["y"]


@pytest.mark.parametrize("tolerances", [(), ("--rtol", "0.1")])
def test_tools_are_told_what_differs(
    tolerances: tuple[str, ...], tmp_path: Path, capsys: Capture, on_gpu: Any
) -> None:
    on_gpu["wrong"] = 64.0
    done = run(capsys, small(tmp_path), "--json", *tolerances)
    assert done.code == 1
    (found,) = documented(done.out)["runs"]
    assert (found["verdict"]["word"], found["verdict"]["accepted"]) == ("differs", False)
    (output,) = found["verdict"]["compared"]
    assert (output["wrong"], output["worst"][0]["index"]) == (1, [0, 0])


SEVERAL = """\
fusion: several
inputs: {x: "f32[4096, 512]", a: "bf16[512, 512]", b: "bf16[512, 512]"}
ops:
  - t = sum(x, dims=[0])
  - y = softmax(x, dim=1)
  - z = matmul(a, b)
outputs: [t, y, z]
segments: {columns: [t], rows: [y], product: [z]}
"""


@pytest.mark.usefixtures("_no_machine_code")
def test_shares_are_of_segments_and_of_what_they_must_do(
    tmp_path: Path, capsys: Capture, on_gpu: Any
) -> None:
    """The times of a segment's kernels are summed, against its compulsory traffic."""
    path = tmp_path / "several.yaml"
    path.write_text(SEVERAL)
    done = run(capsys, path)
    assert (done.code, done.err) == (0, "")
    rows = [re.split(r"  +", line) for line in done.out.splitlines()[1:]]
    kernels = {r[0]: r[1:] for r in rows if "total" not in r[0]}
    (total,) = [r[0] for r in rows if r[0].startswith("total")]
    product = next(r for n, r in kernels.items() if "matmul" in n)
    # 2 x 512^3 operations at 1e15 a second are 13 % of 2 us; 1.57 MB at 1e12 are 79 %.
    assert product[1:] == ["2 us", "1.57 MB", "786", "79 % of bandwidth"]
    # x is read by two segments, and must be read once.
    assert "compulsory traffic 18.4 MB" in total


@pytest.mark.usefixtures("_no_machine_code")
def test_what_a_kernel_reads_twice_counts_once(
    tmp_path: Path, capsys: Capture, on_gpu: Any
) -> None:
    pinned = (EXAMPLES / "softmax.yaml").read_text() + "segments: {s: [xf, shifted, e, y]}\n"
    long = run(capsys, small(tmp_path, pinned), "--set", "B=2", "--set", "H=262144")
    assert re.split(r"  +", long.out.splitlines()[1])[3:5] == ["2.10 MB", "1049"]


@pytest.mark.usefixtures("_no_machine_code")
def test_the_kernels_of_a_segment_share_its_figures(capsys: Capture, on_gpu: Any) -> None:
    done = run(capsys, EXAMPLES / "layernorm_backward.yaml", "--set", "B=64", "--set", "H=256")
    first, second, both = (re.split(r"  +", line) for line in done.out.splitlines()[1:4])
    assert [first[2:], second[2:]] == [["2 us"], ["2 us"]]
    assert both[0] == "s0, 2 kernels"
    assert both[2] == "4 us"
    assert both[-1].endswith(" % of bandwidth")


def test_the_figures_of_a_folder_are_of_the_sizes_that_it_is_for(
    tmp_path: Path, capsys: Capture, on_gpu: Any
) -> None:
    folder = tmp_path / "small.fusec"
    assert fusec(capsys, "compile", small(tmp_path), "-o", folder).code == 0
    same = run(capsys, folder)
    assert "<1 % of bandwidth, compulsory traffic 576 B" in same.out
    inputs, _ = save_inputs(tmp_path, "npz", x=np.ones((5, 16), BF16), w=np.ones(16, np.float32))
    other = run(capsys, folder, "--inputs", inputs)
    assert other.code == 0
    assert "of bandwidth" not in other.out
    assert "total 3 us, median" in other.out


def test_wrong_results_are_shown_with_their_origin(
    tmp_path: Path, capsys: Capture, on_gpu: Any
) -> None:
    on_gpu["wrong"] = 1.0
    done = run(capsys, small(tmp_path))
    assert (done.code, done.err) == (1, "")
    assert "differs (checked: all)" in done.out
    assert "y: 1 of 128 elements differ" in done.out
    assert "\n  [0, 0]: " in done.out
    assert "`y` is computed by segment s0 (pointwise), kernel small_pointwise" in done.out
    unchecked = run(capsys, small(tmp_path), "--no-verify")
    assert unchecked.code == 0
    assert "verified" not in unchecked.out


def test_time_covers_the_run(tmp_path: Path, capsys: Capture, on_gpu: Any) -> None:
    done = run(capsys, small(tmp_path), "--time")
    stages = [line.split()[0] for line in done.out.splitlines() if line.endswith(" ms")]
    assert stages == [
        "partition",
        "passes",
        "segment",
        "schedule",
        "codegen",
        "build",
        "run",
        "verify",
    ]


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
@pytest.mark.parametrize("gpu", [False, True])
def test_outputs_are_expected_again(
    suffix: str, gpu: bool, tmp_path: Path, capsys: Capture, request: pytest.FixtureRequest
) -> None:
    if gpu:
        request.getfixturevalue("on_gpu")
    path, saved = small(tmp_path), tmp_path / f"out.{suffix}"
    assert run(capsys, path, "--outputs", saved).code == 0
    kept = load_arrays(saved)
    assert list(kept) == ["y"]
    assert kept["y"].dtype == (np.uint16 if suffix == "npz" else BF16)
    again = run(capsys, path, "--expect", saved)
    assert again.code == 0
    assert f"as in {saved}" in again.out
    other = run(capsys, path, "--expect", saved, "--seed", 1)
    assert (other.code, other.err) == (1, "")
    assert f"elements differ from `{saved}`, first at [" in other.out
    shape = run(capsys, path, "--expect", saved, "--set", "B=4")
    assert shape.code == 1
    assert f"y: has shape [4, 16], in `{saved}` [8, 16]" in shape.out


def save_inputs(folder: Path, suffix: str, **changes: Any) -> tuple[Path, dict[str, Any]]:
    arrays: dict[str, Any] = {
        "x": np.linspace(-1, 1, 60).reshape(3, 20).astype(BF16),
        "w": np.linspace(0, 1, 20, dtype=np.float32),
        "s": np.asarray(0.5, np.float32),
        **changes,
    }
    arrays = {k: v for k, v in arrays.items() if v is not None}
    path = folder / f"in.{suffix}"
    if suffix == "npz":
        plain = {k: v.view(np.uint16) if v.dtype == BF16 else v for k, v in arrays.items()}
        np.savez(path, **plain)
    else:
        save_file(arrays, path)
    return path, arrays


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_inputs_bring_their_sizes(suffix: str, tmp_path: Path, capsys: Capture) -> None:
    path, arrays = save_inputs(tmp_path, suffix)
    saved = tmp_path / "out.npz"
    done = run(capsys, small(tmp_path), "--inputs", path, "--outputs", saved)
    assert (done.code, done.err) == (0, "")
    wide = {k: v.astype(np.float64) for k, v in arrays.items()}
    expected = (np.exp(wide["x"] + wide["w"]) * wide["s"]).astype(BF16)
    assert load_arrays(saved)["y"].view(BF16).tolist() == expected.tolist()
    assert run(capsys, small(tmp_path), "--inputs", path, "--set", "B=3").code == 0


def test_plans_are_made_for_the_inputs(tmp_path: Path, capsys: Capture, on_gpu: Any) -> None:
    path, _ = save_inputs(tmp_path, "npz", s=None)
    seen: list[dict[str, int]] = []

    def optimise(fusion: Any, options: Any) -> Any:
        seen.append(dict(fusion.hints))
        return lowering.optimise(fusion, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.Compilation.fusion, "run", optimise)
        assert run(capsys, small(tmp_path), "--inputs", path).code == 0
    assert seen == [{"B": 3, "H": 20}]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"w": None}, "has no array `w`"),
        ({"w": np.ones(19, np.float32)}, "dim 0 of input `w` (`H`) is 19, expected 20"),
        ({"w": np.ones(20, np.float64)}, "`w` has dtype float64, declared f32"),
        ({"w": np.ones((20, 1), np.float32)}, "input `w` has 2 dims [20, 1], expected 1"),
        ({"s": np.ones(2, np.float32)}, "input `s` is a scalar, got shape [2]"),
        (
            {"x": np.ones((3, 18), BF16), "w": np.ones(18, np.float32)},
            "dim `H` is 18, declared a multiple of 4",
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_inputs_that_do_not_fit(
    changes: dict[str, Any], message: str, tmp_path: Path, capsys: Capture
) -> None:
    path, _ = save_inputs(tmp_path, "safetensors", **changes)
    run(capsys, small(tmp_path), "--inputs", path).says(2, message)


def test_inputs_against_set_and_expect(tmp_path: Path, capsys: Capture) -> None:
    path, _ = save_inputs(tmp_path, "npz")
    options = ["--inputs", path, "--set", "B=4"]
    run(capsys, small(tmp_path), *options).says(2, "--set B=4, but the inputs have B=3")
    message = "has no array `y`"
    run(capsys, small(tmp_path), "--expect", path).says(2, message, "it has s, w, x")


def test_a_script_gets_results_back(tmp_path: Path, capsys: Capture) -> None:
    done = run(capsys, small(tmp_path, EXECUTED, "two.py"))
    assert (done.code, done.err) == (0, "")
    heads = [line for line in done.out.splitlines() if "built for" in line]
    assert heads == [
        "two: 1 kernel built for sm_90a, predicted for H200 at x_size0=4, x_size1=6",
        "two_2: 1 kernel built for sm_90a, predicted for H200 at x_size0=4, x_size1=6",
    ]
    assert done.out.count("reference evaluated") == 2
    assert done.out.index("the script is done\n") < done.out.index("not verified on a GPU")


def test_a_script_on_a_gpu_is_verified(tmp_path: Path, capsys: Capture, on_gpu: Any) -> None:
    done = run(capsys, small(tmp_path, EXECUTED, "two.py"))
    assert done.code == 0
    assert done.out.count("verified (checked") == 2 == on_gpu["runs"]
    text = EXECUTED.replace("assert np.allclose(y, np.exp(a)), y", "")
    on_gpu["wrong"] = 1.0
    done = run(capsys, small(tmp_path, text, "two.py"))
    assert done.code == 1
    assert done.out.endswith("the script is done\n")


def test_definitions_that_are_not_executed_run_on_random_inputs(
    tmp_path: Path, capsys: Capture, on_gpu: Any
) -> None:
    done = run(capsys, small(tmp_path, SCRIPT, "two.py"))
    assert done.code == 0
    assert on_gpu["runs"] == 2


def test_one_fusion_at_several_sizes_keeps_its_name(tmp_path: Path, capsys: Capture) -> None:
    text = SCRIPT + "for n in (2, 3):\n    first.execute([np.ones((n, 4), 'f4')])\n"
    done = run(capsys, small(tmp_path, text, "two.py"))
    assert [line.split(":")[0] for line in done.out.splitlines() if "built for" in line] == [
        "two",
        "two",
        "two_2",
    ]


def test_options_that_a_script_leaves_without_effect(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path, EXECUTED, "two.py")
    run(capsys, path, "--set", "x_size0=4").says(2, "the script passes the inputs itself")
    done = run(capsys, path, "--outputs", tmp_path / "o.npz")
    done.says(2, "runs several fusions", f"{path}:16:")


def test_dumps_on_the_way(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small(tmp_path, EXECUTED, "two.py")
    monkeypatch.setenv("NVFUSER_DUMP", "segmented_fusion")
    done = run(capsys, path)
    assert done.code == 0
    assert done.out.count("Segmented_Fusion{") == 2
    # The dump comes before its fusion runs, as nvFuser prints it.
    assert done.out.index("Segmented_Fusion{") < done.out.index("two: 1 kernel")
    monkeypatch.setenv("NVFUSER_DUMP", " scheduler_params(all), cuda_kernel ")
    done = run(capsys, small(tmp_path))
    assert "s0: pointwise" in done.out
    assert "__global__" in done.out
    assert "Segmented_Fusion{" not in done.out


def test_a_fault_of_the_gpu_names_the_way_to_reproduce_it(
    tmp_path: Path, capsys: Capture, on_gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise InternalError("the GPU reports CUDA_ERROR_ILLEGAL_ADDRESS (kernel `k`)")

    monkeypatch.setattr(run_command, "_execute", fail)
    path = small(tmp_path)
    done = run(capsys, path)
    done.says(70, "CUDA_ERROR_ILLEGAL_ADDRESS", f"to reproduce: fusec run {path}")


def test_views_are_traced_to_their_kernel() -> None:
    from fusec.commands.report import origin
    from fusec.options import CompileOptions
    from fusec.parse import read_text

    compiled = driver.compile_fusion(read_text(SMALL, "s.yaml"), CompileOptions())
    assert origin(compiled, "y") == "segment s0 (pointwise), kernel small_pointwise"
    assert origin(compiled, "x") == "no kernel: it is a view of an input"
