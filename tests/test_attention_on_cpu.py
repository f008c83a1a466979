"""Attention kernels on the host: what they compute, and that wrong ones are seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attentions import CAUSAL, PLAIN, RECOGNISED, SOFTMAX, attention
from cuda_on_cpu import run_plan

from fusec import target
from fusec.parse.reader import read_text
from fusec.passes import run_pipeline
from fusec.reference.nodes import Model
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs
from fusec.schedule.attention import Attentions

FIRST = ({"seed": 0},)
ORDERS = (*FIRST, {"seed": 1, "backwards": True}, {"seed": 2, "at_once": True})
"""How tests run kernels: two orders, and copies that are done early."""
MORE_ORDERS = (*ORDERS, *({"seed": seed, "backwards": seed % 2 == 1} for seed in range(3, 8)))
"""Where a wrong kernel must fail in one of them."""
STEEP = ("s = mul({scores}, 1.75)", SOFTMAX)
"""Scores so far apart that the maxima grow from tile to tile."""
TURNS = {"tile_keys": 64, "stages": 2, "warpgroups": 2, "ping_pong": True}


def wrong(
    text: str,
    folder: Path,
    settings: Mapping[str, Any] | None = None,
    orders: Iterable[Mapping[str, Any]] = FIRST,
    edit: Callable[[str], str] = str,
) -> str:
    """Return what is wrong with an attention's kernel in some order; nothing where all is right.

    It is planned for a GPU of two SMs, so that a block has several tiles.
    """
    fusion = run_pipeline(read_text(text, "attention.yaml"))
    plan = Attentions().build(fusion, replace(target.find("sm_90a"), sms=2), settings or {})
    inputs, sizes = random_inputs(fusion, fusion.hints, 0), dict(fusion.hints)
    sums = {name: order.at(sizes) for name, order in plan.orders.items()}
    model = Model(sums, early=frozenset(plan.rounded_early))
    for order in orders:
        try:
            outputs = run_plan(plan, inputs, folder, edit=edit, **order)
        except AssertionError as error:
            return str(error)
        verdict = compare(fusion, sizes, inputs, outputs, model=model)
        if not verdict.ok:
            return f"{order}: {verdict.text()}"
    return ""


@pytest.mark.parametrize(
    "name", ["composite", "window", "alibi", "grouped heads", "heads beside features", "head 96"]
)
def test_an_attention(name: str, tmp_path: Path) -> None:
    assert wrong(RECOGNISED[name], tmp_path) == ""


def test_turns_in_every_order(tmp_path: Path) -> None:
    assert wrong(attention(*CAUSAL, m=200, n=200), tmp_path, TURNS, ORDERS) == ""


def test_maxima_that_grow(tmp_path: Path) -> None:
    assert wrong(attention(*STEEP, m=130, n=330), tmp_path, TURNS) == ""


def test_three_warpgroups_of_which_one_has_no_query(tmp_path: Path) -> None:
    settings = {"tile_keys": 64, "stages": 3, "warpgroups": 3, "ping_pong": True}
    assert wrong(attention(*PLAIN, m=120, n=131, dtype="f16"), tmp_path, settings) == ""


def test_a_single_stage(tmp_path: Path) -> None:
    settings = {"tile_keys": 64, "stages": 1, "warpgroups": 2, "ping_pong": False}
    assert wrong(attention(*PLAIN, m=130, n=200), tmp_path, settings) == ""


def test_queries_without_keys(tmp_path: Path) -> None:
    """Of which whole tiles are skipped, and whose outputs are 0 by the composite's own rule."""
    text = attention(
        "near = lt(add({row}, 100), {column})",
        "o, lse, a, b = sdpfa_fwd(q, k, v, mask=near)",
        m=200,
        n=280,
    )
    settings = {"tile_keys": 64, "stages": 2, "warpgroups": 1, "ping_pong": False}
    assert wrong(text, tmp_path, settings) == ""


MUTANTS = {
    "sums are not rescaled": ("sums[i] *= rows.factor[i / 2 % 2];", ";"),
    "totals are not rescaled": ("        total[h] *= factor[h];\n      }", "      }"),
    "one tile too many is skipped": ("{first, last};", "{first + (last > 3), last};"),
    "the last tile is skipped": ("(seen.end + kKeys - 1) / kKeys;", "seen.end / kKeys;"),
    "a tile is thought to be seen whole": ("(last + 1, first + 1)", "(last + 1, last + 1)"),
    "the limit of masks": ("n + i <= m", "n + i < m"),
    "keys beyond the end": ("n >= N) acc", "n >= N + 8) acc"),
    "the maximum of a part of a row": ("shuffle_xor(all, 2)", "shuffle_xor(all, 1)"),
    "the sum of a part of a row": ("shuffle_xor(total[h], 2)", "0.0f"),
    "the row of a factor": ("rows.factor[i / 2 % 2]", "rows.factor[0]"),
    "the queries of a warpgroup": ("* (64 * 128)", "* 0"),
    "the step along keys": ("step * kDescriptorStepMn", "step / 2 * kDescriptorStepMn"),
    "the panel of features": ("Config::kFeatures / 16; ++step", "Config::kFeatures / 32; ++step"),
    "weights of the wrong block": ("weights[i / 4][i % 4]", "weights[i / 4][i % 4 ^ 1]"),
    "scores are read early": ("wgmma_wait<1>();", "wgmma_wait<2>();"),
    "sums are read early": ("    wgmma_wait<0>();\n    wgmma_pin(sums);", ""),
    "no fence before products": ("    wgmma_fence();", ""),
    "no wait for keys": ("    keys_full[place.stage].wait(place.parity);", ""),
    "no wait for values": ("    values_full[running].wait(place.parity);", ""),
    "no wait for queries": ("barriers_at(shared, Config::kQueriesFull)->wait(place.tile_parity);", ""),
    "keys are handed back early": (
        "    turns.take();", "    if (lane == 0) keys_empty[place.stage].arrive();\n    turns.take();"
    ),
    "keys are not handed back": ("    if (lane == 0) keys_empty[place.stage].arrive();", ""),
    "values are not handed back": ("if (running >= 0 && lane == 0)", "if (false)"),
    "queries are not handed back": ("  if (lane == 0) barriers_at(shared, Config::kQueriesEmpty)->arrive();", ""),
    "queries are overwritten": ("barriers_at(shared, Config::kQueriesEmpty)->wait(place.tile_parity ^ 1);", ""),
    "the turn is not passed on": ("    turns.pass();", ""),
    "the first turn": ("own == kCount - 1", "own == kCount"),
    "the parity of stages": ("parity ^= stage == 0;", "parity ^= 0;"),
    "barriers that are not shown": ("  fence_barrier_init();", ""),
}  # fmt: skip


GROWING = ("sums are not rescaled", "totals are not rescaled", "the row of a factor")


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_attention_is_seen(name: str, tmp_path: Path) -> None:
    old, new = MUTANTS[name]
    edited: list[bool] = []

    def edit(text: str) -> str:
        edited.append(old in text)
        return text.replace(old, new)

    graph = PLAIN if name == "keys beyond the end" else STEEP if name in GROWING else CAUSAL
    found = wrong(attention(*graph, m=330, n=330), tmp_path, TURNS, MORE_ORDERS, edit)
    assert any(edited)
    assert "seed" in found  # what does not compile has none
