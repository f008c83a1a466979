"""Kernels of decoding attention on the host: what they compute, and that wrong ones are seen."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from attentions import PLAIN, SOFTMAX, attention
from cuda_on_cpu import run_plan
from decodes import DECODES, GROUPED
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import mostly_nightly

from fusec import target
from fusec.parse.reader import read_text
from fusec.passes import run_pipeline
from fusec.reference.errors.nodes import Model
from fusec.reference.verdict import compare
from fusec.run.inputs import random_inputs
from fusec.schedule.attention.decode.family import AttentionDecodes

FIRST = ({"seed": 0},)
ORDERS = (*FIRST, {"seed": 1, "backwards": True}, {"seed": 2, "at_once": True})
"""How tests run kernels: two orders, and copies that are done early."""
MORE_ORDERS = (*ORDERS, *({"seed": seed, "backwards": seed % 2 == 1} for seed in range(3, 8)))
"""Where a wrong kernel must fail in one of them."""
HALVES = ("bf16", "f16")
SHARED = {"tile_keys": 16, "warps": 2, "stages": 3, "splits": 3}
STEEP = ("s = mul({scores}, 1.75)", SOFTMAX)
"""Scores so far apart that the maxima grow from tile to tile."""


def wrong(
    text: str,
    folder: Path,
    settings: Mapping[str, Any] | None = None,
    orders: Iterable[Mapping[str, Any]] = FIRST,
    edit: Callable[[str], str] = str,
) -> str:
    """Return what is wrong with a kernel in some order; nothing where all is right."""
    fusion = run_pipeline(read_text(text, "decode.yaml"))
    plan = AttentionDecodes().build(fusion, target.find("sm_90a"), settings or {})
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


IN_ONE_BLOCK = ("several queries", "bias", "composite", "cache with heads beside features")


@pytest.mark.parametrize("name", IN_ONE_BLOCK)
def test_an_attention(name: str, tmp_path: Path) -> None:
    assert wrong(DECODES[name], tmp_path) == ""


IN_SEVERAL = ("grouped heads", "lengths", "window", "head 96", "head 256", "paged cache")


@pytest.mark.parametrize("name", mostly_nightly(IN_SEVERAL, 2))
def test_an_attention_of_several_blocks(name: str, tmp_path: Path) -> None:
    assert wrong(DECODES[name], tmp_path, SHARED, ORDERS) == ""


def test_maxima_that_grow_and_more_blocks_than_tiles(tmp_path: Path) -> None:
    settings = {"tile_keys": 64, "warps": 1, "stages": 2, "splits": 40}
    assert wrong(attention(*STEEP, m=9, n=331, dtype="f16"), tmp_path, settings) == ""


MUTANTS = {
    "sums are not rescaled": ("own.sums[j][e] *= own.rows.factor[e / 2];", ";"),
    "parts have one maximum": ("exp2_approx((of - top) * scale_log2)", "1.0f"),
    "tiles are left out": ("split * Config::kWarps + warp;", "split * Config::kWarps;"),
    "keys beyond the end": ("N % Config::kKeys == 0 || n < N", "true"),
    "keys are not waited for": ("copy_wait<2 * Config::kStages - 3>();", ""),
    "keys are not shown to other lanes": ("    __syncwarp();\n    load(", "    load("),
    "values are not shown to other lanes": ("    __syncwarp();\n    add_values", "    add_values"),
    "values are not waited for": ("copy_wait<2 * Config::kStages - 2>();", ""),
    "a stage is filled early": ("stage == 0 ? Config::kStages - 1 : stage - 1", "stage"),
    "warps leave parts in rings in use": ("__syncthreads();  // all warps", "// all warps"),
    "parts are read early": ("  if (!fusec::last_block(", "  if (split != 1 && fusec::last_block("),
    "a part is left out": ("part < kParts)", "part < kParts - 1)"),
    "queries are not waited for": ("    __syncthreads();\n  } else {", "  } else {"),
    "rows of another head": ("g * Config::kFeatures", "0 * Config::kFeatures"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", mostly_nightly(MUTANTS, 3))
def test_a_wrong_attention_is_seen(name: str, tmp_path: Path) -> None:
    old, new = MUTANTS[name]
    edited: list[bool] = []

    def edit(text: str) -> str:
        edited.append(old in text)
        return text.replace(old, new)

    n = 700 if name == "a part is left out" else 346
    d = 256 if name == "queries are not waited for" else 64
    text = attention(*(PLAIN if name == "keys beyond the end" else STEEP), m=3, n=n, d=d)
    if name == "rows of another head":
        text = DECODES["grouped heads"]
    settings = {**SHARED, "splits": 20} if name == "a part is left out" else SHARED
    found = wrong(text, tmp_path, settings, MORE_ORDERS, edit)
    assert any(edited)
    assert "seed" in found  # what does not compile has none


@settings(max_examples=6, deadline=None, derandomize=True)
@given(st.data())
@pytest.mark.nightly
def test_drawn_attentions_in_drawn_schedules(data: st.DataObject) -> None:
    def pick(*values: int) -> int:
        return data.draw(st.sampled_from(values))

    heads, shared = pick(1, 2), pick(1, 3, 4, 8)
    text = attention(
        *GROUPED, heads=heads * shared, kv_heads=heads, batch=pick(1, 2), m=pick(1, 2, 5, 16),
        n=pick(2, 15, 64, 65, 130), d=pick(16, 64, 80), dtype=data.draw(st.sampled_from(HALVES)),
    )  # fmt: skip
    fields = {"tile_keys": pick(16, 32), "warps": pick(1, 4), "stages": pick(2, 3)}
    with tempfile.TemporaryDirectory() as folder:
        found = wrong(text, Path(folder), {**fields, "splits": pick(1, 3, 35)})
    # Few elements tell errors of scale less sharply than a verdict wants.
    assert found == "" or "inconclusive" in found
