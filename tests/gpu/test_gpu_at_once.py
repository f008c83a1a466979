"""Every kernel of products and attention on two streams at once, and replayed."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_runs import at_once, graphs_at_once, program_of, replayed
from gpu_variants import VARIANTS

torch: Any = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

RUNS = 1000


@pytest.mark.parametrize("name", VARIANTS)
def test_two_streams_share_nothing(name: str) -> None:
    assert at_once(program_of(name), VARIANTS[name], 100) == 0


@pytest.mark.parametrize("name", ["slices", "serial_tma", "gemv", "decode"])
def test_two_graphs_share_nothing(name: str) -> None:
    """Those whose blocks count who arrives."""
    assert graphs_at_once(program_of(name), VARIANTS[name], 100) == 0


@pytest.mark.parametrize("name", VARIANTS)
def test_a_graph_is_right_at_each_replay(name: str) -> None:
    wrong, left = replayed(program_of(name), VARIANTS[name], RUNS, own=True)
    assert wrong == 0
    assert not any(left)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_graph_of_the_caller_is_right_at_each_replay(name: str) -> None:
    wrong, _ = replayed(program_of(name), VARIANTS[name], 100, own=False)
    assert wrong == 0
