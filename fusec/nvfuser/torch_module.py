"""PyTorch, if the caller has it; fusec itself does not depend on it."""

from __future__ import annotations

import importlib
from typing import Any


def torch_module() -> Any:
    """Return the module; ImportError if it is not installed."""
    return importlib.import_module("torch")
