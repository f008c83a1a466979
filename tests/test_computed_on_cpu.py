"""Products of rows that are computed on their way, on the host, and that wrong ones are seen."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from test_hopper_on_cpu import dies, wrong

from fusec import target
from fusec.ir.annotations import Setting
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.schedule.matmul import Matmul
from fusec.schedule.plan import KernelPlan

RMS = (
    "  r: f32[{m}, 1]\n  g: {half}[{k}]\n",
    "cast(mul(mul(cast(x, f32), r), cast(g, f32)), {half})",
)
"""Rows times what is known of each, and a scale of each column."""
LAYER = (
    "  r: f32[{m}, 1]\n  e: f32[{m}, 1]\n  g: f32[{k}]\n  b: f32[{k}]\n",
    "cast(add(mul(mul(sub(cast(x, f32), e), r), g), b), {half})",
)
"""Rows less their means, too, scaled and shifted."""
ROUNDED = ("  r: {half}[{m}]\n", "mul(x, broadcast(r, [false, true]))")
"""Rows that are rounded after each operation."""


@cache
def normalised(
    m: int, n: int, k: int, by: tuple[str, str] = RMS, half: str = "bf16", across: bool = False
) -> Fusion:
    """Return a product of rows whose statistics are inputs; across: of weights along N."""
    given, rows = (text.format(m=m, k=k, half=half) for text in by)
    weights, called = (f"{half}[{k}, {n}]", "matmul") if across else (f"{half}[{n}, {k}]", "linear")
    return read_text(
        f"fusion: product\ninputs:\n  x: {half}[{m}, {k}]\n{given}  w: {weights}\nops:\n"
        f"  - a = {rows}\n  - y = {called}(a, w)\noutputs: [y]\n"
    )


def plan_of(fusion: Fusion, kernel: str, **wanted: Setting) -> KernelPlan:
    """Return the plan of a kernel that computes rows."""
    return Matmul().build(fusion, target.find("sm_90a"), {"kernel": kernel, **wanted})


@pytest.mark.parametrize(
    ("fusion", "changes"),
    [
        (normalised(1, 136, 1288), {}),
        (normalised(4, 24, 1032, LAYER, "f16"), {"splits": 2}),
        (normalised(8, 40, 640, ROUNDED), {"stages": 1}),
        (normalised(13, 24, 520), {"tile_m": 16}),
    ],
)
def test_streams(fusion: Fusion, changes: dict[str, Setting], tmp_path: Path) -> None:
    assert wrong(fusion, plan_of(fusion, "vector", **changes), tmp_path) == ""


@pytest.mark.parametrize(
    ("fusion", "changes"),
    [
        (normalised(16, 136, 584), {"tile_m": 16, "cluster": 2, "splits": 1}),
        (normalised(8, 72, 328, LAYER, "f16"), {"tile_m": 16, "cluster": 1, "splits": 2}),
        (normalised(32, 136, 456, ROUNDED, "f16"), {"tile_m": 32, "cluster": 1, "splits": 1}),
        (normalised(21, 264, 200, LAYER, across=True), {"tile_m": 32, "tile_n": 256, "splits": 1}),
    ],
)
def test_rings(fusion: Fusion, changes: dict[str, Setting], tmp_path: Path) -> None:
    plan = plan_of(fusion, "split_k", **{"tile_n": 128, "stages": 3, **changes})
    assert wrong(fusion, plan, tmp_path) == ""
