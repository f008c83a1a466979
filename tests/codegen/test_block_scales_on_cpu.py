"""Products of 8-bit floats with scales along K on the host, and that wrong ones are seen."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from test_hopper_on_cpu import dies, wrong
from test_persistent_on_cpu import PLAIN, plan_of

from fusec.ir.graph import Fusion
from fusec.parse import read_text


@cache
def block_scaled(m: int, n: int, k: int, rows: int = 128) -> Fusion:
    """Return a product of e4m3 with scales of 1 x 128 of A and of `rows` x 128 of B."""
    parts, blocks = k // 128, n // rows
    return read_text(
        f"fusion: product\ninputs:\n  a: f8e4m3[{m}, {k}]\n  b: f8e4m3[{n}, {k}]\n"
        f"  s: f32[{m}, {parts}]\n  t: f32[{blocks}, {parts}]\nops:\n"
        f"  - wa = mul(reshape(cast(a, f32), [{m}, {parts}, 128]), "
        "broadcast(s, [false, false, true]))\n"
        f"  - wb = mul(reshape(cast(b, f32), [{blocks}, {rows}, {parts}, 128]), "
        "broadcast(t, [false, true, false, true]))\n"
        f"  - y = cast(linear(reshape(wa, [{m}, {k}]), reshape(wb, [{n}, {k}])), bf16)\n"
        "outputs: [y]\n"
    )


SPLIT = {**PLAIN, "kernel": "split_k", "epilogue_smem": False, "tile_n": 128}


@pytest.mark.parametrize(
    ("fusion", "fields"),
    [
        (block_scaled(72, 256, 256), {**PLAIN, "tile_n": 56}),
        (block_scaled(200, 128, 256), {**PLAIN, "tile_m": 256, "tile_n": 128}),
        (block_scaled(136, 72, 256, 1), {**PLAIN, "tile_n": 64, "cluster_n": 2}),
        (block_scaled(24, 256, 640), {**SPLIT, "tile_m": 32, "cluster_k": 2}),
        (block_scaled(130, 128, 512), {**SPLIT, "cluster_k": 2, "splits": 2}),
    ],
)
def test_scales_of_blocks(fusion: Fusion, fields: dict[str, object], tmp_path: Path) -> None:
    assert wrong(fusion, plan_of(fusion, **fields), tmp_path) == ""


WRONG = {
    "the next step's scales": ("const auto own_scales = next;", "const auto& own_scales = next;"),
    "the rows of the next block": ("i / 2 * 64 + i % 2 * 8", "i % 2 * 8"),
    "the columns' scales": ("i / 4 * 8 / kShared]", "0]"),
    "the last row": ("wanted < last ? wanted : last", "wanted"),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", WRONG)
def test_wrong_scales_are_seen(name: str, tmp_path: Path) -> None:
    fusion = block_scaled(200, 256, 256)
    fields = {**PLAIN, "tile_m": 256, "tile_n": 72}
    dies(fusion, plan_of(fusion, **fields), *WRONG[name], tmp_path)
