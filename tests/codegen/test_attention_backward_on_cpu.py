"""The kernels of attention's backward on the host: what they compute, and that wrong ones fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backwards import CAUSAL, RECOGNISED, backward
from cuda_on_cpu import run_plan
from nightly import mostly_nightly

from fusec import target
from fusec.parse.reader import read_text
from fusec.passes import run_pipeline
from fusec.reference.errors.nodes import Model
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs
from fusec.schedule.attention.backward.family import AttentionBackwards

FIRST = ({"seed": 0},)
ORDERS = (*FIRST, {"seed": 1, "backwards": True}, {"seed": 2, "at_once": True})
"""How tests run kernels: two orders, and copies that are done early."""
MORE_ORDERS = (*ORDERS, *({"seed": seed, "backwards": seed % 2 == 1} for seed in range(3, 8)))
"""Where a wrong kernel must fail in one of them."""
SMALL = {
    "tile_queries": 32,
    "query_stages": 2,
    "tile_keys": 32,
    "key_stages": 2,
    "warpgroups": 1,
}


def wrong(
    text: str,
    folder: Path,
    settings: Mapping[str, Any],
    orders: Iterable[Mapping[str, Any]] = FIRST,
    edit: Callable[[str], str] = str,
) -> str:
    """Return what is wrong with a backward's kernels in some order; nothing where all is right.

    They are planned for a GPU of two SMs, so that a block has several tiles.
    """
    fusion = run_pipeline(read_text(text, "backward.yaml"))
    plan = AttentionBackwards().build(fusion, replace(target.find("sm_90a"), sms=2), settings)
    inputs, sizes = random_inputs(fusion, fusion.hints, 0), dict(fusion.hints)
    model = Model({name: order.at(sizes) for name, order in plan.orders.items()})
    for order in orders:
        try:
            outputs = run_plan(plan, inputs, folder, edit=edit, **order)
        except AssertionError as error:
            return str(error)
        verdict = compare(fusion, sizes, inputs, outputs, model=model)
        if not verdict.ok:
            return f"{order}: {verdict.text()}"
    return ""


@pytest.mark.parametrize("name", ["grouped heads", "window", "bias"])
def test_a_backward(name: str, tmp_path: Path) -> None:
    assert wrong(RECOGNISED[name], tmp_path, SMALL) == ""


@pytest.mark.nightly
def test_a_bias_that_is_read_beyond_the_last_query_is_seen(tmp_path: Path) -> None:
    def edit(text: str) -> str:
        return text.replace("return m < M && n < N ?", "return m <= M && n < N ?")

    assert "reads outside of a buffer" in wrong(RECOGNISED["bias"], tmp_path, SMALL, edit=edit)


@pytest.mark.nightly
def test_two_warpgroups_in_every_order(tmp_path: Path) -> None:
    text = backward(*CAUSAL, m=150, n=150, dtype="f16")
    assert wrong(text, tmp_path, {**SMALL, "warpgroups": 2, "key_stages": 3}, ORDERS) == ""


@pytest.mark.nightly
def test_keys_and_values_in_walks_of_their_own(tmp_path: Path) -> None:
    text = backward(*CAUSAL, m=100, n=100, d=256, heads=1)
    settings = {**SMALL, "separate": True}
    assert wrong(text, tmp_path, settings, ORDERS) == ""
    assert wrong(RECOGNISED["grouped heads"], tmp_path, {**settings, "warpgroups": 2}) == ""


MUTANTS = {
    "products are read early": ("    wgmma_wait<Config::kPulls ? 1 : 0>();\n", ""),
    "a stage is handed back early": (
        "wgmma_wait<1>();\n    if (running >= 0",
        "if (running >= 0",
    ),
    "owned rows are overwritten": (
        "barriers_at(shared, Config::kOwnedEmpty)->wait(place.tile_parity ^ 1);",
        "",
    ),
    "values of queries are not awaited": ("init(2 + 32 * Config::kOfKeys)", "init(2)"),
    "a value of the neighbour": ("values[1][k] = both[1];", "values[1][k] = both[0];"),
    "masks are left out": ("if (other < own.all_begin || ", "if ("),
    "the first tile is skipped": ("seen.begin / kKeys;", "seen.begin / kKeys + (seen.begin > 0);"),
    "pulls are scaled otherwise": ("* 0.125f;", "* 0.126f;"),
    "more operands are awaited than come": ("init(1 + Config::kPulls)", "init(2)"),
}
SEPARATE = ("more operands are awaited than come",)
"""Wrong only where values have a walk of their own."""


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(MUTANTS, 3))
def test_a_wrong_backward_is_seen(name: str, tmp_path: Path) -> None:
    old, new = MUTANTS[name]
    edited: list[bool] = []

    def edit(text: str) -> str:
        edited.append(old in text)
        return text.replace(old, new)

    settings = {**SMALL, "separate": name in SEPARATE}
    found = wrong(backward(*CAUSAL, m=150, n=150), tmp_path, settings, MORE_ORDERS, edit)
    assert any(edited)
    assert "seed" in found  # what does not compile has none
