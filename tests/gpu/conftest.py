"""GPU tests that take longest begin first."""

from __future__ import annotations

import os

import pytest
from gpu_order import early_first


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests that are selected, the same in every process."""
    items[:] = early_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
