"""Operations that a test declares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fusec.ops.declare import TABLE


@contextmanager
def temporary_ops() -> Iterator[None]:
    """Undo, at the end, every declaration made inside."""
    saved = dict(TABLE)
    try:
        yield
    finally:
        TABLE.clear()
        TABLE.update(saved)
