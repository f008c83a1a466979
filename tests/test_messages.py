"""Wrong files that users write: the error stands at the mistake, and its help mends it."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import click
import pytest

from fusec import FusecError
from fusec.cli import run_main
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
    "swapped dims": ("  - y = add(x, z)", "y = ", "add(x, z)", "`permute(z, [1, 0])`"),
    "rows of weights": (
        "  - v = permute(z, [1, 0])\n  - y = matmul(x, v)", "y = ", "matmul(x, v)", "`linear`",
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
    "brackets": ("{B: 64}", "bf16(B)", "write the shape in brackets: `bf16[B, H]`"),
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
