"""Outputs that reshape one tensor are views of the first of them."""

from __future__ import annotations

import pytest

from fusec.driver import Compilation
from fusec.options import CompileOptions
from fusec.parse import read_text
from fusec.passes import run_pipeline

HEAD = """fusion: views
inputs:
  x: f32[4, 6, 8]
  w: f32[8, 8]
ops:
  - m = exp(x)
"""
SAME = """  - a = reshape(m, [24, 8])
  - b = reshape(m, [24, 8])
  - c = reshape(m, [8, 24])
  - y = a @ w
  - z = b @ w
outputs: [a, b, c, y, z]
"""


def test_the_first_one_is_stored_and_the_others_are_views_of_it() -> None:
    after = run_pipeline(read_text(HEAD + SAME), without=["approximate"])
    assert [repr(n) for n in after.nodes] == [
        "m = exp(x)",
        "a = reshape(m)",
        "b = reshape(a)",
        "c = reshape(a)",
        "y = matmul(a, w)",
        "z = set(y)",
    ]
    found = Compilation(read_text(HEAD + SAME), CompileOptions(targets=("sm_90a",))).segmented
    views = [s for s in found.segments if s.scheduler == "no_op"]
    assert [n.output.name for s in views for n in s.nodes] == ["b", "c"]


@pytest.mark.parametrize(
    "tail",
    [
        "  - a = reshape(m, [24, 8])\n  - b = permute(m, [2, 1, 0])\noutputs: [a, b]\n",
        "  - a = reshape(m, [24, 8])\n  - b = reshape(m, [8, 24])\noutputs: [b, m]\n",
        "  - a = reshape(x, [24, 8])\n  - b = reshape(x, [24, 8])\noutputs: [a, b]\n",
        "  - a = set(m)\n  - b = set(m)\noutputs: [a, b]\n",
    ],
)
def test_nothing_else_becomes_a_view(tail: str) -> None:
    text = HEAD + tail
    kept = run_pipeline(read_text(text), without=["approximate"])
    other = run_pipeline(read_text(text), without=["approximate", "view_outputs"])
    assert [repr(n) for n in kept.nodes] == [repr(n) for n in other.nodes]


def test_what_is_written_into_an_input_is_no_place_for_views() -> None:
    tail = "  - a = reshape(m, [4, 6, 8])\n  - b = reshape(m, [24, 8])\n"
    text = HEAD + tail + "outputs:\n  - a: {alias: x}\n  - b\n"
    after = run_pipeline(read_text(text), without=["approximate"])
    assert "b = reshape(a)" not in [repr(n) for n in after.nodes]
