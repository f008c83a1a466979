"""Weights along K and across it, of groups of any size, with zero points: on the host."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_hopper_on_cpu import ORDERS, dies, wrong
from test_weights_on_cpu import converted, streamed
from weight_forms import Form, weights_of

ALONG = (
    Form(group=32), Form(group=64, zeros="bytes", half="f16"), Form(zeros="packed"),
    Form(group=256, zeros="halves"), Form(packed="k", group=32, zeros="packed"),
    Form(packed="k", group=128, zeros="halves", half="f16"),
    Form(packed="k", group=64, zeros="bytes"),
    Form(packed="k", group=128, zeros="packed", half="f16"),
)  # fmt: skip
ACROSS = (
    Form("n"), Form("n", group=16), Form("n", group=64, zeros="packed"),
    Form("n", "k", group=128), Form("n", "k", group=32, zeros="bytes"),
    Form("n", "n", group=128, zeros="packed"), Form("n", "n", group=64, half="f16"),
)  # fmt: skip


@pytest.mark.parametrize("form", [ALONG[0], ALONG[3], ALONG[4]], ids=str)
def test_weights_are_streamed(form: Form, tmp_path: Path) -> None:
    fusion = weights_of(form, 3, 32, 1280)
    assert wrong(fusion, streamed(fusion), tmp_path, ORDERS[:1]) == ""


@pytest.mark.parametrize("form", [ACROSS[0], ACROSS[3], ACROSS[5]], ids=str)
def test_weights_across_are_streamed(form: Form, tmp_path: Path) -> None:
    fusion = weights_of(form, 11, 160, 1280 if form.group else 1112)
    plan = streamed(fusion, tile_m=16, tile_n=64, splits=2)
    assert wrong(fusion, plan, tmp_path, ORDERS[:1]) == ""


CONVERTED = (ALONG[1], ALONG[2], ALONG[5], ALONG[7], ACROSS[1], ACROSS[2], ACROSS[4], ACROSS[5])


@pytest.mark.parametrize("form", CONVERTED, ids=str)
def test_weights_are_converted(form: Form, tmp_path: Path) -> None:
    fusion = weights_of(form, 12, 160, 512)
    assert wrong(fusion, converted(fusion, splits=2), tmp_path, ORDERS[:1]) == ""


WRONG = {
    "zero points of the other half": (ACROSS[5], "is_second ? 4 : 0", "is_second ? 0 : 4"),
    "the next column": (ACROSS[5], "column / 2 * 0x1111", "column * 0x1111"),
    "the swizzle across": (ACROSS[5], "row / 32 ^ line % 4", "row / 32"),
    "the columns of a lane": (ACROSS[2], "kRowDistance == 1 ? 2 : 1", "1"),
    "the neighbour of a sum": (
        ACROSS[2],
        "{accumulators[i], accumulators[i + 2]}",
        "{accumulators[i], accumulators[i + 1]}",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", WRONG)
def test_wrong_conversions_are_seen(name: str, tmp_path: Path) -> None:
    form, old, new = WRONG[name]
    fusion = weights_of(form, 12, 160, 512)
    dies(fusion, converted(fusion), old, new, tmp_path)


def test_a_wrong_stream_is_seen(tmp_path: Path) -> None:
    fusion = weights_of(ACROSS[5], 3, 64, 512)
    plan = streamed(fusion, tile_n=64)
    dies(fusion, plan, "first_column + i", "first_column", tmp_path)
