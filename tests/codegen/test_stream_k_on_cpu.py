"""Products of weights whose tiles' steps are divided among the SMs: on the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nightly import mostly_nightly
from test_converted_on_cpu import weighted
from test_hopper_on_cpu import ORDERS, dies, wrong
from test_matmul_kernels import compile_cuda, headers_for
from test_weights_on_cpu import CAT, grouped
from weight_forms import Form, weights_of

from fusec import target
from fusec.codegen.dispatch import plan_sources
from fusec.diagnostics import FusecError
from fusec.ir.annotations import Setting
from fusec.ir.graph import Fusion
from fusec.schedule.matmul.family import Matmul, MatmulPlan, MatmulProblem
from fusec.schedule.matmul.hopper import SplitKParameters, StreamKParameters
from fusec.segment.protocol import Refusal

LOWERED = Form("n", "n", group=128, zeros="packed")
FUSIONS = {
    "bytes": weighted(40, 264, 592),
    "many rows": weighted(150, 520, 336),
    "halves of bytes": grouped(24, 520, 640, CAT),
    "along N, lowered": weights_of(LOWERED, 140, 672, 512),
    "more rows than one tile": weighted(150, 264, 400),
}


def plan_of(fusion: Fusion, sms: int, **wanted: Setting) -> MatmulPlan:
    """Return the plan of a GPU of so many SMs, whose ranges these are."""
    gpu = replace(target.find("sm_90a"), sms=sms)
    fields = {"kernel": "split_k", "tile_n": 128, "stages": 3, "cluster_k": 1, "splits": 2}
    return Matmul().build(fusion, gpu, {**fields, "split_method": "stream_k", **wanted})


@pytest.mark.parametrize(
    ("name", "sms", "changes"),
    mostly_nightly(
        [
            ("bytes", 2, {"tile_m": 48}),
            ("many rows", 3, {"tile_m": 160, "stages": 5}),
            ("halves of bytes", 4, {"tile_m": 32}),
            ("along N, lowered", 4, {"tile_m": 144, "stages": 5}),
            ("more rows than one tile", 5, {"tile_m": 80}),
            ("halves of bytes", 5, {"tile_m": 32}),
            ("bytes", 1, {"tile_m": 48}),
        ],
        8,
    ),
)
def test_ranges_are_right(name: str, sms: int, changes: dict[str, Setting], tmp_path: Path) -> None:
    fusion = FUSIONS[name]
    assert wrong(fusion, plan_of(fusion, sms, **changes), tmp_path, ORDERS) == ""


WRONG = {
    "loads begin before the sums are read": ("fusec::wait_for_ring<Config>();", ";"),
    "the sums are read after others let loads begin": (
        "if (at < range.end) fusec::free_ring<Config>();", ""
    ),
    "its own sums again": ("slices + (1 - number)", "slices + number"),
    "a slice that nobody left": ("if (*slot == 0) {", "if (false) {"),
    "who is second does not go on": (
        "  return true;\n}\n\n}  //", "  return false;\n}\n\n}  //"
    ),
    "the counter goes on": ("    *arrived = 0;", ""),
    "the tile of the first part": ("const int tile = at / steps;", "const int tile = end / steps;"),
    "the border of a range": ("(blockIdx.x) - number()", "(blockIdx.x)"),
    "sums that the proxy does not see": (
        "  fence_proxy_async_shared_cta();\n  named_barrier_arrive", "  named_barrier_arrive"
    ),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(WRONG, 2))
def test_wrong_ranges_are_seen(name: str, tmp_path: Path) -> None:
    fusion = FUSIONS["bytes"]
    dies(fusion, plan_of(fusion, 2, tile_m=48), *WRONG[name], tmp_path)


@pytest.mark.parametrize(
    ("fusion", "changes"),
    [
        (weighted(256, 28672, 8192), {"tile_m": 256, "stages": 5}),
        (grouped(256, 28672, 8192, CAT), {"tile_m": 256, "stages": 6}),
        (weights_of(LOWERED, 256, 28672, 8192), {"tile_m": 256, "stages": 6}),
        (weighted(128, 28672, 8192), {"tile_m": 128, "stages": 4}),
        (weights_of(LOWERED, 128, 28672, 8192), {"tile_m": 128, "stages": 5}),
        (weights_of(LOWERED, 64, 28672, 8192), {"tile_m": 64, "stages": 9}),
    ],
)
def test_registers_suffice(fusion: Fusion, changes: dict[str, Setting]) -> None:
    text = plan_sources(plan_of(fusion, 132, **changes))[0].text
    made = compile_cuda(text, name="kernel", arch="sm_90a", headers=headers_for(text))
    assert ([w for w in made.warnings if "wgmma" in w or "setmaxnreg" in w], made.spill_bytes) == (
        [],
        0,
    )


@pytest.mark.parametrize(("columns", "is_quicker"), [(28672, True), (132 * 128, False)])
def test_price_knows_what_a_last_wave_leaves_idle(columns: int, is_quicker: bool) -> None:
    family, gpu, fusion = Matmul(), target.find("sm_90a"), weighted(256, columns, 8192)
    problem = family.problem(fusion)
    assert isinstance(problem, MatmulProblem)
    made = plan_of(fusion, 132, tile_m=256, stages=5).parameters
    whole = family.with_settings(made, {"splits": 1, "split_method": "slices"})
    assert isinstance(whole, SplitKParameters)
    assert (family.seconds(problem, made, gpu) < family.seconds(problem, whole, gpu)) == is_quicker


@pytest.mark.parametrize(("columns", "in_ranges"), [(28672, True), (8192, False)])
@pytest.mark.parametrize("rows", [64, 128])
def test_ranges_are_taken_where_a_last_wave_is_ragged(
    rows: int, columns: int, in_ranges: bool
) -> None:
    family, gpu, fusion = Matmul(), target.find("sm_90a"), weighted(rows, columns, 8192)
    problem = family.problem(fusion)
    assert isinstance(problem, MatmulProblem)
    default_parameters = family.default_parameters(problem, gpu)
    assert not isinstance(default_parameters, Refusal)
    assert isinstance(default_parameters, StreamKParameters) == in_ranges
    space = family.space(problem, gpu)
    assert not isinstance(space, Refusal)
    assert any(isinstance(p, StreamKParameters) for p in space)


@pytest.mark.parametrize(
    ("fusion", "changes", "because"),
    [
        (weighted(64, 28672, 512), {"splits": 3}, "splits of 2"),
        (weighted(64, 28672, 512), {"cluster_k": 2}, "no clusters"),
        (weighted(64, 28672, 512), {"workspace_dtype": "half"}, "has f32 partial sums"),
        (
            weighted(64, 28672, 512),
            {"kernel": "gemv", "tile_m": 16, "tile_n": 32},
            "kernel `gemv` supports only `slices`",
        ),
    ],
)
def test_what_has_no_ranges_is_refused(
    fusion: Fusion, changes: dict[str, Setting], because: str
) -> None:
    with pytest.raises(FusecError, match=because):
        plan_of(fusion, 132, **{"tile_m": 64, **changes})
