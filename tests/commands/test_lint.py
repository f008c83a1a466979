"""Warnings: what they say and where, what draws none, and diagnostics as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import SMALL, Result, fusec, small

from fusec import driver, lowering
from fusec.commands.lint import lint, lint_strides
from fusec.diagnostics import Diagnostic, Unsupported
from fusec.ir.graph import Fusion
from fusec.nvfuser.script import load_script, run_script
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.segment.segmented import SegmentedFusion

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusec.run.device.device_available", lambda: "none today")


def pointed(found: Diagnostic) -> str:
    """Return what the caret of a diagnostic points at."""
    assert found.span is not None
    return found.span.text[found.span.column - 1 :][: found.span.width]


def warnings(
    *lines: str, outputs: str = "y", inputs: str = "x: 'bf16[B, H]'"
) -> list[tuple[str, str]]:
    """Return the message and the place of each warning about some lines."""
    ops = "".join(f"  - {line}\n" for line in lines)
    head = f"fusion: f\ndims: {{B: 64, H: 512}}\ninputs: {{{inputs}}}\n"
    found = list(lint(read_text(f"{head}ops:\n{ops}outputs: [{outputs}]\n")))
    assert {d.severity for d in found} <= {"warning"}
    return [(d.message, pointed(d)) for d in found]


def test_an_input_that_is_not_used() -> None:
    inputs = "x: 'f32[B, H]', spare: 'f32[H]', eps: f32 = 1e-5"
    found = warnings("y = exp(x)", inputs=inputs.replace("f32 = 1e-5", "'f32 = 1e-5'"))
    assert found == [("input `spare` is not used", "spare"), ("input `eps` is not used", "eps")]


@pytest.mark.parametrize(
    ("inputs", "line", "outputs"),
    [
        ("x: 'f32[B]', kept: 'f32[B]'", "y = exp(x)", "{y: {alias: kept}}"),
        ("x: 'f32[B]', kept: 'f32[B]'", "y = exp(x)", "y, kept"),
        ("x: 'f32[B]', n: 'i64 = 4'", "y = broadcast_in_dim(x, [n, B], [1])", "y"),
        ("x: 'f32[B]', n: 'i64 = 4'", "y = mul(x, n)", "y"),
        ("x: 'f32[B]'", "y = full([size(x, 0)], 1.0, f32)", "y"),
    ],
)
def test_inputs_that_are_used_in_other_ways(inputs: str, line: str, outputs: str) -> None:
    assert warnings(line, inputs=inputs, outputs=outputs) == []


def test_results_that_nothing_uses() -> None:
    found = warnings(
        "a = add(cast(x, f32), 1.0)",
        "b = neg(a)",
        "y = exp(x)",
    )
    assert found == [("`b` is not used", "neg(a)")], "a is used by b"
    assert warnings("y = exp(zeros_like(x[:, :1]))") == [], "it gives the shape"
    text = "fusion: f\ndims: {N: 4}\ninputs: {p: 'f32[N]'}\nops:\n  - p_2 = p * 2\noutputs: [p]\n"
    (told,) = lint(read_text(text))
    assert told.help == "`p` under `outputs:` is the input: write `p_2`"


def test_one_of_several_results() -> None:
    line = "var, mean = var_mean(cast(x, f32), dims=[1])"
    assert warnings(line, outputs="var") == [("`mean` is not used", "mean")]
    assert warnings(line.replace("mean =", "_ ="), outputs="var") == []
    none = [("`var`, `mean` are not used", "var_mean(cast(x, f32), dims=[1])")]
    assert warnings(line, "y = exp(x)") == none


def test_what_a_composite_leaves_over_is_its_own_affair() -> None:
    lines = ("y = layer_norm(x, [H])", "z = softmax(x, dim=1)", "_ = exp(x)")
    found = warnings(*lines, outputs="y, z")
    assert found == [("a result of `exp` is not used", "exp(x)")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("y = sum(x, dims=[1])", "`sum` over 512 elements is rounded to bf16"),
        ("y = sum(x)", "`sum` over 32768 elements is rounded to bf16"),
        ("y = prod(x, dims=[0])", "`prod` over 64 elements is rounded to bf16"),
        ("y = var(cast(x, f16), dims=[0])", "`var` over 64 elements is rounded to f16"),
        ("y = sum(cast(x, f32), dims=[1])", None),
        ("y = sum(x, dims=[1], dtype=f32)", None),
        ("y = cast(sum(cast(x, f32), dims=[1]), bf16)", None),
        ("y = sum(cast(x, f32), dims=[1], dtype=bf16)", None),
        ("y = max(x, dims=[1])", None),
        ("y = mean(x, dims=[1])", None),
        ("y = argmax(x, dims=1)", None),
    ],
)
def test_a_reduction_in_half_precision(line: str, message: str | None) -> None:
    found = warnings(line)
    assert [m for m, _ in found] == ([] if message is None else [message])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("y = where(gt(x, 0.0), 1.0, 0.0)", "`where` of two float literals is a tensor of f64"),
        ("y = where(gt(x, 0.0), f32(1.0), f32(0.0))", None),
        ("y = where(gt(x, 0.0), 1, 0)", None),
        ("y = where(gt(x, 0.0), x, 0.0)", None),
    ],
)
def test_a_choice_between_literals(line: str, message: str | None) -> None:
    found = warnings(line)
    assert [m for m, _ in found] == ([] if message is None else [message])


def test_the_mend_of_a_choice_between_literals_is_told_and_works() -> None:
    (found,) = lint(read_text(TEXT % "where(gt(x, 0.0), 1.0, -inf)"))
    assert found.help is not None
    assert found.help.startswith("`where(..., f32(1.0), f32(-inf))` is f32")
    fusion = read_text(TEXT % "where(gt(x, 0.0), f32(1.0), f32(-inf))")
    assert str(fusion.outputs[0].value.dtype) == "f32"


def test_the_mend_of_a_rounded_sum_is_told_and_works() -> None:
    (found,) = lint(read_text(TEXT % "sum(x, dims=[1])"))
    assert found.help is not None
    assert found.help.startswith("`sum(cast(x, f32), ...)` keeps f32")
    assert list(lint(read_text(TEXT % "cast(sum(cast(x, f32), dims=[1]), f16)"))) == []
    (note,) = found.notes
    assert "and f16 keeps 11 bits; beyond 65504 it is infinite" in note


TEXT = """
fusion: f
inputs: {x: "f16[64, 512]"}
ops:
  - y = %s
outputs: [y]
"""

ODD = SMALL.replace("  s: f32 = 2.0", "  s: f32 = 2.0\n  spare: bf16[H]").replace(
    "  - y =", "  - lost = sum(x, dims=[1])\n  - y ="
)
TOLD = (
    "warning: input `spare` is not used\n",
    "\n   |   ^^^^^\n",
    "warning: `lost` is not used\n",
    "warning: `sum` over 16 elements is rounded to bf16\n",
)


def command(capsys: Capture, name: str, path: Path, *flags: str) -> Result:
    place = ("-o", str(path.parent / "out")) if name == "compile" else ()
    return fusec(capsys, name, path, *place, *flags)


@pytest.mark.parametrize("name", ["check", "compile", "run"])
def test_commands_warn_and_go_on(name: str, tmp_path: Path, capsys: Capture) -> None:
    done = command(capsys, name, small(tmp_path, ODD))
    assert done.code == 0
    for text in TOLD:
        assert done.err.count(text) == 1
    plain = command(capsys, name, small(tmp_path, SMALL, "plain.yaml"))
    assert plain.err == ""


KEYS = ["severity", "code", "message", "file", "line", "column", "width", "notes", "help"]


@pytest.mark.parametrize("name", ["check", "compile", "run"])
def test_diagnostics_are_data_for_tools(name: str, tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path, ODD)
    done = command(capsys, name, path, "--json")
    assert done.code == 0
    data = json.loads(done.out)
    assert [list(d) for d in data["diagnostics"]] == [KEYS] * 3
    first = data["diagnostics"][0]
    assert (first["severity"], first["message"]) == ("warning", "input `spare` is not used")
    assert (first["file"], first["line"], first["column"]) == (str(path), 8, 3)
    if name == "check":
        (found,) = data["fusions"]
        assert {"passes", "segment", "codegen"} <= found.pop("stages").keys()
        assert data["fusions"] == [
            {
                "name": "small", "operations": 7, "segments": ["pointwise"],
                "outputs": [{"name": "y", "type": "bf16[B, H]", "alias": None}],
                "covers": "dynamic: B; specialized: H = 16 (B up to 67108863)",
            }
        ]  # fmt: skip


@pytest.mark.parametrize("name", ["check", "compile", "run"])
def test_errors_are_told_in_the_same_form(name: str, tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path, SMALL.replace("exp(", "epx(").replace("w: f32[H]", "w: f23[H]"))
    done = command(capsys, name, path, "--json")
    assert done.code == 2
    told = json.loads(done.out)["diagnostics"]
    assert [list(d) for d in told] == [KEYS] * 2
    assert [(d["severity"], d["line"]) for d in told] == [("error", 6), ("error", 9)]
    assert told[1]["help"] == "did you mean `exp`?"
    assert [d["code"] for d in told] == ["E0207", "E0205"]
    missing = command(capsys, name, tmp_path / "nowhere.yaml", "--json")
    assert missing.code == 2
    (only,) = json.loads(missing.out)["diagnostics"]
    assert (only["file"], only["line"]) == (None, None)


def test_warnings_stay_where_an_error_follows(tmp_path: Path, capsys: Capture) -> None:
    pinned = ODD + "segments: {one: {values: [y], scheduler: matmul}}\n"
    done = fusec(capsys, "check", small(tmp_path, pinned), "--json")
    assert done.code == 3
    severities = [d["severity"] for d in json.loads(done.out)["diagnostics"]]
    assert severities == ["warning"] * 3 + ["unsupported"]


def test_wrong_options_are_told_in_the_same_form(tmp_path: Path, capsys: Capture) -> None:
    done = fusec(capsys, "check", small(tmp_path), "--json", "--target", "sm_1")
    assert done.code == 2
    (only,) = json.loads(done.out)["diagnostics"]
    assert only["message"] == "unknown target `sm_1`"


SCRIPT = """
import numpy as np
from fusec import DataType, FusionDefinition
with FusionDefinition() as fd:
    x = fd.define_tensor([4096, 4096], {first}dtype=DataType.BFloat16)
    w = fd.define_tensor([4096], {second}dtype=DataType.BFloat16)
    y = fd.ops.mul(fd.ops.cast(x, dtype=DataType.Float), fd.ops.cast(w, dtype=DataType.Float))
    y = fd.ops.sum(y, dims=[1])
    fd.add_output(fd.ops.cast(y, dtype=DataType.BFloat16))
"""
DENSE = "contiguity=True, "


def strides(tmp_path: Path, text: str) -> list[Diagnostic]:
    (fusion,) = load_script(small(tmp_path, text, "s.py"))
    return list(lint_strides(driver.Compilation(fusion, CompileOptions())))


def test_what_run_time_strides_cost_is_told(tmp_path: Path) -> None:
    """The default of define_tensor is nvFuser's: strides of which nothing is known."""
    (found,) = strides(tmp_path, SCRIPT.format(first="", second=""))
    assert found.message.startswith("the strides of `x`, `w` are only known at run time")
    assert pointed(found).startswith("fd.define_tensor([4096, 4096], ")
    cost, other = found.notes
    factor = float(cost.split(": ")[1].split()[0])
    assert factor >= 1.5
    assert cost.endswith(" times as long")
    assert other.endswith("s.py:6:9")
    assert found.help is not None
    assert "contiguity=True" in found.help


def test_no_more_is_told_than_costs_something(tmp_path: Path) -> None:
    assert strides(tmp_path, SCRIPT.format(first=DENSE, second=DENSE)) == []
    (found,) = strides(tmp_path, SCRIPT.format(first="", second=DENSE))
    assert found.message.startswith("the strides of `x` are")


def test_what_is_refused_with_dense_strides_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pin may do for run-time strides alone: that is nobody's concern."""

    def refusing(fusion: Fusion, options: CompileOptions) -> SegmentedFusion:
        if not any("." in s for i in fusion.inputs for e in i.strides for s in e.symbols):
            raise Unsupported("no scheduler supports the pinned segment")
        return lowering.segment(fusion, options)

    monkeypatch.setattr(driver.Compilation.segmented, "run", refusing)
    (found,) = strides(tmp_path, SCRIPT.format(first="", second=DENSE))
    assert found.message.startswith("the strides of `x` are")
    assert found.notes == ()


def test_small_tensors_say_nothing_of_time(tmp_path: Path) -> None:
    unknown = SCRIPT.replace("[4096, 4096]", "[-1, -1]").replace("[4096]", "[-1]")
    (found,) = strides(tmp_path, unknown.format(first="", second=DENSE))
    assert found.notes == ()
    inner = unknown.format(first="contiguity=[False, True], ", second=DENSE)
    assert strides(tmp_path, inner) == []


def test_tensors_that_lie_otherwise_draw_no_warning(tmp_path: Path) -> None:
    path = small(tmp_path, SCRIPT.format(first="", second=DENSE).replace("4096", "64"), "s.py")
    found: list[list[Diagnostic]] = []

    def on_fusion(fusion: Any, actuals: Any) -> Any:
        found.append(list(lint_strides(driver.Compilation(fusion, CompileOptions()))))
        return [np.zeros((64, 64), np.float32)]

    for array in ("np.zeros((64, 64))", "np.zeros((64, 128))[:, ::2]"):
        call = (
            "import ml_dtypes\nb = ml_dtypes.bfloat16\n"
            f"fd.execute([{array}.astype(b, copy=False), np.zeros(64).astype(b)])\n"
        ).replace(".astype(b, copy=False)", ".astype(b)" if "[" not in array else "")
        call = call.replace("np.zeros((64, 128))[:, ::2]", "np.zeros((64, 128)).astype(b)[:, ::2]")
        path.write_text(path.read_text().partition("import ml_dtypes")[0] + call)
        run_script(path, on_fusion)
    assert [len(each) for each in found] == [1, 0]


def test_a_script_is_warned_of_once(tmp_path: Path, capsys: Capture) -> None:
    text = SCRIPT.format(first=DENSE, second=DENSE).replace("4096", "64").replace(
        "    fd.add_output", "    lost = fd.ops.exp(y)\n    fd.add_output"
    ) + (
        "import ml_dtypes\nb = ml_dtypes.bfloat16\n"
        "for _ in range(3):\n"
        "    fd.execute([np.zeros((64, 64)).astype(b), np.zeros(64).astype(b)])\n"
    )
    done = fusec(capsys, "run", small(tmp_path, text, "s.py"), "--device", "reference")
    assert done.code == 0
    assert done.err.count("warning: `lost` is not used") == 1
    assert "    lost = fd.ops.exp(y)\n" in done.err


def test_results_of_calls_in_other_calls_are_used(tmp_path: Path) -> None:
    nested = SCRIPT.format(first=DENSE, second=DENSE)
    (fusion,) = load_script(small(tmp_path, nested, "s.py"))
    assert list(lint(fusion)) == []


def test_phases_are_warned_of_as_a_whole(tmp_path: Path, capsys: Capture) -> None:
    joint = (
        "fusion: joint\ninputs: {x: 'f32[64, 512]', dy: 'f32[64, 512]', spare: f32}\nops:\n"
        "  - e = exp(x)\n  - y = sum(e, dims=[1])\n  - dx = mul(dy, e)\noutputs: [y, dx]\n"
        "phases: {forward: [y], backward: {inputs: [dy], outputs: [dx]}}\n"
    )
    done = fusec(capsys, "check", small(tmp_path, joint))
    assert done.code == 0
    assert done.err.count("warning: ") == 1
    assert "warning: input `spare` is not used" in done.err
