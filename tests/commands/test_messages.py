"""Wrong files that users write: the error stands at the mistake, and its help mends it."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import click
import pytest

from fusec import DataType, FusecError, FusionDefinition
from fusec.cli import run_main
from fusec.commands.lint import lint
from fusec.nvfuser.script import load_script
from fusec.parse import read_text

HEAD = """fusion: f
dims: {B: 64, H: 96}
inputs:
  x: f32[B, H]
  w: f32[H]
  z: f32[H, B]
"""
MEAN = "  - m = mean(x, dims=[1])\n  - y = sub(x, m)"
CASES = {
    "an axis that is off by one": ("  - y = sum(x, dims=[2])", "dims=", "[2]", None),
    "an axis of one dim": ("  - y = cumsum(x, dim=2)", "dim=", "2", None),
    "a forgotten keepdim": (MEAN, "y = ", "sub(x, m)", "`mean(..., keepdim=True)` keeps dim 1"),
    "swapped dims": (
        "  - y = add(x, z)", "y = ", "add(x, z)", "write `y = add(x, permute(z, [1, 0]))`",
    ),
    "rows of weights": (
        "  - v = permute(z, [1, 0])\n  - y = matmul(x, v)", "y = ", "matmul(x, v)",
        "write `y = x @ transpose(v, -2, -1)`",
    ),
    "an open call": ("  - y = mul(x, add(w, 1.0)", "1.0)", "", "close the call of `mul` with `)`"),
    "the first line without its dash": (
        "  m = neg(x)\n  - y = neg(m)", "  ", "m = neg(x)", "write `- m = neg(x)`",
    ),
    "a later line without its dash": (
        "  - m = neg(x)\n  y = neg(m)", "\n  ", "y = neg(m)", "write `- y = neg(m)`",
    ),
    "a quoted number": ('  - y = mul(x, "2.0")', "x, ", '"', "write `2.0`"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_op_lines(name: str) -> None:
    """`before` stands right before what is marked."""
    lines, before, marked, help = CASES[name]
    text = f"{HEAD}ops:\n{lines}\noutputs: [y]\n"
    with pytest.raises(FusecError) as caught:
        read_text(text)
    span = caught.value.diagnostic.span
    assert span is not None
    begins = text.index(before + marked, text.index("ops:\n") + 5) + len(before)
    line = text.count("\n", 0, begins) + 1
    column = begins - text.rfind("\n", 0, begins)
    assert (span.line, span.column) == (line, column)
    assert span.width == max(len(marked), 1)
    if help is not None:
        assert help in (caught.value.diagnostic.help or "")


DECLARED = {
    "a multiple": ("{B: {default: 510, multiple_of: 8}}", "f32[B]", "504 and 512 are"),
    "a negative size": ("{B: -64}", "f32[B]", "did you mean 64?"),
    "an undeclared size": ("{B: 64}", "f32[B, K]", "declare the size under `dims:`, as in `K: 64`"),
    "brackets": ("{B: 64}", "bf16(B)", "write the shape in brackets: `bf16[B]`"),
    "a number for a type": ("{B: 64}", "1e-5", "is written `x: f32 = 1e-5`"),
}


@pytest.mark.parametrize("name", DECLARED)
def test_declarations(name: str) -> None:
    dims, type_, help = DECLARED[name]
    text = f"fusion: f\ndims: {dims}\ninputs:\n  x: {type_}\nops:\n  - y = neg(x)\noutputs: [y]\n"
    with pytest.raises(FusecError) as caught:
        read_text(text)
    assert help in (caught.value.diagnostic.help or "")


def test_no_advice_where_nothing_mends_it() -> None:
    """Results that would not broadcast with their dims kept either, and shapes of other sizes."""
    for lines in (
        "  - m = sum(z, dims=[1])\n  - y = add(x, reshape(m, [1, 96, 1]))",
        "  - m = sum(x, dims=[0, 1])\n  - y = add(z, slice(x, start=[0, 0], end=[64, 95]))",
    ):
        with pytest.raises(FusecError) as caught:
            read_text(f"{HEAD}ops:\n{lines}\noutputs: [y]\n")
        assert "keepdim" not in caught.value.render()
        assert "permute" not in caught.value.render()


@pytest.mark.parametrize(
    ("given", "meant"),
    [("sm90", "sm_90a"), ("90a", "sm_90a"), ("H100", "sm_90a"), ("h200", "sm_90a"),
     ("compute_80", "sm_80"), ("A100", "sm_80"), ("NVIDIA B200", "sm_100"), ("rtx5090", "sm_120")],
)  # fmt: skip
def test_targets_are_meant(given: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["compile", "examples/softmax.yaml", "--target", given]) == 2
    assert f"help: did you mean `{meant}`?" in capsys.readouterr().err


def test_usage_errors_have_the_form_of_all_others(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["compile", "--foo"], "error: no such option '--foo'"),
        (["compile"], "error: missing argument 'FILE...'"),
        (["run", "x.yaml", "--seed", "a"], "error: invalid value for '--seed'"),
    ):
        assert run_main(arguments) == 2
        said = capsys.readouterr().err
        assert said.startswith(message)
        assert f"\n  = help: `fusec {arguments[0]} --help`" in said


@pytest.mark.parametrize(
    ("arguments", "help"),
    [
        (["check", "T=128"], "sizes are set with `--set T=128`"),
        (["check", "examples/Softmax.yaml"], "did you mean `examples/softmax.yaml`?"),
        (["check", "--arch", "sm_90", "f.yaml"], "did you mean `--target`?"),
        (["explain", "E201"], "did you mean `E0201`?"),
        (["version"], "did you mean `fusec --version`?"),
    ],
)
def test_other_tools_words_are_known(
    arguments: list[str], help: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(arguments) == 2
    assert help in capsys.readouterr().err


def test_errors_have_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And nowhere else, nor where NO_COLOR is set; without colours the text is the same."""
    file = tmp_path / "f.yaml"
    file.write_text(f"{HEAD}ops:\n{MEAN}\noutputs: [y]\n", encoding="utf-8")

    def said(*, on_terminal: bool) -> str:
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda: on_terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        assert run_main(["check", str(file)]) == 2
        return stream.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    plain, coloured = said(on_terminal=False), said(on_terminal=True)
    assert "\x1b[" not in plain
    assert coloured.startswith("\x1b[31m\x1b[1merror[E0501]:\x1b[0m operands of `sub`")
    assert click.unstyle(coloured) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert said(on_terminal=True) == plain


FILE = """fusion: f
dims: {B: 8, H: 16}
inputs:
  x: f32[B, H]
  w: f32[H]
ops:
  - y = x * w
outputs: [y]
"""
OPS = {
    "y = x ^ 2": "a power is `a ** b`",
    "y = x > 0 & w > 0": "write `y = (x > 0) & (w > 0)`",
    "x += w": "write `x_2 = x + w`, and `x_2` for `x` in the lines below",
    "y == x": "the result is assigned with one `=`",
    "y = x \u00d7 w": "write `*`",
    "y = x \u2013 w": "write `-`",
    "y = x \u2265 w": "write `>=`",
    "y = x[0: 3]": "write `y = x[0:3]`",
    "y, z = chunk(x, 2, 1)": "declare `H: {default: 16, multiple_of: 2}` under `dims:`",
    "y = reshape(x, [B, 3, 4])": "B * H elements, not B * 12",
    "y = permute(x, [0, 0])": "takes each of 0 to 1 once",
    "y = cat([x, w])": "write `y = cat([x, unsqueeze(w, 0)])`",
    "y = relu('x')": "not quoted: write `y = relu(x)`",
    "y = x.summ(1)": "did you mean `x.sum`?",
    "y = x.float": "write `x.float()`, with its arguments",
    "y = (x + w).sum": "write `.sum()`, with its arguments",
    "y = nn.ReLU()(x)": "write `y = relu(x)`",
    "y = relu(x)(w)": "functions are called, not modules",
    "y = nn.Linear(16, 4)(x)": "write `y = linear(x, w_2, b)`, and declare `w_2: f32[4, H]`",
    "y = nn.LayerNorm(16)(x)": "write `y = layer_norm(x, [H], w, b)`, and declare `b: f32[H]`",
    "y = relu(x) // activation": "a comment begins with `#`",
    "v, y = x.max(1)": "write `v = max(x, 1)` and `y = argmax(x, 1)`",
    "y = x[None for k in range(2)]": "expected `]` or `,`",
    "y = stack([x * k for k in range(99)], 0)": "write a Python script with the loop",
    "y = stack([x * k for k in range(B)], 0)": "op lines have no comprehensions",
    "y = 2x": "a product is `2 * x`",
    "y = x * 1.0f": "write `1.0`",
    "y = x * 2f": "write `2.0`",
    "y = x * 10L": "write `10`",
    "y = y + x": "if `y` is an input, declare it under `inputs:`",
    "a = x + y\n  - y = exp(a)": "one of these lines must use an input",
    "y = x[:, :B] * zeros([B])": "where H is never less, write `H: B + P` with `P: 8` before it",
    "y = torch.relux(x)": "did you mean `relu`?",
    "y = torch.linalg.norm(x)": "write `y = norm(x, 2.0)`",
    "y = where(x > 0, x, float('-info'))": "not quoted",
    "y = x.shape": "remove the line, and write `[B, H]` for `y`",
    "y = x.repeat(2)": "one for each dim, as in [1, 2]",
    "y = where(x, x, w)": "compare it",
    "y = layer_norm(x, [B])": "the last extents of the tensor: write `y = layer_norm(x, [H])`",
    "y = sum(x, 1, keepdim=1)": "write `true` or `false`",
}
FILES = {
    "a missing comma": ("8, H", "8 H", "write a `,` before `H`"),
    "a quoted size": ("B: 8", "B: '8'", "(an integer), without quotes"),
    "a default in quotes": ("w: f32[H]", "w: f32 = 'low'", "without quotes, as in `w: f32 = 1.0`"),
    "a default of a tensor": ("f32[H]", "f32[H] = 1.0", "`w = full([H], ...)`"),
    "an input without its colon": ("w: f32[H]", "w f32[H]", "write `w: f32[H]`"),
    "an unknown anchor": ("f32[H]", "*u", "none; write `&u` first"),
    "a number in quotes": ("[y]", "[y]\nschedules: {y: {threads_x: '64'}}", "64 without quotes"),
    "a size that is too large": ("B: 8", "B: 9000000000000000000", "reduce sizes under `dims:`"),
    "a dim that is not sharded": (
        "x: f32[B, H]", "x: {type: 'f32[B, H]', shard: {2: mesh}}", "dims are numbered 0 to 1",
    ),
    "inputs that are not indented": (
        "  x: f32[B, H]\n  w: f32[H]", "x: f32[B, H]\nw: f32[H]",
        "indent them under `inputs:`",
    ),
    "a dim that is not indented": ("dims: {B: 8, H: 16}", "dims:\nB: 8", "indent it under `dims:`"),
    "dims as a list": ("{B: 8, H: 16}", "[B, H]", "write `dims: {B: 4096, H: 4096}`"),
    "a range with dots": (
        "x: f32[B, H]", "x: {type: 'f32[B, H]', range: 0..9.5}", "write `range: [0, 9.5]`",
    ),
    "a range of Python": (
        "x: f32[B, H]", "x: {type: 'f32[B, H]', range: '(-1, 1)'}", "write `range: [-1, 1]`",
    ),
    "a stride too few": (
        "x: f32[B, H]", "x: {type: 'f32[B, H]', strides: [H]}", "write `strides: [H, 1]`",
    ),
    "a flag too few": (
        "w: f32[H]", "w: {type: 'f32[H]', contiguity: [true, true]}",
        "write `contiguity: [true]`",
    ),
    "an order of strides": ("[y]", "[{y: {stride_order: [0]}}]", "write `stride_order: [1, 0]`"),
    "a colon in a text": ("dims:", "doc: LN: the norm\ndims:", 'write `doc: "LN: the norm"`'),
    "an input in a segment": ("[y]", "[y]\nsegments: {a: [x, y]}", "write `a: [y]`"),
    "an operation in schedules": (
        "[y]", "[y]\nschedules: {softmx: {threads_x: 64}}", "name a computed value, as `y`",
    ),
    "a size with a suffix": ("H: 16", "H: 4k", "write `4096`"),
    "a size with another suffix": ("H: 16", "H: 1.5K", "write `1536`"),
}  # fmt: skip


@pytest.mark.parametrize("line", OPS)
def test_help_of_op_lines(line: str) -> None:
    with pytest.raises(FusecError) as caught:
        read_text(FILE.replace("y = x * w", line))
    assert OPS[line] in caught.value.render()


def test_a_float_of_c_is_no_product() -> None:
    with pytest.raises(FusecError) as caught:
        read_text(FILE.replace("w: f32[H]", "w: f32 = 1e-5f"))
    assert caught.value.diagnostic.help == "write `1e-5`"


@pytest.mark.parametrize("name", FILES)
def test_help_of_files(name: str) -> None:
    old, new, help = FILES[name]
    mesh = "mesh: [2]\n" if "mesh" in new else ""
    with pytest.raises(FusecError) as caught:
        read_text(mesh + FILE.replace(old, new, 1))
    assert help in caught.value.render()


@pytest.mark.parametrize(
    ("old", "new", "expression"),
    [("x: f32[B, H]\n  w: f32[H]", "- x: f32[B, H]", "x * w"),
     ("x: f32[B, H]", "H: f32[B, H]", "H + 1.0")],
)  # fmt: skip
def test_one_mistake_in_inputs_is_one_error(old: str, new: str, expression: str) -> None:
    """Names that a broken section or a name defined twice may mean are not reported again."""
    with pytest.raises(FusecError) as caught:
        read_text(FILE.replace(old, new).replace("x * w", expression))
    assert caught.value.render().count("error") == 1


def test_help_of_command_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fusion_a.yaml"
    file.write_text(FILE, encoding="utf-8")
    for arguments, help in (
        ([str(file), "--set", "B=1e3"], "write --set B=1000"),
        ([str(file), "--set", "eps=2.5"], "as in `eps: f32 = 2.5`"),
        ([str(file), "--set", "B=many"], "e.g. --set B=4096; other scalars are set in the file"),
        ([str(file), "--set", "B", "1024"], "write `--set B=1024`"),
        ([str(file), "--set", "X=1024"], "dims: B, H"),
        ([str(file), "--set", "x=1024"], "dims and scalars: B, H"),
        ([str(file), "--redefine", "befor"], "write `--redefine before`"),
        ([str(tmp_path)], f"name its files: `{tmp_path / '*.yaml'}`"),
        ([str(tmp_path / "fusion_b.yaml")], f"did you mean `{file}`?"),
    ):
        assert run_main(["check", *arguments]) == 2
        assert help in capsys.readouterr().err
    for arguments, help in (
        (["run", str(file), "--device", "cpu"], "write `--device reference`: it evaluates on"),
        (["run", str(file), "--device=gpu"], "write `--device cuda`"),
        (["run", str(file), "--tolerance", "1e-3"], "did you mean `--rtol` (relative) or `--atol`"),
        (["explain", "E999"], "codes are E0101 to "),
    ):
        assert run_main(arguments) == 2
        assert help in capsys.readouterr().err
    for arguments, suggested in (
        (["check", str(tmp_path / "other.yaml")], False),
        (["dump", str(file), "--disable-pass", "fuse"], False),
        (["dump", str(file), "--presegg"], True),
    ):
        assert run_main(arguments) == 2
        assert ("did you mean" in capsys.readouterr().err.lower()) is suggested


SCRIPT = """import math
import numpy as np
import torch
from fusec import DataType, FusionDefinition

with FusionDefinition("f") as fd:
    K = fd.define_dim("K", 4)
    x = fd.define_tensor(shape=[64, 128], contiguity=True, dtype=DataType.Float)
    N = fd.define_dim("N", 32)
    b = fd.define_tensor(shape=[64], contiguity=True, dtype=DataType.Float)
    n = fd.define_tensor(shape=[N], contiguity=True, dtype=DataType.Float)
    h = fd.define_tensor(shape=[64, 128], contiguity=True, dtype=DataType.BFloat16)
    LINE
    fd.add_output(y)
"""
IN_SCRIPTS = {
    "y = math.exp(x)": "write `y = fd.ops.exp(x)`",
    "y = np.tanh(x)": "write `y = fd.ops.tanh(x)`",
    "y = torch.relu(x)": "write `y = fd.ops.relu(x)`",
    "y = sum(x[:, i] for i in range(K))": "give `K` a number of its own, as in `K = 4`",
    "x[:, 0] = 0.0": (
        "write `x_2 = fd.ops.update_slice(x, fd.ops.full([64, 1], 0.0, dtype=x.dtype), [0, 0])`"
    ),
    "x[2, 1:3] = x[0, 1:3]": "`x_2 = fd.ops.update_slice(x, source, [2, 1])` with a source of",
    "y = fd.ops.cast(x, DataType.Float16)": "did you mean `DataType.Half`?",
    "y = fd.ops.cast(x, DataType.Flaot)": "did you mean `DataType.Float`?",
    "B = fd.define_dim('B')": 'write `B = fd.define_dim("B", 1024)`',
    "z = fd.define_tensor(shape=['B', 128])": 'write `B = fd.define_dim("B", 1024)` before it',
    "fd.add_output([x, x])": "add each of them",
    "fd.add_output(x.exp(), x.exp())": "`fd.add_output(exp_1)` and `fd.add_output(exp_2)`",
    "fd.add_output(x, x, x)": "add each of them",
    "y = fd.ops.where(x, x, 0.0)": "write `fd.ops.where(x != 0, x, 0.0)`",
    "y = x + b.exp()": "`exp_1` lacks one",
    "y = fd.group_norm(x, 3)": "write `y = fd.ops.group_norm(x, 3)`",
}
FOLLOWED = {
    "y = x + b": "fd.ops.add(x, fd.ops.unsqueeze(b, -1))",
    "y = x * b / 2": "fd.ops.mul(x, fd.ops.unsqueeze(b, -1))",
    "y = fd.ops.where(x, x, 0.0)": "fd.ops.where(x != 0, x, 0.0)",
    "y = fd.ops.matmul(h, h)": "h @ fd.ops.transpose(h, -2, -1)",
    "y = b.relu() if b > 0 else -b": "fd.ops.where(b > 0, b.relu(), -b)",
    "y = fd.ops.where(b > 0 and b < 1, b, 0.0)": "fd.ops.logical_and(b > 0, b < 1)",
    "y = fd.ops.where(not b, b, 0.0)": "fd.ops.logical_not(b)",
}
"""Wrong lines of scripts, and what stands in the place of the part that is underlined."""


@pytest.mark.parametrize("line", FOLLOWED)
def test_calls_to_write_in_scripts_are_accepted(line: str, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.replace("LINE", line), encoding="utf-8")
    with pytest.raises(FusecError) as caught:
        load_script(file)
    told = caught.value.diagnostic
    assert f"write `{FOLLOWED[line]}`" in (told.help or ""), caught.value.render()
    assert told.span is not None
    whole = line.removeprefix("y = ") if " if " in line else told.span.shown
    whole = {"b > 0": "b > 0 and b < 1", "not b": "not b"}.get(whole, whole)
    right = line.replace(whole, FOLLOWED[line], 1)
    file.write_text(SCRIPT.replace("LINE", right), encoding="utf-8")
    load_script(file)


def test_a_choice_by_statements_in_a_script(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    lines = "if x:\n        y = fd.ops.relu(x)\n    else:\n        y = -x"
    file.write_text(SCRIPT.replace("LINE", lines), encoding="utf-8")
    with pytest.raises(FusecError) as caught:
        load_script(file)
    help = caught.value.diagnostic.help
    assert help == "write `y = fd.ops.where(x != 0, fd.ops.relu(x), -x)`"
    right = "y = fd.ops.where(x != 0, fd.ops.relu(x), -x)"
    file.write_text(SCRIPT.replace("LINE", right), encoding="utf-8")
    load_script(file)
    statement = "while b > 0:\n        y = x"
    file.write_text(SCRIPT.replace("LINE", statement), encoding="utf-8")
    with pytest.raises(FusecError, match="has no truth value"):
        load_script(file)


def test_a_failed_call_leaves_nothing_in_a_definition() -> None:
    with FusionDefinition("f") as fd:
        x = fd.define_tensor(shape=[8, 16], contiguity=True, dtype=DataType.Float)
        b = fd.define_tensor(shape=[8], contiguity=True, dtype=DataType.Float)
        with pytest.raises(FusecError, match=r"unsqueeze\(b, -1\)"):
            fd.ops.add(x, b)
        fd.add_output(fd.ops.relu(x))
    assert [n.op.name for n in fd.graph().nodes] == ["relu"]


def test_sizes_to_declare_in_scripts(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.replace("LINE", "y = fd.ops.reshape(n, [3, -1])"), encoding="utf-8")
    with pytest.raises(FusecError) as caught:
        load_script(file)
    line = 'N = fd.define_dim("N", 33, multiple_of=3)'
    assert caught.value.diagnostic.help == f"write `{line}`"
    text = file.read_text().replace('N = fd.define_dim("N", 32)', line)
    file.write_text(text, encoding="utf-8")
    load_script(file)


@pytest.mark.parametrize("line", IN_SCRIPTS)
def test_help_of_scripts(line: str, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.replace("LINE", line), encoding="utf-8")
    with pytest.raises(FusecError) as caught:
        load_script(file)
    told = caught.value.diagnostic
    assert IN_SCRIPTS[line] in (told.help or "").replace("`write", "write"), caught.value.render()
    assert told.span is not None
    assert told.span.line == 13


def test_a_script_without_outputs(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.replace("LINE\n    fd.add_output(y)", "y = fd.ops.relu(x)"))
    with pytest.raises(FusecError, match="has no output") as caught:
        load_script(file)
    assert "`fd.add_output(y)`" in (caught.value.diagnostic.help or "")


def test_pytorchs_orders_are_taken_in_scripts() -> None:
    with FusionDefinition("f") as fd:
        x = fd.define_tensor(shape=[8, 16], contiguity=True, dtype=DataType.Float)
        i = fd.define_tensor(shape=[8, 4], contiguity=True, dtype=DataType.Int)
        picked = fd.ops.gather(x, 1, i)
        fd.add_output(fd.ops.permute(picked, 1, 0))
    assert str(fd.graph().outputs[0].value.type) == "f32[4, 8]"


def test_commands_of_other_tools(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, help in (
        (["build", "f.yaml"], "did you mean `fusec compile`?"),
        (["chek", "f.yaml"], "did you mean `fusec check`?"),
        (["frobnicate"], "commands: bench"),
        (["run", "f.yaml", "--print"], "it takes a value: `--print 4`"),
        (["diff", "f.yaml"], "it is called `fusec diff BEFORE AFTER`"),
    ):
        assert run_main(arguments) == 2
        assert help in capsys.readouterr().err
    assert run_main(["ops", "LSTM"]) == 3
    assert "recurrent layers have no kernels" in capsys.readouterr().err


def test_warnings_of_outputs() -> None:
    for old, new, said in (
        ("[y]", "[y, y]", "output `y` is listed twice: `y_out` is a copy of it"),
        ("[y]", "[{y: {stream: {0: 16}}}]", "dim 0 of `y` has 8 elements, fewer than 16 slices"),
    ):
        text = FILE.replace(old, new).replace("f32[B, H]", "f32[8, H]").replace("{B: 8, ", "{")
        assert [told.message for told in lint(read_text(text))] == [said]
