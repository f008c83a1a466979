"""Products of 8-bit weights on the host: made halves in registers, and that wrong ones are seen."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from test_hopper_on_cpu import dies, find_matmul, wrong

from fusec import target
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.schedule.plan import KernelPlan


@cache
def weighted(m: int, n: int, k: int, half: str = "bf16", weights: str = "i8") -> Fusion:
    """Return a product of halves and of 8-bit weights times a scale for each column."""
    return read_text(
        f"fusion: product\ninputs:\n  x: {half}[{m}, {k}]\n  w: {weights}[{n}, {k}]\n"
        f"  s: {half}[{n}, 1]\nops:\n  - v = mul(cast(w, {half}), s)\n  - y = linear(x, v)\n"
        "outputs: [y]\n"
    )


def plan_of(fusion: Fusion, **wanted: object) -> KernelPlan:
    """Return the plan of the kernel that converts weights."""
    fields = {"kernel": "split_k", "tile_n": 128, "stages": 2, "cluster_k": 1, "splits": 1}
    return find_matmul().build(fusion, target.find("sm_90a"), {**fields, **wanted})


@pytest.mark.parametrize(
    ("fusion", "changes"),
    [
        (weighted(12, 136, 272), {"tile_m": 16}),
        (weighted(24, 136, 656, "f16"), {"tile_m": 32, "cluster_k": 2, "splits": 2}),
    ],
)
def test_weights_are_converted(fusion: Fusion, changes: dict[str, object], tmp_path: Path) -> None:
    assert wrong(fusion, plan_of(fusion, **changes), tmp_path) == ""


WRONG = {
    "registers are written early": (
        "    wgmma_wait<1>();\n    widen_fragments<Config, 0>",
        "    widen_fragments<Config, 0>",
    ),
    "a stage is handed back early": (
        "    if (step > first && lane == 0) release_stage<kRows, kColumns>(empty[previous]);",
        "    if (lane == 0) release_stage<kRows, kColumns>(empty[stage]);",
    ),
    "the swizzle": ("at / 16 ^ (lane / (4 * (128 / kPitch)))", "at / 16"),
    "the sign": ("0x00800080u", "0x00000080u"),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", WRONG)
def test_wrong_conversions_are_seen(name: str, tmp_path: Path) -> None:
    fusion = weighted(12, 136, 528)
    dies(fusion, plan_of(fusion, tile_m=16), *WRONG[name], tmp_path)
