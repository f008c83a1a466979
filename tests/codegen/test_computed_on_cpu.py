"""Products of rows that are computed on their way, on the host, and that wrong ones are seen."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu import run_plan
from test_hopper_on_cpu import dies, wrong

from fusec import target
from fusec.ir.annotations import Setting
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.run.inputs import random_inputs
from fusec.schedule.matmul.family import Matmul
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
    assert wrong(fusion, plan_of(fusion, "gemv", **changes), tmp_path) == ""


@pytest.mark.parametrize(
    ("fusion", "changes"),
    [
        (normalised(16, 136, 584), {"tile_m": 16, "cluster_k": 2, "splits": 1}),
        (normalised(8, 72, 328, LAYER, "f16"), {"tile_m": 16, "cluster_k": 1, "splits": 2}),
        (normalised(32, 136, 456, ROUNDED, "f16"), {"tile_m": 32, "cluster_k": 1, "splits": 1}),
        (normalised(21, 264, 200, LAYER, across=True), {"tile_m": 32, "tile_n": 256, "splits": 1}),
    ],
)
def test_rings(fusion: Fusion, changes: dict[str, Setting], tmp_path: Path) -> None:
    plan = plan_of(fusion, "split_k", **{"tile_n": 128, "stages": 3, **changes})
    assert wrong(fusion, plan, tmp_path) == ""


def test_each_lane_arrives_in_debug_builds(tmp_path: Path) -> None:
    fusion = normalised(16, 72, 456)
    plan = plan_of(fusion, "split_k", tile_m=16, tile_n=128, stages=3, cluster_k=1, splits=1)

    def debug(text: str) -> str:
        return text.replace("kArrivingLanes = 1;", "kArrivingLanes = 32;")

    assert wrong(fusion, plan, tmp_path, edit=debug) == ""


WRONG = {
    "what is written is not shown to wgmma": ("    fence_proxy_async_shared_cta();", "    "),
    "others have not written yet": (
        "    __syncwarp();\n    if (lane",
        "    if (lane",
    ),
    "a writer does not arrive": ("    if (lane < kArrivingLanes) full[stage].arrive();\n", ""),
    "two lanes arrive": (
        "    if (lane < kArrivingLanes) full[stage].arrive();",
        "    full[stage].arrive();",
    ),
    "a stage is not free": ("    empty[stage].wait(turn % 2 ^ 1);\n", ""),
    "the turn of a stage": ("turn % 2 ^ 1", "turn % 2"),
    "writers of other stages": ("number += Config::kWriters", "number += 2"),
    "bytes of A are waited for": (
        "kStageBytes - kComputedBytes",
        "kStageBytes",
    ),
    "the swizzle": ("lane % kInRow ^ row % kInRow", "lane % kInRow"),
    "elements behind K are read": ("min(k, depth - kComputed)", "k"),
    "rows behind the last are read": (" / kInRow, a.extent - 1);", " / kInRow, a.extent);"),
    "statistics of another row": ("r[m]", "r[m ^ 1]"),
    "a scale of another column": ("(g + k)", "(g + (k ^ 8))"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rings_are_seen(name: str, tmp_path: Path) -> None:
    fusion = normalised(14, 72, 584)
    fields: dict[str, Setting] = {"tile_m": 16, "tile_n": 128, "stages": 3}
    dies(
        fusion, plan_of(fusion, "split_k", **fields, cluster_k=1, splits=1), *WRONG[name], tmp_path
    )


@pytest.mark.parametrize("masked", [True, False])
def test_infinite_elements_do_not_meet_zeros_behind_k(masked: bool, tmp_path: Path) -> None:
    fusion = normalised(4, 72, 584)
    plan = plan_of(fusion, "split_k", tile_m=16, tile_n=128, stages=3, cluster_k=1, splits=1)
    inputs = random_inputs(fusion, fusion.hints, 0)
    for given in inputs.values():
        given.storage[:] = 1
    inputs["x"].storage[4 * 584 - 8 : 4 * 584] = np.inf

    def edit(text: str) -> str:
        return text if masked else text.replace("k < depth ? made[own][i] : 0", "made[own][i]")

    found = run_plan(plan, inputs, tmp_path, edit=edit)["y"].astype(np.float32)
    assert np.isposinf(found[3]).all() == masked
    assert (found[:3] == 584).all()


@pytest.mark.parametrize("name", ["statistics of another row", "a scale of another column"])
def test_wrong_streams_are_seen(name: str, tmp_path: Path) -> None:
    fusion = normalised(4, 24, 1032)
    dies(fusion, plan_of(fusion, "gemv"), *WRONG[name], tmp_path)
