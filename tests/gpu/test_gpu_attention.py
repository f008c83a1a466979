"""Attention on a GPU: every form of it, ragged and long, against the fp64 reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
from attentions import CAUSAL, PLAIN, RECOGNISED, SOFTMAX, attention
from gpu_check import check_on_gpu

from fusec.ir.annotations import Override, Pin
from fusec.ir.graph import Fusion
from fusec.parse.reader import read_text

pytestmark = pytest.mark.gpu
FIELDS = (
    {"tile_keys": 128, "stages": 2, "warpgroups": 2, "ping_pong": True},
    {"tile_keys": 176, "stages": 2, "warpgroups": 2, "ping_pong": True},
    {"tile_keys": 112, "stages": 1, "warpgroups": 2, "ping_pong": False},
    {"tile_keys": 64, "stages": 4, "warpgroups": 3, "ping_pong": True},
    {"tile_keys": 80, "stages": 3, "warpgroups": 1, "ping_pong": False},
)


def pinned(text: str, **fields: int) -> Fusion:
    """Return a fusion that attention is to run, with some fields set."""
    fusion = read_text(text, "attention.yaml")
    values = (v.name for n in fusion.nodes for v in n.outputs if not v.is_scalar)
    pin = Pin("attention", tuple(values), "attention")
    overrides = tuple(Override("attention", name, value) for name, value in fields.items())
    return replace(fusion, pins=(pin,), schedules=overrides)


@pytest.mark.parametrize("name", RECOGNISED)
def test_an_attention(name: str) -> None:
    check_on_gpu(pinned(RECOGNISED[name]), scheduler="attention")


@pytest.mark.parametrize("fields", FIELDS, ids=lambda f: f"{f['tile_keys']}x{f['warpgroups']}")
@pytest.mark.parametrize("graph", [PLAIN, CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize(("m", "n"), [(70, 3), (129, 300), (700, 700)])
def test_tiles_and_ragged_ends(
    m: int, n: int, graph: tuple[str, ...], fields: dict[str, int]
) -> None:
    text = attention(*graph, m=m, n=n, d=128, heads=3, batch=2)
    check_on_gpu(pinned(text, **fields), scheduler="attention")


@pytest.mark.parametrize("heads", [1, 40])
def test_more_and_fewer_tiles_than_processors(heads: int) -> None:
    text = attention(*CAUSAL, m=600, n=600, heads=heads)
    check_on_gpu(pinned(text), scheduler="attention", repeats=20)


def test_maxima_that_grow() -> None:
    """Weights of few keys are told less sharply than a verdict needs, but wrong ones are seen."""
    text = attention("s = mul({scores}, 2.5)", SOFTMAX, m=300, n=2000)
    check_on_gpu(pinned(text), scheduler="attention", decided=False)
