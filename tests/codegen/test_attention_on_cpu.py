"""Attention kernels on the host: what they compute, and that wrong ones are seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attentions import CAUSAL, PLAIN, RECOGNISED, SOFTMAX, attention
from cuda_on_cpu import run_plan
from nightly import mostly_nightly

from fusec import target
from fusec.parse.reader import read_text
from fusec.passes import run_pipeline
from fusec.reference.errors.nodes import Model
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs
from fusec.schedule.attention.forward.family import Attentions

FIRST = ({"seed": 0},)
ORDERS = (*FIRST, {"seed": 1, "backwards": True}, {"seed": 2, "at_once": True})
"""How tests run kernels: two orders, and copies that are done early."""
MORE_ORDERS = (*ORDERS, *({"seed": seed, "backwards": seed % 2 == 1} for seed in range(3, 8)))
"""Where a wrong kernel must fail in one of them."""
STEEP = ("s = mul({scores}, 1.75)", SOFTMAX)
"""Scores so far apart that the maxima grow from tile to tile."""
TURNS = {
    "tile_keys": 64,
    "stages": 2,
    "warpgroups": 2,
    "ping_pong": True,
}


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
    model = Model(sums, early=plan.rounded_early)
    for order in orders:
        try:
            outputs = run_plan(plan, inputs, folder, edit=edit, **order)
        except AssertionError as error:
            return str(error)
        verdict = compare(fusion, sizes, inputs, outputs, model=model)
        if not verdict.ok:
            return f"{order}: {verdict.text()}"
    return ""


@pytest.mark.parametrize("name", ["composite", "window", "alibi", "heads beside features"])
def test_an_attention(name: str, tmp_path: Path) -> None:
    assert wrong(RECOGNISED[name], tmp_path) == ""


@pytest.mark.nightly
def test_turns_in_every_order(tmp_path: Path) -> None:
    assert wrong(attention(*CAUSAL, m=330, n=330), tmp_path, TURNS, ORDERS) == ""


def test_maxima_that_grow_and_a_warpgroup_without_queries(tmp_path: Path) -> None:
    settings = {"tile_keys": 64, "stages": 1, "warpgroups": 3}
    assert wrong(attention(*STEEP, m=120, n=331, dtype="f16"), tmp_path, settings) == ""


def test_queries_without_keys(tmp_path: Path) -> None:
    """Of which whole tiles see nothing, and whose outputs are 0 by the composite's own rule."""
    text = attention(
        "near = lt(add({row}, 100), {column})",
        "o, lse, a, b = sdpfa_fwd(q, k, v, mask=near)",
        m=200,
        n=280,
    )
    assert wrong(text, tmp_path, {"tile_keys": 64, "stages": 2, "warpgroups": 1}) == ""


QUERIES_EMPTY = "barriers_at(shared, Config::kQueriesEmpty)"
MUTANTS = {
    "sums are not rescaled": ("sums[i] *= rows.factor[i / 2 % 2];", ";"),
    "one tile too many is skipped": ("{first, last};", "{first + (last > 3), last};"),
    "the last tile is skipped": ("(seen.end + kKeys - 1) / kKeys;", "seen.end / kKeys;"),
    "a tile is thought to be seen whole": ("(last + 1, first + 1)", "(last + 1, last + 1)"),
    "keys beyond the end": ("n >= N) acc", "n >= N + 8) acc"),
    "the maximum of a part of a row": ("shuffle_xor(all, 2)", "shuffle_xor(all, 1)"),
    "scores are read early": ("wgmma_wait<1>();", "wgmma_wait<2>();"),
    "sums are read early": ("    wgmma_wait<0>();\n    wgmma_pin(sums);\n", ""),
    "queries are overwritten": (f"{QUERIES_EMPTY}->wait(place.tile_parity ^ 1);", ""),
    "the turn is not passed on": ("    turns.pass();", ""),
}


GROWING = ("sums are not rescaled",)


@pytest.mark.parametrize("name", mostly_nightly(MUTANTS, 3))
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
