"""Products of 8-bit floats on the host: sums that are promoted, and that wrong ones are seen."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from nightly import mostly_nightly
from segments_on_cpu import planned, run_segments
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
            (scaled(136, 168, 272, "f8e4m3", "f8e5m2"), {"cluster_n": 2, "tile_n": 80}),
            (scaled(300, 136, 272), {"cluster_m": 4, "cluster_n": 2}),
            (
                scaled(24, 136, 656),
                {"kernel": "split_k", "tile_m": 32, "tile_n": 128, "cluster_k": 2},
            ),
        ],
        2,
    ),
)
def test_products_are_promoted(fusion: Fusion, changes: dict[str, object], tmp_path: Path) -> None:
    fields = {**PLAIN, **changes}
    if fields.get("kernel") == "split_k":
        fields |= {"epilogue_smem": False}
    assert wrong(fusion, plan_of(fusion, **fields), tmp_path) == ""


WRONG = {
    "sums are read early": ("wgmma_wait<0>();", "wgmma_wait<1>();"),
    "parts that are not added": ("+= own_scales", "= own_scales"),
    "the further rows": ("own + block * kBlockBytes", "own"),
    "the type of A": ("using TA = fusec::f8e4m3", "using TA = fusec::f8e5m2"),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", WRONG)
def test_wrong_promotions_are_seen(name: str, tmp_path: Path) -> None:
    fusion = scaled(300, 72, 400)
    dies(fusion, plan_of(fusion, **{**PLAIN, "tile_m": 256}), *WRONG[name], tmp_path)


def sum_of_13_bits(start: Any, left: Any, right: Any) -> Any:
    """Return start + left @ right as a tensor core of Hopper adds terms of 8-bit floats.

    All terms are cut to 13 bits behind the point of the largest (decision 115).
    """
    terms = np.concatenate([start[:, None], left[:, :, None] * right[None]], axis=1)
    place = np.exp2(np.floor(np.log2(np.abs(terms).max(axis=1))) - 13)[:, None]
    return (np.trunc(terms / place) * place).sum(axis=1)


@pytest.mark.nightly
def test_a_scaled_grouped_product_is_fp64_rounded_once(tmp_path: Path) -> None:
    """Sums of 13 bits, as PyTorch's `_scaled_grouped_mm` has them, miss that by 1 or 2 of 100.

    nvFuser's test wants PyTorch's bits (`atol=1e-3, rtol=0` for bf16 in the hundreds).
    """
    m, n, depth, groups = 32, 64, 64, 2
    rng, f8 = np.random.default_rng(0), ml_dtypes.float8_e4m3fn
    a = rng.uniform(-9, 9, (m, groups * depth)).astype(f8)
    b = rng.uniform(-9, 9, (groups * depth, n)).astype(f8)
    s = rng.uniform(-9, 9, (groups, m, 1)).astype(np.float32)
    t = rng.uniform(-9, 9, (groups, 1, n)).astype(np.float32)
    ends = np.arange(1, groups + 1, dtype=np.int32) * depth
    program = planned(
        f"fusion: scaled\ninputs:\n  a: f8e4m3[{m}, {groups * depth}]\n"
        f"  b: f8e4m3[{groups * depth}, {n}]\n  ends: i32[{groups}]\n"
        f"  s: f32[{groups}, {m}, 1]\n  t: f32[{groups}, 1, {n}]\n"
        "ops:\n  - y = grouped_mm(a, b, ends, s, t)\noutputs: [y]\n"
    )
    found = run_segments(program, {"a": a, "b": b, "ends": ends, "s": s, "t": t}, tmp_path)["y"]
    exact, short = [], []
    for end in ends:
        left, right = (
            x.astype(np.float64) for x in (a[:, end - depth : end], b[end - depth : end])
        )
        exact.append(left @ right)
        half = sum_of_13_bits(np.zeros((m, n)), left[:, :32], right[:32])
        short.append(sum_of_13_bits(half, left[:, 32:], right[32:]))
    expected, other = ((np.stack(x).astype(np.float32) * s * t).astype(ml_dtypes.bfloat16)
                       for x in (exact, short))  # fmt: skip
    np.testing.assert_array_equal(found, expected)
    assert 0.01 < np.mean(other != expected) < 0.04
