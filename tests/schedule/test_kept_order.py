"""Reductions over axes that do not run along memory: kept axes in the order in which they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from families import plan_of, run_on_host, text_of

from fusec.ir.graph import Fusion
from fusec.parse import read_text


def turned(shape: tuple[int, ...], strides: tuple[int, ...], dim: int) -> Fusion:
    kind = f"{{type: 'f32{list(shape)}', strides: {list(strides)}}}"
    ops = f"  - y = sum(x, dims=[{dim}])\n"
    return read_text(f"fusion: turned\ninputs:\n  x: {kind}\nops:\n{ops}outputs: [y]\n")


@pytest.mark.parametrize(
    ("shape", "strides", "dim", "width", "along"),
    [
        ((5, 7, 4, 33), (8, 1, 48, 192), 3, 1, 7),
        ((5, 8, 4, 33), (8, 1, 40, 160), 3, 4, 8),
        ((3, 5, 7, 3, 19), (1995, 399, 3, 1, 21), 0, 1, 3),
        ((33, 4, 5, 6), (120, 5, 1, 20), 0, 4, 5),
        ((33, 4, 5, 6), (20, 5, 1, 0), 0, 4, 5),
        ((33, 4, 5, 6), (120, 30, 6, 1), 0, 4, 6),
    ],
    ids=["padded", "whole", "far apart", "last first", "repeated", "as they are"],
)
def test_threads_read_side_by_side_however_axes_lie(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dim: int,
    width: int,
    along: int,
    tmp_path: Path,
) -> None:
    """The sums, which are few, are stored wherever they belong."""
    fusion = turned(shape, strides, dim)
    plan: Any = plan_of("reduction", fusion)
    assert not plan.parameters.inner
    assert plan.parameters.vector_width == width
    assert plan.problem.rows.kept[-1].extent.value == along
    loads = "load_readonly<kVec>(x +" if width > 1 else "x["
    assert loads in text_of(plan)
    run_on_host("reduction", fusion, tmp_path)


def test_what_is_written_more_than_read_decides() -> None:
    """Rows that stay on chip are stored as a whole: the larger tensors run along the threads."""
    text = """
fusion: centred
inputs:
  x: {type: 'f16[40, 24, 16]', strides: [384, 1, 24]}
ops:
  - s = cast(x, f32)
  - y = sub(s, mean(s, dims=[0], keepdim=true))
outputs: [y]
"""
    plan: Any = plan_of("outer_persistent", read_text(text))
    assert plan.problem.rows.kept[-1].extent.value == 16
