"""Lists in a script's arguments."""

from __future__ import annotations

from typing import Any


def is_list(value: Any) -> bool:
    """Return whether an argument is a list or a tuple; its elements are checked later."""
    return isinstance(value, (list, tuple))
