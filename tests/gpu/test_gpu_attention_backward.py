"""The backward of attention on a GPU: every form of it, ragged ends, against the fp64 reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
from backwards import CAUSAL, PLAIN, RECOGNISED, backward
from gpu_check import check_on_gpu

from fusec.ir.annotations import Override, Pin
from fusec.ir.graph import Fusion
from fusec.parse.reader import read_text

pytestmark = pytest.mark.gpu
FIELDS = (
    {"tile_queries": 64, "query_stages": 2, "tile_keys": 112, "key_stages": 2, "warpgroups": 2},
    {"tile_queries": 32, "query_stages": 3, "tile_keys": 64, "key_stages": 3, "warpgroups": 2},
    {"tile_queries": 48, "query_stages": 2, "tile_keys": 144, "key_stages": 2, "warpgroups": 1},
    {"tile_queries": 96, "query_stages": 2, "tile_keys": 96, "key_stages": 2, "separate": True},
)


def pinned(text: str, **fields: int) -> Fusion:
    """Return a fusion that the kernels of the backward are to run, with some fields set."""
    fusion = read_text(text, "backward.yaml")
    values = (v.name for n in fusion.nodes for v in n.outputs if not v.is_scalar)
    pin = Pin("backward", tuple(values), "attention_backward")
    overrides = tuple(Override("attention_backward", name, value) for name, value in fields.items())
    return replace(fusion, pins=(pin,), schedules=overrides)


@pytest.mark.parametrize("name", RECOGNISED)
def test_a_backward(name: str) -> None:
    check_on_gpu(pinned(RECOGNISED[name]), scheduler="attention_backward")


@pytest.mark.parametrize("fields", FIELDS, ids=lambda f: f"{f['tile_queries']}x{f['tile_keys']}")
@pytest.mark.parametrize("graph", [PLAIN, CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize(("m", "n"), [(70, 3), (129, 300), (500, 500)])
def test_tiles_and_ragged_ends(
    m: int, n: int, graph: tuple[str, ...], fields: dict[str, int]
) -> None:
    text = backward(*graph, m=m, n=n, d=128, heads=2)
    check_on_gpu(pinned(text, **fields), scheduler="attention_backward")


@pytest.mark.parametrize("graph", [PLAIN, CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize(
    ("m", "n"), [(70, 3), (300, 300), pytest.param(1000, 1000, marks=pytest.mark.early)]
)
def test_heads_of_256_features(m: int, n: int, graph: tuple[str, ...]) -> None:
    text = backward(*graph, m=m, n=n, d=256, heads=20)
    check_on_gpu(pinned(text), scheduler="attention_backward", repeats=5)


@pytest.mark.parametrize("heads", [1, 70])
def test_more_and_fewer_tiles_than_processors(heads: int) -> None:
    text = backward(*CAUSAL, m=130, n=130, heads=heads)
    check_on_gpu(pinned(text), scheduler="attention_backward", repeats=20)
