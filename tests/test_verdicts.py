"""The verdict decides: right results of every order pass, wrong ones are told from them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from nightly import mostly_nightly

from fusec.dev.verdicts import (
    ENTROPIES,
    ORDERS,
    Setting,
    judge_right,
    judge_wrong,
    largest,
    longest_sum,
    small_sizes,
)
from fusec.ir.graph import Fusion
from fusec.parse import read_text

TESTS = Path(__file__).parent
# Of attention there would be too many scores, or too few elements: tests/test_attention_on_cpu.py
# and tests/test_attention_decode_on_cpu.py judge others.
LEFT_OUT = ("attention", "paged_decode")
EXAMPLES = sorted(p for p in (TESTS.parent / "examples").glob("*.yaml") if p.stem not in LEFT_OUT)
GRAPHS = sorted((TESTS / "corpus").glob("*.yaml"))
MOST = 300_000
"""Elements of the largest tensor of an example."""
UNDECIDED = frozenset({"test_sdpa"})


@cache
def loaded(path: Path) -> tuple[Fusion, dict[str, int]]:
    text = path.read_text(encoding="utf-8")
    if path.stem == "seed_2146":  # its sizes are constants
        text = re.sub(r"\b56\b", "14", re.sub(r"\b1024\b", "128", text))
    fusion = read_text(text, path.name)
    return fusion, small_sizes(fusion, MOST)


@pytest.mark.parametrize("path", mostly_nightly([*EXAMPLES, *GRAPHS], 4), ids=lambda p: p.stem)
def test_sizes_are_worth_while(path: Path):
    fusion, sizes = loaded(path)
    assert 1e4 <= largest(fusion, sizes) <= 1.1e6
    assert longest_sum(fusion, sizes) in (0, *range(1000, 1 << 19))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("path", mostly_nightly([*EXAMPLES, *GRAPHS], 4), ids=lambda p: p.stem)
def test_right_results_of_every_order_are_verified(path: Path, order: str):
    fusion, sizes = loaded(path)
    verdict = judge_right(fusion, sizes, Setting(order, seed=1))
    assert verdict.ok, verdict.text()


@pytest.mark.parametrize("entropy", ENTROPIES[1:])
@pytest.mark.parametrize("path", mostly_nightly([*EXAMPLES, *GRAPHS], 4), ids=lambda p: p.stem)
def test_right_results_of_equal_inputs_do_not_differ(path: Path, entropy: str):
    fusion, sizes = loaded(path)
    order = list(ORDERS)[len(path.stem) % len(ORDERS)]
    verdict = judge_right(fusion, sizes, Setting(order, entropy, seed=2))
    assert verdict.word != "differs", verdict.text()


@pytest.mark.parametrize("path", mostly_nightly([*EXAMPLES, *GRAPHS], 4), ids=lambda p: p.stem)
def test_wrong_results_differ(path: Path):
    fusion, sizes = loaded(path)
    order = list(ORDERS)[len(path.stem) % len(ORDERS)]
    wrong = judge_wrong(fusion, sizes, Setting(order, seed=3))
    assert wrong.pairs >= 2
    assert not wrong.missed
