"""What price chooses of the schedules that were measured, and which operands leave L2 first."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from paths import ROOT

from benchmarks.product_schedules import (
    DRAWN,
    PRODUCTS,
    Priced,
    lines_of,
    listed,
    name_of,
    product_of,
    schedule_of,
    schedule_text,
)
from fusec import target
from fusec.ir.annotations import Setting
from fusec.schedule.matmul.choice import MatmulParameters
from fusec.schedule.matmul.cost.cache_hints import streamed
from fusec.schedule.matmul.cost.occupancy import ctas_per_sm, room
from fusec.segment.protocol import Refusal

HOPPER = target.find("sm_90a")
BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results" / "h200-schedules.json"
LINES = BENCHMARKS / "schedules" / "clusters.txt"
ROWS: dict[str, Any] = {r["name"]: r for r in json.loads(RESULTS.read_text())["rows"]}
NAMES = [s for s in PRODUCTS if name_of(*s) in ROWS]
OWN = ("split_k", "gemv")
SUITE = [s for s in NAMES if s not in DRAWN]
OTHERS = [
    s for s in DRAWN if sum(t.startswith(OWN) for t, _ in ROWS[name_of(*s)]["schedules"]) > 10
]


def over_best(product: Priced, *kernels: str) -> float:
    """Return the time of the cheapest measured schedule over that of the fastest."""
    times: dict[str, float] = dict(map(tuple, ROWS[product.row.name]["schedules"]))
    made = {t: p for t, p in product.of(times).items() if not kernels or p.kernel in kernels}
    return product.over_best(made, times)


@pytest.mark.parametrize("product", SUITE, ids=lambda p: name_of(*p))
def test_the_cheapest_is_near_the_fastest_that_was_measured(
    product: tuple[tuple[int, int, int], str],
) -> None:
    """Within 5 %, to the percent that nine runs can tell."""
    assert round(over_best(Priced(*product, HOPPER)), 2) <= 1.05


@pytest.mark.parametrize("product", OTHERS, ids=lambda p: name_of(*p))
def test_of_other_products_the_price_of_split_ones_is_not_far_off(
    product: tuple[tuple[int, int, int], str],
) -> None:
    assert over_best(Priced(*product, HOPPER), *OWN) <= 1.3


@cache
def priced(name: str) -> Priced:
    return Priced(*product_of(name), HOPPER)


def with_costs(product: Priced, **costs: Any) -> Priced:
    """Return a product with other coefficients of the cost model."""
    return product.priced_for(replace(HOPPER, cost=replace(HOPPER.cost, **costs)))


def losses(**costs: Any) -> dict[str, float]:
    """Return what price's choice of `wgmma` loses, by product, of all that have such schedules."""
    made = {n: sum(t.startswith("wgmma") for t, _ in r["schedules"]) for n, r in ROWS.items()}
    products = {n: with_costs(priced(n), **costs) for n, count in made.items() if count > 1}
    return {n: over_best(product, "wgmma") for n, product in products.items()}


@pytest.fixture(scope="module")
def as_priced() -> dict[str, float]:
    return losses()


@pytest.mark.nightly
def test_most_choices_are_near_the_fastest(as_priced: dict[str, float]) -> None:
    """Of 208 products, most of them drawn."""
    assert len(as_priced) > 150
    assert sum(as_priced.values()) / len(as_priced) <= 1.02
    assert sum(each > 1.05 for each in as_priced.values()) <= len(as_priced) / 8


@pytest.mark.parametrize(
    ("coefficient", "value"),
    [
        ("hot_row_limit", 0.0),
        ("shared_a_penalty", (1.0, 1.0)),
        ("line_penalty", {}),
        ("shared_stage_seconds", 0.0),
        ("out_of_bounds_penalty", 0.0),
    ],
)
def test_a_price_without_what_was_measured_chooses_others(
    coefficient: str, value: Any, as_priced: dict[str, float]
) -> None:
    cost = replace(HOPPER.cost.matmul_wgmma, **{coefficient: value})
    assert sum(losses(matmul_wgmma=cost).values()) > sum(as_priced.values()) + 0.3


def test_a_cost_model_without_the_measured_stages_selects_others() -> None:
    product = Priced((1, 28672, 8192), "nt", HOPPER)
    assert product.chosen.stages == 2
    cost = replace(HOPPER.cost.matmul_gemv, stage_share={1: 1.0, 2: 0.98, 4: 0.96})
    assert over_best(with_costs(product, matmul_gemv=cost)) > 1.05


@pytest.mark.parametrize(
    "text",
    [
        "split_k 16x128 12 2 1",
        "split_k 128x256 4 1 7 slices cluster_2x1",
        "wgmma 128x192 5 ping_pong cluster_1x2 staged",
        "wgmma 256x128 4 cluster_4x2 parts_3 staged",
        "wgmma 104x256 5 cluster_2x1 raster_16",
        "gemv 8x16 2 1 1",
    ],
)
def test_schedules_are_lines(text: str) -> None:
    product = Priced((128, 4096, 16384), "nt", HOPPER)
    assert schedule_text(schedule_of(text, product.chosen)) == text


def test_a_file_lists_products_and_their_schedules() -> None:
    lines = lines_of(LINES.read_text("utf-8"))
    assert len(lines) > 10
    for shape, texts in lines.items():
        found = {schedule_text(p) for p in listed(Priced(*shape, HOPPER), lines)}
        assert {*texts} <= found


def test_a_line_without_a_kernel_is_named() -> None:
    lines = lines_of("64x4096x4096\n  wgmma 72x72 4  # no such columns\n")
    with pytest.raises(AssertionError, match="64x4096x4096 has no wgmma 72x72 4"):
        listed(Priced((64, 4096, 4096), "nt", HOPPER), lines)


@pytest.mark.parametrize(
    ("shape", "text", "once"),
    [
        ((64, 8192, 8192), "split_k 64x128 9 2 1", (False, True)),
        ((256, 256, 65536), "split_k 128x256 4 1 8 slices", (True, False)),
        ((256, 256, 65536), "split_k 128x256 4 1 8 slices cluster_2x1", (True, True)),
        ((64, 28672, 8192), "split_k 64x128 9 2 1", (False, False)),  # seven times L2
        ((64, 1024, 8192), "split_k 64x128 9 2 1", (False, False)),  # L2 holds all
        ((64, 8192, 8192), "wgmma 128x128 4", (False, False)),
    ],
)
def test_what_is_read_once_and_does_not_fit_leaves_l2_first(
    shape: tuple[int, int, int], text: str, once: tuple[bool, bool]
) -> None:
    product = Priced(shape, "nt", HOPPER)
    parameters = schedule_of(text, product.chosen)
    assert streamed(parameters, product.work.sizes, (2, 2), HOPPER) == once


@pytest.mark.parametrize(("tile_m", "count"), [(16, 3), (32, 3), (64, 2), (80, 1)])
def test_small_tiles_share_an_sm_where_their_stages_fit(tile_m: int, count: int) -> None:
    product = Priced((tile_m, 8192, 8192), "nt", HOPPER)
    small = schedule_of(f"split_k {tile_m}x128 2 1 1", product.chosen)
    assert ctas_per_sm(small, 40_000) == count
    assert ctas_per_sm(small, room(1)) == 1


@pytest.mark.parametrize(
    ("name", "swap_ab", "ctas"),
    [("800x5752x6048", True, 1), ("6408x232x10632_nn", False, 8), ("672x2640x6264", False, 8)],
)
def test_price_chooses_swapped_tiles_and_large_clusters(
    name: str, swap_ab: bool, ctas: int
) -> None:
    """As were the quickest of those that were timed."""
    found = priced(name).chosen
    assert (found.kernel, found.swap_ab, found.ctas) == ("wgmma", swap_ab, ctas)


@pytest.mark.parametrize(
    "settings",
    [{"cluster_m": 4}, {"cluster_m": 2, "cluster_n": 4}, {"kernel": "wgmma", "tile_m": 168}],
)
def test_a_schedule_sets_clusters_and_swapped_tiles(settings: dict[str, Setting]) -> None:
    product = priced("1000x4096x4096")
    found = product.family.chosen(product.problem, HOPPER, settings)
    assert isinstance(found, MatmulParameters), found
    assert {n: getattr(found, n) for n in settings} == settings


def test_clusters_and_swapped_tiles_are_tuned() -> None:
    product = priced("1000x4096x4096")
    space = product.family.space(product.problem, HOPPER)
    assert not isinstance(space, Refusal)
    found = list(space)
    assert any(p.kernel == "wgmma" and p.swap_ab for p in found)
    clusters = {(p.setting("cluster_m"), p.setting("cluster_n")) for p in found}
    assert {(4, 1), (1, 4), (4, 2), (2, 4)} & clusters
