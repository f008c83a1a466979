"""Attention of few queries on a GPU, however many blocks share their keys."""

from __future__ import annotations

from dataclasses import replace

import pytest
from attentions import PLAIN, attention
from decodes import DECODES, GIVEN_LENGTHS, GROUPED, LENGTHS
from gpu_check import check_on_gpu

from fusec.ir.annotations import Override, Pin
from fusec.ir.graph import Fusion
from fusec.parse.reader import read_text

pytestmark = pytest.mark.gpu
FIELDS = (
    {"tile_keys": 32, "warps": 4, "stages": 3, "splits": 1},
    {"tile_keys": 16, "warps": 8, "stages": 2, "splits": 5, "streaming": False},
    {"tile_keys": 64, "warps": 1, "stages": 2, "splits": 40},
    {"tile_keys": 16, "warps": 2, "stages": 6, "splits": 2},
)

MORE = {"scaled output": ("bf16[1, 8,", "bf16[12, 8,")}
"""Batches of which a verdict can tell a wrong scale: by few elements it would not decide."""


def pinned(text: str, **fields: int) -> Fusion:
    """Return a fusion that this scheduler is to run, with some fields set."""
    fusion = read_text(text, "decode.yaml")
    values = (v.name for n in fusion.nodes for v in n.outputs if not v.is_scalar)
    pin = Pin("attention_decode", tuple(values), "attention_decode")
    overrides = tuple(Override("attention_decode", name, value) for name, value in fields.items())
    return replace(fusion, pins=(pin,), schedules=overrides)


@pytest.mark.parametrize("name", DECODES)
def test_an_attention(name: str) -> None:
    text = DECODES[name].replace(*MORE.get(name, ("", "")))
    check_on_gpu(pinned(text), scheduler="attention_decode")


@pytest.mark.parametrize("fields", FIELDS, ids=lambda f: f"{f['tile_keys']}x{f['warps']}")
@pytest.mark.parametrize(("m", "n"), [(1, 3), (5, 300), (2, 4000)])
def test_tiles_and_splits(m: int, n: int, fields: dict[str, int]) -> None:
    text = attention(*PLAIN, m=m, n=n, d=128, heads=3, batch=2)
    check_on_gpu(pinned(text, **fields), scheduler="attention_decode", repeats=3)


def test_a_long_cache_with_lengths_and_shared_heads() -> None:
    text = attention(*LENGTHS, m=1, n=4000, heads=2, batch=3, inputs=GIVEN_LENGTHS)
    check_on_gpu(pinned(text), scheduler="attention_decode", repeats=20)
    text = attention(*GROUPED, m=1, n=4000, d=128, heads=16, kv_heads=2)
    check_on_gpu(pinned(text), scheduler="attention_decode", repeats=20)
