"""Weights that are converted once for more rows than 128: on the host."""

from __future__ import annotations

from pathlib import Path

import pytest
from nightly import mostly_nightly
from test_converted_on_cpu import weighted
from test_hopper_on_cpu import ORDERS, dies, wrong
from test_matmul_kernels import compile_cuda, disassemble, headers_for
from test_weights_on_cpu import CAT, converted, grouped
from weight_forms import Form, weights_of

from fusec.codegen.dispatch import plan_sources
from fusec.diagnostics import FusecError
from fusec.ir.annotations import Setting
from fusec.ir.graph import Fusion

LOWERED = Form("n", "n", group=128, zeros="packed")
FUSIONS = {
    "bytes": weighted(200, 136, 336),
    "three columns": weighted(150, 264, 592),
    "halves of bytes": grouped(200, 136, 640, CAT),
    "along N": weights_of(Form("n", group=16), 200, 160, 384),
    "along N, lowered": weights_of(LOWERED, 256, 160, 768),
    "packed along K": weights_of(Form("n", "k", group=32, zeros="bytes"), 131, 160, 512),
}


@pytest.mark.parametrize("rows", [208, 256])
@pytest.mark.parametrize("name", mostly_nightly(["bytes", "halves of bytes"], 2))
def test_rows_of_all_tiles_are_right(name: str, rows: int, tmp_path: Path) -> None:
    plan = converted(FUSIONS[name], tile_m=rows, stages=5)
    assert wrong(FUSIONS[name], plan, tmp_path) == ""


@pytest.mark.parametrize(
    ("name", "changes"),
    mostly_nightly(
        [
            ("bytes", {"splits": 2, "split_method": "two_pass"}),
            ("halves of bytes", {"splits": 3}),
            ("along N", {"cluster_k": 2}),
            ("along N, lowered", {"splits": 2, "stages": 6}),
            ("packed along K", {"tile_m": 144}),
            ("halves of bytes", {"cluster_n": 2, "splits": 2}),
            ("three columns", {"cluster_n": 2}),
            ("along N, lowered", {"cluster_n": 2}),
        ],
        8,
    ),
)
def test_forms_are_right(name: str, changes: dict[str, Setting], tmp_path: Path) -> None:
    wanted = {"split_method": "slices", **changes} if "splits" in changes else changes
    plan = converted(FUSIONS[name], **{"tile_m": 256, "stages": 5, **wanted})
    assert wrong(FUSIONS[name], plan, tmp_path, ORDERS[:2]) == ""


WRONG = {
    "the swizzle of 32 bytes": ("halves of bytes", "(4 * (128 / kPitch))", "(4 * 2)"),
    "the half of a panel": ("bytes", "kFirst % 4 + step", "step"),
    "the half of a stage": ("bytes", "(kPiece * kPieceSteps<Config> + step)", "step"),
    "the factors of the stage after": ("along N", "row, step + kAhead)", "row, step)"),
    "the factors of the next stages": ("along N, lowered", "ahead[0] = ahead[kAhead - 1];", ""),
    "the group of half of a stage": (
        "halves of bytes", "step * Config::kTileK / Config::kGroup", "step"
    ),
    "the number that zero points take off, too": (
        "along N, lowered", "int kAdded = 128;", "int kAdded = 129;"
    ),
    "registers are written early": (
        "bytes", "    wgmma_wait<1>();\n    widen_fragments<Config, 0>",
        "    widen_fragments<Config, 0>",
    ),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(WRONG, 2))
def test_wrong_tiles_are_seen(name: str, tmp_path: Path) -> None:
    form, old, new = WRONG[name]
    dies(FUSIONS[form], converted(FUSIONS[form], tile_m=256, stages=5), old, new, tmp_path)


SHARED = {
    "a stage is handed back to one CTA": ("release_stage<kRows, kColumns>", "release_stage<1, 1>"),
    "a CTA that ends while the other hands back": (
        "fusec::cluster_sync();  // as in the consumers", "//"
    ),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", SHARED)
def test_wrong_pairs_are_seen(name: str, tmp_path: Path) -> None:
    fusion = FUSIONS["three columns"]
    plan = converted(fusion, tile_m=256, stages=3, cluster_n=2)
    dies(fusion, plan, *SHARED[name], tmp_path)


@pytest.mark.parametrize(
    ("fusion", "changes"),
    mostly_nightly(
        [
            (weighted(256, 8192, 8192), {"splits": 2, "split_method": "slices"}),
            (weighted(256, 8192, 8192), {"cluster_k": 2}),
            (weighted(256, 8192, 8192), {"cluster_n": 2}),
            (grouped(256, 8192, 8192, CAT), {"splits": 2, "split_method": "two_pass"}),
            (weights_of(LOWERED, 256, 8192, 8192), {"splits": 2, "split_method": "slices"}),
            (weights_of(LOWERED, 208, 8192, 8192), {"tile_m": 208}),
        ],
        3,
    ),
)
def test_registers_suffice(fusion: Fusion, changes: dict[str, Setting], tmp_path: Path) -> None:
    # Among warnings are a serialised wgmma, an injected wait, and an ignored setmaxnreg.
    text = plan_sources(converted(fusion, **{"tile_m": 256, "stages": 5, **changes}))[0].text
    made = compile_cuda(text, name="kernel", arch="sm_90a", headers=headers_for(text))
    assert ([w for w in made.warnings if "wgmma" in w or "setmaxnreg" in w], made.spill_bytes) == (
        [],
        0,
    )
    assert "USETMAXREG" in disassemble(made.cubin, tmp_path)


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"cluster_m": 2}, "only multicast A"),
        ({"splits": 2, "split_method": "serial_tma"}, "a second set of accumulators"),
    ],
)
def test_what_registers_do_not_suffice_for_is_refused(
    changes: dict[str, Setting], because: str
) -> None:
    with pytest.raises(FusecError, match=because):
        converted(weighted(256, 8192, 8192), tile_m=256, stages=5, **changes)
