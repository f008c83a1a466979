"""Links of GPUs between which barriers are quick and no kernel pushes sums, so that reads win."""

from __future__ import annotations

from typing import Any

import pytest

from fusec.ops.communication import PEER_VIEWS
from fusec.target import find
from fusec.target.table import Link


@pytest.fixture
def quick_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sums of few elements be read where they lie."""
    monkeypatch.setattr("fusec.schedule.host.communication.pushes_sum", lambda *given: False)
    links: Any = find("sm_90a").links
    monkeypatch.setitem(links, PEER_VIEWS.name, Link(0.7, 6e-6))
