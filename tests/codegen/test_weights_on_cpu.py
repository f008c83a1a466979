"""Weights of 8 and 4 bits that a stream converts, on the host, and that wrong ones are seen."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from test_converted_on_cpu import plan_of, weighted
from test_hopper_on_cpu import dies, wrong

from fusec import target
from fusec.ir.annotations import Setting
from fusec.ir.graph import Fusion
from fusec.parse import read_text
from fusec.schedule.matmul.family import Matmul
from fusec.schedule.plan import KernelPlan

CAT = (
    "  - lo = broadcast(bitwise_and(w, 15), [false, false, true])\n"
    "  - hi = broadcast(bitwise_right_shift(w, 4), [false, false, true])\n"
    "  - q = sub(cast(cat([lo, hi], dim=2), i32), 8)\n"
)
"""Both halves of each byte side by side."""
SHIFTED = (
    "  - by = cast(mul(iota(2), 4), u8)\n"
    "  - q = sub(cast(bitwise_and(bitwise_right_shift(broadcast(w, [false, false, true]), by), 15),"
    " f32), 8)\n"
)
"""Each byte shifted by 0 and by 4."""
SIGNED = (
    "  - lo = bitwise_right_shift(bitwise_left_shift(cast(w, i8), 4), 4)\n"
    "  - hi = bitwise_right_shift(cast(w, i8), 4)\n"
    "  - q = cat([broadcast(lo, [false, false, true]), "
    "broadcast(hi, [false, false, true])], dim=2)\n"
)
"""Both halves of each byte in two's complement."""
OFFSET = "  - q = sub(cast(w, f32), 128)\n"
"""A weight for each byte, less a zero point."""


@cache
def grouped(m: int, n: int, k: int, unpacked: str = "", half: str = "bf16") -> Fusion:
    """Return a product of halves and of weights, each 128 of a column with a scale.

    unpacked: how `q`, of one or two weights for each byte `w`, is made.
    """
    columns = k if unpacked in ("", OFFSET) else k // 2
    bytes_, low = (f"u8[{n}, {columns}]", 0) if unpacked else (f"i8[{n}, {columns}]", -127)
    codes, parts = f"cast({'q' if unpacked else 'w'}, {half})", k // 128
    return read_text(
        f"fusion: product\ninputs:\n  x: {half}[{m}, {k}]\n  w:\n    type: {bytes_}\n"
        f"    range: [{low}, {low + 254}]\n  s: {half}[{n}, {parts}]\nops:\n{unpacked}"
        f"  - v = mul(reshape({codes}, [{n}, {parts}, 128]), broadcast(s, [false, false, true]))\n"
        f"  - y = linear(x, reshape(v, [{n}, {k}]))\noutputs: [y]\n"
    )


def streamed(fusion: Fusion, **wanted: Setting) -> KernelPlan:
    """Return the plan of a stream over weights."""
    tile: dict[str, Setting] = {"tile_m": 8, "tile_n": 16, "stages": 1, "splits": 1}
    return Matmul().build(fusion, target.find("sm_90a"), {"kernel": "gemv", **tile, **wanted})


def converted(fusion: Fusion, **wanted: Setting) -> KernelPlan:
    """Return the plan of bulk copies into wgmma."""
    return plan_of(fusion, **{"tile_m": 16, **wanted})


@pytest.mark.parametrize(
    ("fusion", "changes"),
    [
        (weighted(5, 40, 2320, "f16"), {"tile_n": 32, "stages": 2, "splits": 2}),
        (grouped(13, 24, 1152, CAT), {"tile_m": 16}),
        (grouped(4, 24, 1280, SHIFTED, "f16"), {"splits": 2}),
        (grouped(3, 40, 1152), {}),
        (grouped(3, 40, 768, SIGNED), {}),
        (grouped(3, 40, 384, OFFSET), {}),
    ],
)
def test_weights_are_streamed(fusion: Fusion, changes: dict[str, Setting], tmp_path: Path) -> None:
    assert wrong(fusion, streamed(fusion, **changes), tmp_path) == ""


@pytest.mark.parametrize(
    ("fusion", "changes"),
    [
        (grouped(40, 136, 640, half="f16"), {"tile_m": 48, "cluster_k": 2}),
        (grouped(12, 136, 768, CAT), {}),
        (grouped(12, 72, 512, SIGNED), {}),
        (grouped(12, 72, 384, OFFSET), {}),
    ],
)
def test_weights_are_converted(fusion: Fusion, changes: dict[str, Setting], tmp_path: Path) -> None:
    assert wrong(fusion, converted(fusion, **changes), tmp_path) == ""


STREAMED = {
    "the order of nibbles": ("0x7632", "0x5410"),
    "the bias": ("+ 0x00080008u", "+ 0x00090009u"),
    "the scale of a part": ("at / Config::kGroup)", "0)"),
    "the scale of a column": ("part.scales[by][column]", "part.scales[by][0]"),
}
CONVERTED = {
    "the scales of a stage": ("zeros, row, step + kAhead)", "zeros, row, first)"),
    "the scales of a row": ("of_scales.bits(own, group)", "of_scales.bits(row, group)"),
    "the place of a nibble": ("lane % 4 * 2) / Codes::kNeighbours;", "lane % 4 * 2);"),
    "the swizzle of 64 bytes": ("lane / (4 * (128 / kPitch))", "lane / 4 % 4"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", STREAMED)
def test_wrong_streams_are_seen(name: str, tmp_path: Path) -> None:
    fusion = grouped(4, 24, 640, CAT)
    dies(fusion, streamed(fusion), *STREAMED[name], tmp_path)


@pytest.mark.parametrize("name", CONVERTED)
def test_wrong_conversions_are_seen(name: str, tmp_path: Path) -> None:
    fusion = grouped(8, 64, 768, CAT)
    dies(fusion, converted(fusion), *CONVERTED[name], tmp_path)
