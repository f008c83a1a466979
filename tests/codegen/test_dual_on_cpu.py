"""Two joined products on the host: what they compute, and that wrong ones are seen."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from nightly import mostly_nightly
from test_hopper_on_cpu import dies, wrong
from test_persistent_on_cpu import PLAIN, TURNS, plan_of

from fusec.diagnostics import FusecError
from fusec.ir.graph import Fusion
from fusec.parse import read_text

SWIGLU = "  - y = mul(silu(g), u)\noutputs: [y]\n"
RESIDUAL = "  - y = add(mul(silu(g), u), r)\noutputs: [y, g]\n"


@cache
def joined(m: int, n: int, k: int, by: str = SWIGLU, *, along: bool = True) -> Fusion:
    """Return two products of `x` and what joins them; along: whether weights lie along K."""
    shape = f"[{n}, {k}]" if along else f"[{k}, {n}]"
    product = "linear" if along else "matmul"
    return read_text(
        f"fusion: product\ninputs:\n  x: bf16[{m}, {k}]\n  v: bf16{shape}\n  w: bf16{shape}\n"
        f"  r: bf16[{m}, {n}]\nops:\n  - g = {product}(x, v)\n  - u = {product}(x, w)\n{by}"
    )


@pytest.mark.parametrize(
    ("fusion", "changes"),
    mostly_nightly([
        (joined(136, 136, 136, RESIDUAL, along=False), {**PLAIN, "tile_n": 128, "cluster_m": 2}),
        (joined(300, 72, 136), {**TURNS, "tile_n": 64, "tile_m": 128, "cluster_m": 2}),
        (joined(600, 72, 136), {**PLAIN, "cluster_m": 4}),
    ], 3, 1),
)  # fmt: skip
def test_joined_products(fusion: Fusion, changes: dict[str, object], tmp_path: Path) -> None:
    assert wrong(fusion, plan_of(fusion, **changes), tmp_path) == ""


SPLIT = {
    "kernel": "split_k", "tile_m": 16, "tile_n": 128, "stages": 4, "cluster_k": 1, "splits": 1,
    "split_method": "slices", "cluster_m": 1, "cluster_n": 1, "epilogue_smem": False,
    "ping_pong": False,
}  # fmt: skip
DOWN = {**SPLIT, "tile_m": 128, "tile_n": 64}


@pytest.mark.parametrize(
    ("fusion", "changes"),
    mostly_nightly(
        [
            (joined(13, 72, 264), SPLIT),
            (joined(13, 200, 264, RESIDUAL), {**SPLIT, "tile_n": 256, "cluster_k": 2}),
            (joined(61, 136, 528, along=False), {**SPLIT, "tile_m": 64, "splits": 3}),
            (
                joined(130, 72, 528),
                {**SPLIT, "tile_m": 64, "splits": 2, "split_method": "serial_tma"},
            ),
            (joined(100, 72, 264, RESIDUAL), {**DOWN, "cluster_k": 4}),
            (joined(300, 72, 264), {**DOWN, "cluster_m": 2, "splits": 2}),
            (joined(100, 136, 264, along=False), {**DOWN, "tile_n": 128, "cluster_n": 2}),
        ],
        3,
    ),
)
def test_split_joined_products(fusion: Fusion, changes: dict[str, object], tmp_path: Path) -> None:
    assert wrong(fusion, plan_of(fusion, **changes), tmp_path) == ""


WRONG = {
    "the operand of the second": ("kOfB * 128, b.second", "kOfB * 128, b.map"),
    "the sums of the second": ("i + Config::kColumns / 2", "i + Config::kColumns / 4"),
}  # fmt: skip


WRONG_SPLIT = {
    "the operand of the second": ("kOfB * 128, b.second", "kOfB * 128, b.map"),
    "the sums of the second": ("share[f], share[f + 1]", "share[f], share[f]"),
    "the columns of the second": ("f % Config::kProducts * kColumns", "f % Config::kProducts * 4"),
    "the quads of a thread": ("f / Config::kProducts * Config", "f * Config"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", WRONG)
def test_wrong_joined_products_are_seen(name: str, tmp_path: Path) -> None:
    fusion = joined(300, 72, 136)
    dies(fusion, plan_of(fusion, **{**PLAIN, "tile_m": 256}), *WRONG[name], tmp_path)


@pytest.mark.parametrize("name", WRONG_SPLIT)
def test_wrong_split_joined_products_are_seen(name: str, tmp_path: Path) -> None:
    fusion = joined(29, 72, 264)
    plan = plan_of(fusion, **{**SPLIT, "tile_m": 32, "splits": 2})
    dies(fusion, plan, *WRONG_SPLIT[name], tmp_path)


def test_slices_of_joined_products_are_not_added_elsewhere() -> None:
    with pytest.raises(FusecError, match="does not support a dual GEMM"):
        plan_of(joined(29, 72, 528), **{**SPLIT, "splits": 2, "split_method": "two_pass"})
