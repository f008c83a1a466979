"""Outputs that are sums over ranks: sent as they are computed, added by rows, and gathered."""

from __future__ import annotations

from typing import Any

import pytest
from rank_verdicts import verdict_of

from benchmarks import programs_ranks as texts
from fusec import lowering
from fusec.ir.graph import Fusion
from fusec.lowering import Division, division
from fusec.options import CompileOptions
from fusec.parse import read_text

SIZES = 24, 16, 48
"""Tokens, depth and width of an MLP."""


def mlp(ranks: int, rows: str = "") -> Fusion:
    """Return an MLP whose rows are multiples of the ranks, where nothing else is said."""
    known = f"{{default: {SIZES[0]}, multiple_of: {ranks}}}"
    text = texts.mlp(ranks, *SIZES).replace(f"T: {SIZES[0]},", f"T: {known},")
    return read_text(text.replace(f"T: {known},", f"T: {rows or known},"))


def divided(fusion: Fusion, **options: Any) -> Division:
    return division(fusion, CompileOptions(**options))


def kinds(fusion: Fusion) -> set[str]:
    """Return the exchanges of what one rank runs."""
    return {n.op.name for n in fusion.nodes} & {"all_reduce", "all_gather", "send_slice"}


@pytest.fixture
def at_any_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cost model choose what takes longer, too."""
    monkeypatch.setattr(lowering, "LOOP_SAVES", -1e9)


@pytest.mark.usefixtures("at_any_price")
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_ranks_compute_the_whole(ranks: int) -> None:
    fusion = mlp(ranks)
    assert kinds(divided(fusion).local) == {"send_slice", "all_gather"}
    verdict = verdict_of(fusion, options=CompileOptions(), nccl=False)
    assert verdict.ok, verdict.text()
    assert set(divided(fusion).partition.sums) == {"y"}


OTHERS: dict[str, tuple[Fusion, dict[str, Any]]] = {
    "rows of any number": (mlp(4, "24"), {}),
    "rows in other multiples": (mlp(4, "{default: 24, multiple_of: 2}"), {}),
    "left out": (mlp(4), {"without": ("scattered_sums",)}),
    "no loops": (mlp(4), {"without": ("loops_by_cost",)}),
    "a loop that the file asks for": (read_text(texts.mlp(4, *SIZES, slices=2)), {}),
}


@pytest.mark.usefixtures("at_any_price")
@pytest.mark.parametrize("name", OTHERS)
def test_other_outputs_are_added_as_the_file_says(name: str) -> None:
    fusion, options = OTHERS[name]
    assert "all_reduce" in kinds(divided(fusion, **options).local)


@pytest.mark.parametrize(
    ("ranks", "tokens", "scattered"), [(4, 8192, True), (4, 64, False), (2, 8192, False)]
)
def test_it_is_selected_where_it_is_predicted_to_be_faster(
    ranks: int, tokens: int, scattered: bool
) -> None:
    """On four H200 4597 us with 8192 tokens, and 4929 by an all-reduce (2026-11)."""
    known = f"T: {{default: {tokens}, multiple_of: {ranks}}},"
    found = divided(read_text(texts.mlp(ranks, tokens).replace(f"T: {tokens},", known)))
    assert ("send_slice" in kinds(found.local)) == scattered
    (decision,) = (d for d in found.decisions if d.action == "sums over ranks")
    assert decision.subject == ("y",)
    assert decision.because.startswith("added by rows" if scattered else "all-reduce")
