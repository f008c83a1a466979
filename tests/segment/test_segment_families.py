"""Generated graphs that grow in one way: twice as large, they are not asked much more about."""

from __future__ import annotations

import pytest

from benchmarks.segmentation_families import count_asked, hub
from fusec import lowering
from fusec.options import CompileOptions
from fusec.segment import offers

OPTIONS = CompileOptions()
MOST = 2.3
"""How much more twice as large a graph may be asked about."""


def test_proposals_for_a_hub_grow_with_its_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    # A kernel of 10 branches is the longest, so that the regions of 24 are halved twice.
    monkeypatch.setattr(offers, "MOST_LENGTH", 0.5)
    small, large = (count_asked(lowering.optimise(hub(n), OPTIONS), OPTIONS) for n in (12, 24))
    assert large <= MOST * small, (small, large)
