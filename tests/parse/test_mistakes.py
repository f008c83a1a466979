"""Mistakes that come from other tools or slips of the finger: the mend is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import EXAMPLES, fusec

from fusec.diagnostics import FusecError
from fusec.parse import read_text
from fusec.run.inputs import choose_sizes

MATRIX = "x: f32[B, H]"

MISTAKES = {
    "a dtype begun like one": ("x: bfloat[H]", "y = exp(x)", 6, "did you mean `bf16`?"),
    "no colon": ("x bf16[B, H]", "y = exp(x)", 3, "write `x: bf16[B, H]`"),
    "a size for a dim": (MATRIX, "y = sum(x, dims=[H])", 9, "H is dim 1"),
    "a name mistyped": (MATRIX, "y = sum(x, dimz=1)", 16, "did you mean `dims`?"),
    "a value for a size": (MATRIX, "y = x", 9, "a copy is a call, too: write `y = set(x)`"),
    "an operator that is a word": (MATRIX, "y = x and other", 11, "`y = logical_and(x, other)`"),
    "a size of nothing": (MATRIX, "y = E // 2", 9, "undefined name `E`"),
    "two names of a size": (MATRIX, "y, z = B // 2", 12, "one size, and 2 names"),
    "halves of what may be odd": (
        MATRIX, "y = add(slice(x, [0, 0], [B, H // 2]), slice(x, [0, H // 2], [B, H]))", 9,
        "declare `H: {default: 512, multiple_of: 2}` under `dims:`",
    ),
    "counted from the end": (
        MATRIX, "y = slice(x, [0, 0 - H // 2], [B, H])", 9, "that is H - (H // 2)"
    ),
    "a bool in YAML's way": (MATRIX, "y = sum(x, [1], keepdim=yes)", 29, "`true` or `false`"),
    "another library": (MATRIX, "y = erfcx(x)", 9, "write `y = exp(x * x) * erfc(x)"),
    "digits in groups": ("x: f32[1_000]", "y = exp(x)", 10, "write `1000`"),
    "a wide comma": (MATRIX, "y = add(x\uff0c x)", 14, "a fullwidth comma: write `,`"),
    "one result": (MATRIX, "y, z = softmax(x, 1)", 12, "`softmax` has 1 result, got 2 names"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_the_mend_is_told(name: str) -> None:
    declared, line, column, told = MISTAKES[name]
    text = (
        f"fusion: f\ndims: {{B: 64, H: 512}}\ninputs:\n  {declared}\n  other: f32\n"
        f"ops:\n  - {line}\noutputs: [y]\n"
    )
    with pytest.raises(FusecError) as caught:
        read_text(text)
    span = caught.value.diagnostic.span
    assert span is not None
    assert span.column == column
    assert told in caught.value.render()


def test_sizes_of_a_run_that_leave_a_remainder() -> None:
    fusion = read_text(
        "fusion: f\ndims: {B: 4, H: 32}\ninputs: {x: 'f32[B, H]'}\n"
        "ops:\n  - y = x.view(B, 8, -1)\noutputs: [y]\n"
    )
    assert choose_sizes(fusion, {"H": 40})["H"] == 40
    with pytest.raises(FusecError, match="120 elements, not 96, at these sizes"):
        choose_sizes(fusion, {"H": 30})


def test_a_style_without_effect_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(EXAMPLES / "softmax.yaml")
    lost = fusec(capsys, "dump", file, "--style", "dot", "--cuda-kernel")
    lost.says(2, "--style dot has no effect on --cuda-kernel")
    both = fusec(capsys, "dump", file, "--style", "dot", "--segmented-fusion", "--cuda-kernel")
    assert both.code == 0
    assert "digraph" in both.out
