"""What passes make is known by the value that it was made for."""

from __future__ import annotations

import pytest

from fusec.diagnostics import FusecError
from fusec.driver import Compilation
from fusec.ir.graph import Fusion
from fusec.options import CompileOptions
from fusec.parse import read_text
from tools.draw import draw_runs
from tools.fuzzing import themes_of

ATTENTION = """\
fusion: attention
inputs:
  q: f16[1, 12, 8, 64]
  k: f16[1, 12, 8, 64]
  v: f16[1, 12, 8, 64]
ops:
  - s = (q @ permute(k, [0, 1, 3, 2])).float() * 0.125
  - p = softmax(s, -1).half()
  - o = p @ v
  - y = slice(o, [0, 0, 0, 0], [1, 12, 1, 64])
outputs: [y]
"""
TANH = """\
fusion: moved
inputs:
  x: f16[7, 15]
ops:
  - t = tanh(x)
  - y = {moved}
outputs: [y]
"""


def unknown_forms(fusion: Fusion) -> list[str]:
    """Return the forms of a fusion's operations for which no operation of it is known."""
    program = Compilation(fusion, CompileOptions())
    own = {n.op for n in fusion.nodes}
    known = {*program.host.approximated, *program.host.inside}
    stand_for = {n.op.approx for n in fusion.nodes if n.output.name in known}
    around = bool(program.host.inside)
    return [
        n.output.name
        for n in program.fusion.nodes
        if n.op.is_form and n.op not in own and n.op not in stand_for and not around
    ]


@pytest.mark.parametrize(
    "moved", ["expand(t, [7, 15])", "t[:, 3:9]", "reshape(t, [105])", "t.T", "unsqueeze(t, 0)"]
)
def test_forms_are_known_behind_movement(moved: str) -> None:
    program = Compilation(read_text(TANH.format(moved=moved)), CompileOptions())
    assert any(n.op.is_form for n in program.fusion.nodes)
    assert program.host.approximated == ("t",)


def test_slices_that_are_taken_first_keep_what_is_rounded_early() -> None:
    """Of one row of queries: all that is computed has other names, and other shapes."""
    program = Compilation(read_text(ATTENTION), CompileOptions())
    rounded = [n.output.name for n in program.original.nodes if n.op.converts]
    assert [*program.host.rounded_early] == rounded[-1:]
    assert program.host.approximated
    sums = [n.output.name for n in program.original.nodes if n.op.name in ("sum", "matmul")]
    assert {*sums} <= {*program.host.orders}


@pytest.mark.parametrize(
    ("theme", "drawn"),
    [
        ("general", 8),
        ("contractions", 2),
        pytest.param("contractions", 60, marks=pytest.mark.nightly),
    ],
)
def test_every_form_is_known(theme: str, drawn: int) -> None:
    themes = themes_of([theme])
    for number in range(drawn):
        fusion = draw_runs(5, number, themes)[0].fusion
        try:
            assert not unknown_forms(fusion), number
        except FusecError:
            continue
