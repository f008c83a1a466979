"""Products of 8-bit floats on the host: sums that are promoted, and that wrong ones are seen."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from nightly import mostly_nightly
from test_hopper_on_cpu import dies, wrong
from test_persistent_on_cpu import PLAIN, plan_of

from fusec.ir.graph import Fusion
from fusec.parse import read_text


@cache
def scaled(m: int, n: int, k: int, left: str = "f8e4m3", right: str = "f8e4m3") -> Fusion:
    """Return a product of 8-bit floats whose rows and columns are scaled."""
    return read_text(
        f"fusion: product\ninputs:\n  a: {left}[{m}, {k}]\n  b: {right}[{n}, {k}]\n"
        f"  s: f32[{m}, 1]\n  t: f32[{n}]\nops:\n"
        "  - p = matmul(cast(a, f32), permute(cast(b, f32), [1, 0]))\n"
        "  - y = cast(mul(mul(p, s), t), bf16)\noutputs: [y]\n"
    )


@pytest.mark.parametrize(
    ("fusion", "changes"),
    mostly_nightly(
        [
            (scaled(300, 80, 272), {"tile_m": 256, "tile_n": 72}),
            (scaled(136, 168, 272, "f8e4m3", "f8e5m2"), {"multicast": "a", "tile_n": 80}),
            (scaled(300, 136, 272), {"multicast": "4x2"}),
            (
                scaled(24, 136, 656),
                {"kernel": "split_k", "tile_m": 32, "tile_n": 128, "cluster": 2},
            ),
        ],
        2,
    ),
)
def test_products_are_promoted(fusion: Fusion, changes: dict[str, object], tmp_path: Path) -> None:
    fields = {**PLAIN, **changes}
    if fields.get("kernel") == "split_k":
        fields |= {"staged": False}
    assert wrong(fusion, plan_of(fusion, **fields), tmp_path) == ""


WRONG = {
    "sums are read early": ("wgmma_wait<0>();", "wgmma_wait<1>();"),
    "parts that are not added": ("+= own_scales", "= own_scales"),
    "the further rows": ("own + block * kBlockBytes", "own"),
    "the type of A": ("using TA = fusec::f8e4m3", "using TA = fusec::f8e5m2"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_promotions_are_seen(name: str, tmp_path: Path) -> None:
    fusion = scaled(300, 72, 400)
    dies(fusion, plan_of(fusion, **{**PLAIN, "tile_m": 256}), *WRONG[name], tmp_path)
